#include "lode/cli/rank_runs.h"

#include <atomic>
#include <chrono>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/text_file.h"
#include "lode/comm/mpi_group.h"
#include "lode/comm/thread_group.h"
#include "lode/engine/balance_files.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

std::atomic<bool> was_said = false;
constexpr std::size_t kMaxMapBytes = 64 * kMiB;

Status check_launcher(const ModelOptions& options, const comm::Group& group) {
  if (options.ranks == 1 || options.ranks == group.size()) return {};
  return Error{.code = Code::kUsage,
               .thing = "--ranks",
               .wanted = fmt::format("{}, as mpirun started so many", group.size()),
               .found = fmt::format("{}", options.ranks)};
}

Status on_processes(const ModelOptions& options, const comm::GroupOptions& group_options,
                    parallel::FunctionRef<Status(const RankContext&)> body) {
  const auto one = [&](comm::Group& group) -> Status {
    LODE_TRY_STATUS(check_launcher(options, group));
    return body({.group = group.size() == 1 ? nullptr : &group, .one_process = false});
  };
  const auto say = [](const Error& error) {
    write_standard_error(fmt::format("lode: {}\n", to_string(error)));
  };
  Status done = comm::run_mpi({.group = group_options}, one, say);
  was_said = !done;
  return done;
}

// Errors: those of reading the maps.
Status take_placement(const ModelOptions& options, engine::RankSettings& ranks) {
  ranks.redundant_experts = options.redundant_experts;
  const bool in_turn = options.placement == "round-robin";
  ranks.order = in_turn ? placement::Order::kRoundRobin : placement::Order::kLinear;
  if (options.expert_map.empty() || ranks.ranks == 1) return {};
  LODE_TRY(const std::string text, read_text_file(options.expert_map, kMaxMapBytes));
  auto value = json::parse(text);
  if (!value) return at(options.expert_map, std::move(value).error());
  auto maps = engine::read_balance_maps(*value);
  if (!maps) return at(options.expert_map, std::move(maps).error());
  ranks.maps = *std::move(maps);
  return {};
}

}  // namespace

void add_rank_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options) {
  command
      ->add_option("--ranks", options->ranks,
                   "Spread the experts over so many ranks, threads of this process; under mpirun "
                   "its processes are the ranks")
      ->check(CLI::Range(1U, kMostRanks))
      ->capture_default_str();
  command
      ->add_option("--peer-timeout", options->peer_timeout_seconds,
                   "Seconds to wait for another rank before it counts as lost")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  add_placement_options(command, options);
}

void add_placement_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options) {
  command
      ->add_option("--redundant-experts", options->redundant_experts,
                   "Slots beside one for each expert, of all ranks together")
      ->check(CLI::Range(0, 16384))
      ->capture_default_str();
  command
      ->add_option("--placement", options->placement,
                   "Which rank has which expert: consecutive ones, or every N-th")
      ->check(CLI::IsMember({"linear", "round-robin"}))
      ->capture_default_str();
  command->add_option("--expert-map", options->expert_map,
                      "Instead: maps of all layers, as `lode balance plan` writes them");
}

Result<engine::Settings> rank_settings(const ModelOptions& options, const RankContext& context) {
  LODE_TRY(engine::Settings settings, settings_of(options));
  if (context.group == nullptr) return settings;
  settings.ranks = engine::settings_of(*context.group, context.one_process);
  LODE_TRY_STATUS(take_placement(options, settings.ranks));
  return settings;
}

Result<engine::RankSettings> planned_rank(const ModelOptions& options, std::uint32_t ranks,
                                          std::uint32_t rank) {
  if (ranks == 0 || ranks > kMostRanks || rank >= ranks) {
    return Error{.code = Code::kUsage,
                 .thing = "--ranks, --rank",
                 .wanted = fmt::format("1 to {} ranks, and one of them from 0 on", kMostRanks),
                 .found = fmt::format("rank {} of {}", rank, ranks)};
  }
  engine::RankSettings settings{.ranks = ranks, .rank = rank, .ranks_here = ranks};
  LODE_TRY_STATUS(take_placement(options, settings));
  return settings;
}

Status on_ranks(const ModelOptions& options,
                parallel::FunctionRef<Status(const RankContext&)> body) {
  const comm::GroupOptions group_options{.deadline =
                                             std::chrono::seconds(options.peer_timeout_seconds)};
  if (comm::mpi_requested()) return on_processes(options, group_options, body);
  if (options.ranks == 1) return body({});
  return comm::run_ranks(options.ranks, group_options,
                         [&](comm::Group& group) { return body({.group = &group}); });
}

bool error_was_said() noexcept { return was_said; }

}  // namespace lode::cli
