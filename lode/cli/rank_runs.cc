#include "lode/cli/rank_runs.h"

#include <atomic>
#include <chrono>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/balance_inputs.h"
#include "lode/cli/program.h"
#include "lode/comm/mpi_group.h"
#include "lode/comm/thread_group.h"
#include "lode/engine/balance_report.h"

namespace lode::cli {
namespace {

std::atomic<bool> was_said = false;

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
  const auto say = [](const Error& error) { say_error(error); };
  Status done = comm::run_mpi({.group = group_options}, one, say);
  was_said = !done;
  return done;
}

// What is asked of balancing, if it is asked for.
Result<std::optional<engine::BalanceSettings>> balance_of(const ModelOptions& options) {
  if (options.balance == "off") return std::optional<engine::BalanceSettings>();
  engine::BalanceSettings settings;
  LODE_TRY(settings.policy, placement::policy_by_name(options.balance));
  settings.interval_passes = options.balance_interval;
  settings.half_life_passes = options.balance_half_life;
  LODE_TRY(settings.step_bytes, bytes_of("--balance-step", options.balance_step));
  LODE_TRY(const std::uint64_t bandwidth,
           bytes_of("--balance-bandwidth", options.balance_bandwidth));
  settings.bytes_per_second = static_cast<double>(bandwidth);
  settings.threshold = options.balance_threshold;
  LODE_TRY_STATUS(engine::check_rule({.threshold = settings.threshold}));
  settings.checksums = options.balance_checksums;
  return std::optional(settings);
}

// Errors: those of reading the maps.
Status take_placement(const ModelOptions& options, engine::RankSettings& ranks) {
  ranks.redundant_experts = options.redundant_experts;
  const bool in_turn = options.placement == "round-robin";
  ranks.order = in_turn ? placement::Order::kRoundRobin : placement::Order::kLinear;
  LODE_TRY(ranks.balance, balance_of(options));
  if (options.expert_map.empty() || ranks.ranks == 1) return {};
  LODE_TRY(ranks.maps, read_maps_file(options.expert_map, kMaxMapBytes));
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

void add_planned_balancing_options(CLI::App* command,
                                   const std::shared_ptr<ModelOptions>& options) {
  command
      ->add_option("--balance", options->balance,
                   "Move experts between ranks while the model runs, as a policy wants: identity, "
                   "deepseek or best")
      ->check(CLI::IsMember({"off", "identity", "deepseek", "best"}))
      ->capture_default_str();
  command
      ->add_option("--balance-step", options->balance_step,
                   "The most bytes that a rank receives at once, which it needs room for")
      ->needs("--balance")
      ->capture_default_str();
}

void add_balancing_options(CLI::App* command, const std::shared_ptr<ModelOptions>& options) {
  add_planned_balancing_options(command, options);
  std::vector<CLI::Option*> added;  // that mean nothing where nothing moves
  added.push_back(
      command
          ->add_option("--balance-interval", options->balance_interval,
                       "Passes between two looks at the load; the first comes after a quarter")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
          ->capture_default_str());
  added.push_back(command
                      ->add_option("--balance-half-life", options->balance_half_life,
                                   "Passes after which what was counted weighs half")
                      ->check(CLI::PositiveNumber)
                      ->capture_default_str());
  added.push_back(command
                      ->add_option("--balance-threshold", options->balance_threshold,
                                   "Move what saves more than this many times what moving takes")
                      ->check(CLI::NonNegativeNumber)
                      ->capture_default_str());
  added.push_back(command
                      ->add_option("--balance-bandwidth", options->balance_bandwidth,
                                   "Bytes that a rank sends in a second: what moving takes")
                      ->capture_default_str());
  added.push_back(command->add_flag("--balance-checksums", options->balance_checksums,
                                    "Check every record that moves"));
  added.push_back(command->add_option(
      "--balance-report", options->balance_report,
      "Write what balancing did, by look, layer and rank, to this file (JSON)"));
  for (CLI::Option* const option : added) option->needs("--balance");
}

Result<engine::Settings> rank_settings(const ModelOptions& options, const RankContext& context) {
  LODE_TRY(engine::Settings settings, settings_of(options));
  if (context.group == nullptr && !options.balance_report.empty()) {
    return Error{.code = Code::kUsage,
                 .thing = "--balance-report",
                 .wanted = "--ranks 2 or more, between which experts move",
                 .found = "1"};
  }
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
