#include "lode/cli/prompt.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/text_file.h"
#include "lode/engine/generate.h"

namespace lode::cli {
namespace {

// A text lies outside the ledger. What cannot fit the context is therefore not even read, unless
// it is small: tokens of a text have 4 or 5 bytes on average, never 64.
constexpr std::size_t kAnyPromptBytes = kMiB;
constexpr std::size_t kPromptBytesAToken = 64;

}  // namespace

void add_prompt_options(CLI::App* command, PromptOptions& options, const std::string& what) {
  CLI::Option* const prompt = command->add_option("-p,--prompt", options.text, what);
  command->add_option("--prompt-file", options.file, "Read the text from this file")
      ->excludes(prompt);
}

Result<std::string> prompt_of(const PromptOptions& options, const engine::RunPlan& plan) {
  if (options.file.empty()) return options.text;
  Result<std::string> prompt = read_text_file(
      options.file, std::max(kAnyPromptBytes, plan.context_tokens * kPromptBytesAToken));
  if (prompt || prompt.error().code != Code::kUsage) return prompt;
  Error error = std::move(prompt).error();
  error.where = fmt::format("{} tokens of context", plan.context_tokens);
  error.hint = "--ctx makes the context longer";
  return error;
}

Result<std::vector<std::int32_t>> prompt_ids(const engine::Source& source,
                                             const engine::RunPlan& plan, std::string_view prompt) {
  LODE_TRY(const text::Tokenizer* tokenizer, engine::tokenizer_of(source));
  std::vector<std::int32_t> ids = tokenizer->encode(prompt, {.add_special_tokens = true});
  LODE_TRY_STATUS(engine::check_prompt(ids, plan.context_tokens, source.spec.vocab));
  return ids;
}

}  // namespace lode::cli
