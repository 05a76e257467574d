#include "lode/engine/perplexity.h"

#include <unistd.h>

#include <cstdio>

#include "lode/base/fmt.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/program.h"
#include "lode/cli/text_file.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

constexpr std::uint32_t kLogitsRows = 64;

struct PerplexityOptions {
  std::string file;
  std::uint32_t stride_tokens = 0;
  std::string begin_with;
  bool json = false;
};

Result<std::vector<std::int32_t>> read_ids(const text::Tokenizer& tokenizer,
                                           const PerplexityOptions& options) {
  LODE_TRY(const std::string text, read_text_file(options.file));
  std::vector<std::int32_t> ids = tokenizer.encode(text, {.add_special_tokens = false});
  if (options.begin_with.empty()) return ids;
  const auto first = tokenizer.token_to_id(options.begin_with);
  if (!first) {
    return Error{.code = Code::kUsage,
                 .thing = "--begin-with",
                 .wanted = "a token of the vocabulary",
                 .found = fmt::format("\"{}\"", options.begin_with)};
  }
  ids.insert(ids.begin(), *first);
  return ids;
}

engine::PerplexityShape shape_of(const engine::RunPlan& plan, const PerplexityOptions& options) {
  const std::uint32_t window = plan.context_tokens;
  return {window, options.stride_tokens == 0 ? window : options.stride_tokens};
}

bool show(std::uint64_t done, std::uint64_t windows) {
  if (isatty(STDERR_FILENO) != 0) {
    const auto bars = static_cast<int>(done * 40 / windows);
    write_standard_error(fmt::format("\r[{:<40}] {}/{} windows",
                                     std::string(static_cast<std::size_t>(bars), '='), done,
                                     windows));
    if (done == windows) write_standard_error("\r\x1b[K");
  }
  return !interrupted();
}

void print(const engine::Perplexity& result, const engine::PerplexityShape& shape, bool json) {
  if (json) {
    fmt::print("{}\n",
               json::dump(json::object({{"scored_tokens", result.scored_tokens},
                                        {"mean_nll", result.mean_nll},
                                        {"perplexity", result.perplexity},
                                        {"window_tokens", std::int64_t{shape.window_tokens}},
                                        {"stride_tokens", std::int64_t{shape.stride_tokens}}}),
                          2));
    return;
  }
  fmt::print("perplexity {:.4f}  (mean nll {:.6f} over {} tokens; windows of {}, stride {})\n",
             result.perplexity, result.mean_nll, result.scored_tokens, shape.window_tokens,
             shape.stride_tokens);
}

Status perplexity(const ModelOptions& model, const PerplexityOptions& options) {
  LODE_TRY(engine::Settings settings, settings_of(model));
  settings.logits_rows = kLogitsRows;
  std::vector<std::int32_t> ids;
  const auto check = [&](const engine::Source& source, const engine::RunPlan& plan) -> Status {
    LODE_TRY(const text::Tokenizer* tokenizer, engine::tokenizer_of(source));
    LODE_TRY(ids, read_ids(*tokenizer, options));
    return engine::check_windows(shape_of(plan, options), plan.context_tokens, ids.size());
  };
  LODE_TRY(const LoadedModel loaded, load_model(model, settings, RankContext{}, check));
  const engine::PerplexityShape shape = shape_of(loaded.plan, options);
  LODE_TRY(const engine::Perplexity result,
           engine::measure_perplexity(loaded.engine->model(), loaded.engine->cache(), ids, shape,
                                      loaded.engine->logits(), show));
  print(result, shape, options.json);
  return end_run(model, loaded);
}

}  // namespace

void add_perplexity(Program& program) {
  CLI::App* const command = add_command(
      program, "perplexity",
      "exp of the mean negative log likelihood of a text. Windows of --ctx tokens, each from an "
      "empty "
      "cache, begin every --stride tokens and score the tokens that no window before has scored; "
      "only "
      "whole windows count.",
      "  lode perplexity DIR --file book.txt --ctx 256 --begin-with '<|endoftext|>'\n"
      "  lode perplexity DIR --file book.txt --ctx 2048 --stride 512 --compute exact --json\n");
  const auto model = add_model_options(command);
  add_load_options(command, model);
  const auto options = std::make_shared<PerplexityOptions>();
  command->add_option("--file", options->file, "The text")->required();
  command->add_option("--stride", options->stride_tokens, "Tokens between windows; default: --ctx");
  command->add_option("--begin-with", options->begin_with, "A token to put before the text");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([&program, model, options] {
    program.chosen = [model, options] { return perplexity(*model, *options); };
  });
}

}  // namespace lode::cli
