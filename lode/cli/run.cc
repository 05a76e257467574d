#include <algorithm>
#include <cstdio>
#include <optional>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/program.h"
#include "lode/cli/prompt.h"
#include "lode/cli/text_file.h"

namespace lode::cli {
namespace {

// What the user typed goes before what the model's generation_config.json recommends.
struct RunOptions {
  PromptOptions prompt;
  std::uint32_t max_new_tokens = 256;
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::uint64_t seed = 0;
  bool greedy = false;
  bool ignore_end = false;
  std::vector<std::string> stops;
};

engine::SamplingParams sampling_of(const RunOptions& options,
                                   const checkpoint::GenerationConfig& model) {
  const auto recommended = [](const auto& value, auto neutral) {
    return value ? static_cast<decltype(neutral)>(*value) : neutral;
  };
  engine::SamplingParams params;
  params.temperature = options.temperature.value_or(recommended(model.temperature, 1.0F));
  params.top_k = options.top_k.value_or(recommended(model.top_k, 0));
  params.top_p = options.top_p.value_or(recommended(model.top_p, 1.0F));
  params.min_p = options.min_p.value_or(recommended(model.min_p, 0.0F));
  params.repetition_penalty =
      options.repetition_penalty.value_or(recommended(model.repetition_penalty, 1.0F));
  params.presence_penalty = options.presence_penalty;
  params.frequency_penalty = options.frequency_penalty;
  params.seed = options.seed;
  const bool model_is_greedy = model.do_sample == false && !options.temperature;
  if (options.greedy || model_is_greedy) params.temperature = 0;
  return params;
}

// Everything that can be wrong with the request is found before the weights are read.
Result<engine::Request> make_request(const engine::Source& source, const engine::RunPlan& plan,
                                     const RunOptions& options, std::string_view prompt) {
  engine::Request request;
  LODE_TRY(request.prompt_ids, prompt_ids(source, plan, prompt));
  request.max_new_tokens = options.max_new_tokens;
  request.sampling = sampling_of(options, source.generation);
  LODE_TRY_STATUS(engine::check_params(request.sampling, source.spec.vocab));
  request.stops = options.stops;
  if (!options.ignore_end) {
    LODE_TRY(request.end_ids, engine::end_ids_of(source));
  }
  return request;
}

// Prints a text as it comes, until that fails or Ctrl-C is pressed.
class Printer {
 public:
  explicit Printer(bool speaks) : speaks_(speaks) {}

  bool print(std::string_view piece) {
    if (speaks_ && status_) status_ = write_standard_output(piece);
    return status_.has_value() && !interrupted();
  }
  const Status& status() const { return status_; }

 private:
  bool speaks_;  // of several ranks one does
  Status status_;
};

double per_second(std::size_t count, std::uint64_t us) {
  return us == 0 ? 0.0 : static_cast<double>(count) * 1e6 / static_cast<double>(us);
}

Status run(const ModelOptions& model, const RunOptions& options, const RankContext& context) {
  LODE_TRY(const engine::Settings settings, rank_settings(model, context));
  std::string prompt;
  engine::Request request;
  const auto check = [&](const engine::Source& source, const engine::RunPlan& plan) -> Status {
    LODE_TRY(prompt, prompt_of(options.prompt, plan));
    LODE_TRY(request, make_request(source, plan, options, prompt));
    return {};
  };
  LODE_TRY(const LoadedModel loaded, load_model(model, settings, context, check));
  Printer printer(loaded.speaks);
  printer.print(prompt);
  LODE_TRY(const engine::Generation result,
           loaded.engine->generate(request,
                                   [&](std::string_view piece) { return printer.print(piece); }));
  LODE_TRY_STATUS(printer.status());
  printer.print("\n");
  LODE_TRY_STATUS(printer.status());
  if (loaded.speaks)
    write_standard_error(
        fmt::format("\nprompt {} tokens, {:.1f}/s; text {} tokens, {:.1f}/s; ended by {}\n",
                    request.prompt_ids.size(),
                    per_second(request.prompt_ids.size(), result.prompt_us), result.ids.size(),
                    per_second(result.ids.size(), result.decode_us), engine::name(result.finish)));
  LODE_TRY_STATUS(end_run(model, loaded));
  if (result.finish != engine::Finish::kCancelled) return {};
  return interrupted_run(context, "run");
}

void add_sampling_options(CLI::App* command, const std::shared_ptr<RunOptions>& options) {
  command->add_option("--temperature", options->temperature, "0 takes the likeliest token");
  command->add_option("--top-k", options->top_k, "Choose among the k likeliest");
  command->add_option("--top-p", options->top_p, "Choose among the likeliest that sum to p");
  command->add_option("--min-p", options->min_p,
                      "Drop what is less likely than p times the likeliest");
  command->add_option("--repetition-penalty", options->repetition_penalty, "Above 1: repeat less");
  command->add_option("--presence-penalty", options->presence_penalty, "Off each token used");
  command->add_option("--frequency-penalty", options->frequency_penalty, "Off each use of a token");
  command->add_option("--seed", options->seed, "The same seed gives the same text")
      ->capture_default_str();
  command->add_flag("--greedy", options->greedy, "The same as --temperature 0");
}

}  // namespace

void add_run(Program& program) {
  CLI::App* const command = add_command(
      program, "run", "Load a model inside the budget and continue a text",
      "  lode run DIR -p 'Once upon a time' -n 100\n"
      "  lode run DIR -p 'The king' --memory 12GiB --ctx 8192 --seed 7 --receipt receipt.json\n"
      "  lode run DIR --prompt-file story.txt --greedy --compute exact\n");
  const auto model = add_model_options(command);
  add_load_options(command, model);
  add_rank_options(command, model);
  add_balancing_options(command, model);
  const auto options = std::make_shared<RunOptions>();
  add_prompt_options(command, options->prompt, "Text to continue");
  command->add_option("-n,--max-new-tokens", options->max_new_tokens, "Stop after so many tokens")
      ->capture_default_str();
  command->add_option("--stop", options->stops, "Stop before this string; may be given again");
  command->add_flag("--ignore-end", options->ignore_end, "Go on after the model's end token");
  add_sampling_options(command, options);
  command->callback([&program, model, options] {
    program.chosen = [model, options] {
      return on_ranks(*model,
                      [&](const RankContext& context) { return run(*model, *options, context); });
    };
  });
}

}  // namespace lode::cli
