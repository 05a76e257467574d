#include "lode/cli/balance_apply.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/balance_inputs.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/prompt.h"
#include "lode/cli/text_file.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

struct ApplyOptions {
  std::string maps;
  std::string step = "256MiB";
  PromptOptions prompt;
  std::uint32_t max_new_tokens = 64;
  bool json = false;

  bool has_prompt() const { return !prompt.text.empty() || !prompt.file.empty(); }
};

Status check_ranks(const RankContext& context) {
  if (context.group != nullptr) return {};
  return Error{.code = Code::kUsage,
               .thing = "--ranks",
               .wanted = "at least 2, between which experts move",
               .found = "1"};
}

// Nothing is decided here: experts go where the maps say, each record with its sum.
engine::BalanceSettings moves_alone(std::uint64_t step_bytes) {
  return {.policy = placement::Policy::kIdentity,
          .interval_passes = std::numeric_limits<std::int64_t>::max() / 2,
          .step_bytes = step_bytes,
          .checksums = true};
}

// Text is made while experts move, where there is a prompt. False where it was told to stop.
Result<bool> run_beside(const LoadedModel& loaded, const engine::Request& request,
                        std::string_view prompt) {
  if (request.prompt_ids.empty()) return true;
  if (loaded.speaks) LODE_TRY_STATUS(write_standard_output(prompt));
  LODE_TRY(const engine::Generation result,
           loaded.engine->generate(request, [&](std::string_view piece) {
             return (!loaded.speaks || write_standard_output(piece)) && !interrupted();
           }));
  if (loaded.speaks) LODE_TRY_STATUS(write_standard_output("\n"));
  return result.finish != engine::Finish::kCancelled;
}

// Whether maps can be had is known before a weight is read.
Status check_maps(const engine::RunPlan& plan, std::span<const placement::ExpertMap> maps) {
  if (maps.size() != plan.maps.size()) {
    return Error{.code = Code::kUsage,
                 .thing = "maps to apply",
                 .wanted = fmt::format("those of {} layers", plan.maps.size()),
                 .found = fmt::format("those of {}", maps.size())};
  }
  for (std::size_t layer = 0; layer < maps.size(); ++layer)
    LODE_TRY_STATUS(eplb::check_target(layer, plan.maps[layer], maps[layer]));
  return {};
}

// Of the rank that received most, while it did nothing else.
double bytes_per_second(const engine::BalanceLog& log) {
  double most = 0;
  for (const engine::BalanceFigures& rank : log.rank_figures) {
    if (rank.balancing_ns == 0) continue;
    most = std::max(most, static_cast<double>(rank.received_bytes) * 1e9 /
                              static_cast<double>(rank.balancing_ns));
  }
  return most;
}

Status print(const engine::BalanceLog& log, const ApplyOptions& options) {
  if (options.json) return write_standard_output(json::dump(as_json(log), 2) + "\n");
  std::string text = fmt::format("{} layers moved, ", log.layers_moved);
  text += log.received_bytes() == 0
              ? "nothing between ranks\n"
              : fmt::format("{} between ranks, every record's sum was right\n",
                            human_bytes(log.received_bytes()));
  if (!options.has_prompt() && log.received_bytes() > 0) {
    text +=
        fmt::format("{:.0f} MB/s to a rank: what --balance-bandwidth of `lode run` can be told\n",
                    bytes_per_second(log) / 1e6);
  }
  return write_standard_output(text);
}

Status apply(const ModelOptions& model, const ApplyOptions& options, const RankContext& context) {
  LODE_TRY_STATUS(check_ranks(context));
  LODE_TRY(std::vector<placement::ExpertMap> maps, read_maps_file(options.maps, kMaxMapBytes));
  LODE_TRY(engine::Settings settings, rank_settings(model, context));
  LODE_TRY(const std::uint64_t step_bytes, bytes_of("--step", options.step));
  settings.ranks.balance = moves_alone(step_bytes);
  std::string prompt;
  engine::Request request;
  request.max_new_tokens = options.max_new_tokens;
  request.sampling.temperature = 0;
  const auto check = [&](const engine::Source& source, const engine::RunPlan& plan) -> Status {
    LODE_TRY_STATUS(check_maps(plan, maps));
    if (!options.has_prompt()) return {};
    LODE_TRY(prompt, prompt_of(options.prompt, plan));
    LODE_TRY(request.prompt_ids, prompt_ids(source, plan, prompt));
    return {};
  };
  LODE_TRY(const LoadedModel loaded, load_model(model, settings, context, check));
  engine::Balancer& balancer = *loaded.engine->balancer();
  LODE_TRY_STATUS(balancer.adopt(std::move(maps)));
  LODE_TRY(const bool goes_on, run_beside(loaded, request, prompt));
  if (!goes_on) return interrupted_run(context, "balance apply");
  LODE_TRY_STATUS(balancer.settle([] { return !interrupted(); }));
  LODE_TRY(const engine::BalanceLog log, balancer.finish());
  return end_run(model, loaded, [&] { return print(log, options); });
}

}  // namespace

void add_balance_apply(Program& program, CLI::App* balance) {
  CLI::App* const command = add_below(
      balance, "apply",
      "Load a model over ranks and move its experts to where maps want them, in place, bounded in "
      "bytes, each record checked: what `lode run --balance` does, for maps of your own",
      "  lode balance apply DIR maps.json --ranks 4\n"
      "  lode balance apply DIR maps.json --ranks 4 --expert-map current.json --step 64MiB\n"
      "  lode balance apply DIR maps.json --ranks 2 -p Once -n 100\n");
  const auto model = add_model_options(command);
  const auto options = std::make_shared<ApplyOptions>();
  command->add_option("MAPS", options->maps, "Maps of all layers (JSON): see docs/balancing.md")
      ->required();
  add_load_options(command, model);
  add_rank_options(command, model);
  command
      ->add_option("--step", options->step,
                   "The most bytes that a rank receives at once, which it needs room for")
      ->capture_default_str();
  add_prompt_options(command, options->prompt, "Continue this text while experts move");
  command->add_option("-n,--max-new-tokens", options->max_new_tokens, "Of that text")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print what was done by layer and rank as JSON")
      ->excludes("--prompt")
      ->excludes("--prompt-file");
  command->callback([&program, model, options] {
    program.chosen = [model, options] {
      return on_ranks(*model,
                      [&](const RankContext& context) { return apply(*model, *options, context); });
    };
  });
}

}  // namespace lode::cli
