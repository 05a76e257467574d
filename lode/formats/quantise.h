#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/formats/format.h"

namespace lode::formats {

/// Whose arithmetic a matrix is quantised with. The bytes differ between producers although the
/// storage is the same.
enum class Rule : std::uint8_t {
  kModeloptNvfp4,
  kModeloptW4a8Nvfp4Fp8,
  kModeloptFp8Tensor,
  kModeloptFp8Channel,
  kModeloptMxfp4,
  kModeloptMxfp8,
  kCtNvfp4,
  kCtMxfp4,
  kCtMxfp8,
  kCtFp8Tensor,
  kCtFp8Channel,
  kCtFp8Block,
  kCtInt8Channel,
  kTritonMxfp4RoundUp,
  kTritonMxfp4RoundDown,
  kTritonMxfp8RoundUp,
  kOcpMxfp4Floor,
  kQuarkMxfp4,
  kTransformersFp8Block,
  kTransformersFp8BlockUe8m0,
};

struct RuleInfo {
  Rule rule;
  std::string_view name;  // as in flags and golden files
  Encoding encoding;      // for fp32 weights; some write BF16 scales for BF16 weights
  bool scales_in_weight_format;
  std::string_view source;
};

/// Every rule, in the order of the enum.
std::span<const RuleInfo> rule_table() noexcept;
const RuleInfo& info(Rule rule) noexcept;
std::optional<Rule> rule_by_name(std::string_view name) noexcept;

/// A float matrix and how to quantise it.
///
/// Shapes: values [rows, k]. A matrix may be handed over in slices of rows (whole blocks of them)
///         if `amax` is that of the whole.
struct QuantiseInput {
  Rule rule = Rule::kModeloptNvfp4;
  std::span<const float> values;
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
  Format weights = Format::kF32;  // or kBf16: then values hold BF16 numbers and roundings differ
  std::optional<float> amax{};    // of everything that shares the scale of the matrix
};

/// What `dequantise_row` undoes.
struct Quantised {
  Encoding encoding;
  std::vector<std::byte> codes{};
  std::vector<std::byte> scales{};
  float tensor_scale = 1.0F;
};

/// The largest magnitude; infinity where a value is not finite. 0 of nothing.
///
/// Shapes: values [n].
float largest_magnitude(std::span<const float> values) noexcept;

/// Quantises one matrix, byte for byte as the producer does on the CPU.
///
/// Memory: codes and scales of the result, nothing else.
/// Errors: kUnsupported for weights other than fp32 and BF16, or k that FP4 blocks do not divide;
///         kInvalidSource for NaN and infinities, or values that are not rows x k.
/// Source: tests/golden/quantisers, made by the producers' own code; each rule names its file.
Result<Quantised> quantise(const QuantiseInput& input);

}  // namespace lode::formats
