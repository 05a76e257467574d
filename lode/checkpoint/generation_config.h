#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/hf_config.h"

namespace lode::checkpoint {

/// generation_config.json: what the maker of the model recommends. Explicit wishes of the user go
/// before it.
struct GenerationConfig {
  std::vector<std::int64_t> eos_token_ids;
  std::optional<std::int64_t> bos_token_id;
  std::optional<std::int64_t> pad_token_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::vector<std::int64_t> suppress_tokens;
};

/// Errors: kInvalidSource naming the JSON path of a value of the wrong kind.
Result<GenerationConfig> parse_generation_config(std::string_view text);

/// Reads `folder`/generation_config.json; a folder without one is fine.
///
/// Errors: as parse_generation_config; kIo.
Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder);

/// The ids that end a text: the list of generation_config, or else of config.json, and the
/// tokenizer's own end token if it has one; ascending, each once.
///
/// Errors: kInvalidSource where eos_token_id of config.json is no id and no list of ids.
Result<std::vector<std::int64_t>> stop_ids(const GenerationConfig& generation,
                                           const HfConfig& config,
                                           std::optional<std::int64_t> tokenizer_eos);

}  // namespace lode::checkpoint
