#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/hf_config.h"
#include "lode/checkpoint/module_set.h"

namespace lode::checkpoint {

/// Who wrote the quantisation settings; each spells them in its own way.
enum class Dialect : std::uint8_t {
  kNone,
  kMxfp4,
  kModelOpt,
  kCompressedTensors,
  kFp8,
  kFbgemmFp8,
  kQuark,
};

struct DialectInfo {
  Dialect dialect;
  std::string_view quant_method;  // as in quantization_config
  std::string_view exclude_keys;  // where it lists what is left alone, comma separated
  Cover cover;                    // what an entry stands for
};

/// One row a dialect, in the order of the enum.
std::span<const DialectInfo> dialect_table() noexcept;
const DialectInfo& info(Dialect dialect) noexcept;

/// Settings of one group of modules, as far as they were stated.
struct QuantRule {
  std::string name;       // "group_0"
  std::string algorithm;  // "NVFP4", "float-quantized", ... as written
  ModuleSet targets;      // empty: every linear
  std::optional<std::int64_t> bits;
  std::optional<std::int64_t> group_size;
  std::string strategy;  // "tensor", "channel", "group", "block", ...
};

/// What the files say about quantisation. Only a hint: how a matrix is stored is decided by its
/// tensors (detect_linear); this is for block sizes and for finding contradictions.
struct QuantConfig {
  Dialect dialect = Dialect::kNone;
  std::string algorithm;                         // quant_algo or format, as written
  std::string kv_cache;                          // "" or as written
  std::array<std::uint32_t, 2> block{128, 128};  // rows, columns under one scale of block FP8
  bool block_stated = false;
  std::vector<QuantRule> rules;
  ModuleSet excluded;
  /// Settings by module (or a parent of it), where each has its own.
  std::map<std::string, QuantRule, std::less<>> by_module;
  bool only_named = false;         // what neither a rule nor by_module names is not quantised
  std::vector<std::string> notes;  // what we could not make use of

  /// Whether the settings say that this module ("model.layers.0.mlp.gate") is not quantised. Both
  /// spellings count, with and without "model." and "language_model.".
  bool is_excluded(std::string_view module) const;

  /// The rule for this module, or null.
  const QuantRule* rule_of(std::string_view module) const;
};

/// Reads `quantization_config` (or `compression_config`) of config.json, and the `quantization`
/// part of hf_quant_config.json; either may be null. Where both are there, what the first leaves
/// open the second fills.
///
/// Errors: kUnsupported naming a dialect that we do not know; kInvalidSource naming the JSON path
/// of a value of the wrong kind.
Result<QuantConfig> parse_quant_config(const json::Value* in_config, const json::Value* beside);

/// The same for a folder whose config.json has been read.
///
/// Errors: as parse_quant_config; kIo.
Result<QuantConfig> read_quant_config(const std::filesystem::path& folder, const HfConfig& config);

}  // namespace lode::checkpoint
