#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/run_plan.h"
#include "lode/engine/source.h"

namespace lode::cli {

/// A text as it was typed, or the file that has it.
struct PromptOptions {
  std::string text;
  std::string file;
};

/// Adds -p, --prompt and --prompt-file; `what` says what happens with the text.
void add_prompt_options(CLI::App* command, PromptOptions& options, const std::string& what);

/// The text. One that cannot fit the plan's context is not even read.
/// Errors: those of read_text_file; kUsage with the context for a file that is too large.
Result<std::string> prompt_of(const PromptOptions& options, const engine::RunPlan& plan);

/// Its tokens, which fit the context.
/// Errors: those of engine::tokenizer_of and engine::check_prompt.
Result<std::vector<std::int32_t>> prompt_ids(const engine::Source& source,
                                             const engine::RunPlan& plan, std::string_view prompt);

}  // namespace lode::cli
