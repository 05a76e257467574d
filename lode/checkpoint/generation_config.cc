#include "lode/checkpoint/generation_config.h"

#include <algorithm>

#include "lode/checkpoint/input_file.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} * 1024 * 1024;

Status read_int(const HfConfig& file, std::string_view key, std::optional<std::int64_t>& out) {
  if (!file.has({key})) return {};
  LODE_TRY(out, file.get_int({key}));
  return {};
}

Status read_float(const HfConfig& file, std::string_view key, std::optional<double>& out) {
  if (!file.has({key})) return {};
  LODE_TRY(out, file.get_float({key}));
  return {};
}

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view text) {
  LODE_TRY(const HfConfig file, HfConfig::parse(text));
  GenerationConfig config;
  LODE_TRY(config.eos_token_ids, file.get_ints({"eos_token_id"}));
  LODE_TRY(config.suppress_tokens, file.get_ints({"suppress_tokens"}));
  LODE_TRY_STATUS(read_int(file, "bos_token_id", config.bos_token_id));
  LODE_TRY_STATUS(read_int(file, "pad_token_id", config.pad_token_id));
  LODE_TRY_STATUS(read_int(file, "top_k", config.top_k));
  LODE_TRY_STATUS(read_float(file, "temperature", config.temperature));
  LODE_TRY_STATUS(read_float(file, "top_p", config.top_p));
  LODE_TRY_STATUS(read_float(file, "min_p", config.min_p));
  LODE_TRY_STATUS(read_float(file, "repetition_penalty", config.repetition_penalty));
  if (file.has({"do_sample"})) {
    LODE_TRY(config.do_sample, file.get_bool({"do_sample"}, false));
  }
  return config;
}

Result<GenerationConfig> read_generation_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "generation_config.json";
  LODE_TRY(const std::optional<std::string> text, read_small_file(path, kMaxBytes));
  if (!text) return GenerationConfig();
  Result<GenerationConfig> config = parse_generation_config(*text);
  if (!config) return at(printable(path.string()), std::move(config).error());
  return config;
}

Result<std::vector<std::int64_t>> stop_ids(const GenerationConfig& generation,
                                           const HfConfig& config,
                                           std::optional<std::int64_t> tokenizer_eos) {
  std::vector<std::int64_t> ids = generation.eos_token_ids;
  if (ids.empty()) {
    LODE_TRY(ids, config.get_ints({"eos_token_id"}));
  }
  if (tokenizer_eos) ids.push_back(*tokenizer_eos);
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace lode::checkpoint
