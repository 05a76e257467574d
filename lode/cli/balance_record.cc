#include "lode/cli/balance_record.h"

#include <memory>

#include "lode/base/fmt.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/prompt.h"
#include "lode/cli/text_file.h"
#include "lode/engine/load_recorder.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

struct RecordOptions {
  PromptOptions prompt;
  std::uint32_t max_new_tokens = 64;
  std::string out;
};

Result<engine::Request> request_of(const engine::Source& source, const engine::RunPlan& plan,
                                   const RecordOptions& options) {
  LODE_TRY(const std::string prompt, prompt_of(options.prompt, plan));
  engine::Request request;
  LODE_TRY(request.prompt_ids, prompt_ids(source, plan, prompt));
  request.max_new_tokens = options.max_new_tokens;
  request.sampling.temperature = 0;
  return request;
}

Status record(const ModelOptions& model, const RecordOptions& options, const RankContext& context) {
  if (context.speaks()) LODE_TRY_STATUS(check_writable(options.out));
  LODE_TRY(const engine::Settings settings, rank_settings(model, context));
  engine::Request request;
  const auto check = [&](const engine::Source& source, const engine::RunPlan& plan) -> Status {
    LODE_TRY(request, request_of(source, plan, options));
    return {};
  };
  LODE_TRY(const LoadedModel loaded, load_model(model, settings, context, check));
  engine::LoadRecorder recorder(loaded.engine->source().spec);
  LODE_TRY(const engine::Generation result,
           loaded.engine->generate(
               request, [](std::string_view) { return !interrupted(); }, &recorder));
  const auto tell = [&]() -> Status {
    const engine::BalanceLoads loads = recorder.loads();
    LODE_TRY_STATUS(write_text_file(options.out, json::dump(engine::as_json(loads)) + "\n"));
    write_standard_error(fmt::format("{} tokens in {} passes, {} layers of {} experts: {}\n",
                                     request.prompt_ids.size() + result.ids.size(),
                                     static_cast<std::uint64_t>(loads.steps), loads.layers,
                                     loads.experts, options.out));
    return {};
  };
  LODE_TRY_STATUS(end_run(model, loaded, tell));
  if (result.finish != engine::Finish::kCancelled) return {};
  return interrupted_run(context, "balance record");
}

}  // namespace

void add_balance_record(Program& program, CLI::App* balance) {
  CLI::App* const command =
      add_below(balance, "record",
                "Run a text and count which experts the routers choose: JSON for `balance plan`",
                "  lode balance record DIR --prompt-file corpus.txt -n 0 --out loads.json\n"
                "  lode balance plan loads.json --ranks 4 --out maps.json\n"
                "  lode run DIR -p Once --ranks 4 --expert-map maps.json\n");
  const auto model = add_model_options(command);
  add_load_options(command, model);
  add_rank_options(command, model);
  const auto options = std::make_shared<RecordOptions>();
  add_prompt_options(command, options->prompt, "Text to run");
  command->add_option("-n,--max-new-tokens", options->max_new_tokens, "Go on for so many tokens")
      ->capture_default_str();
  command->add_option("--out", options->out, "JSON file for the counts")->required();
  command->callback([&program, model, options] {
    program.chosen = [model, options] {
      return on_ranks(
          *model, [&](const RankContext& context) { return record(*model, *options, context); });
    };
  });
}

}  // namespace lode::cli
