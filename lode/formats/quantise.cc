#include "lode/formats/quantise.h"

#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "lode/formats/dequantise.h"
#include "lode/formats/quantise_parts.h"

namespace lode::formats {
namespace {

constexpr Encoding kW4a8{Format::kE2m1, Format::kE4m3, 1, 32, true, TensorScale::kMultiplier};
constexpr Encoding kInt8Channel{Format::kI8, Format::kF32, 1, kWhole, true};
constexpr Encoding kFp8BlockUe8m0{Format::kE4m3, Format::kE8m0, 128, 128, true};

constexpr std::string_view kModelopt = "Model-Optimizer: modelopt/torch/quantization/qtensor/";
constexpr std::string_view kCt = "compressed-tensors: src/compressed_tensors/compressors/";
constexpr std::string_view kTriton = "triton_kernels: numerics_details/mxfp.py";
constexpr std::string_view kOcp = "OCP Microscaling Formats 1.0, 6.3";
constexpr std::string_view kQuark = "Quark: MXFP4 with scale_calculation_mode even";
constexpr std::string_view kHf = "transformers: integrations/finegrained_fp8.py";

constexpr std::array<RuleInfo, 20> kRules{{
    {Rule::kModeloptNvfp4, "modelopt_nvfp4", kNvfp4, false, kModelopt},
    {Rule::kModeloptW4a8Nvfp4Fp8, "modelopt_w4a8_nvfp4", kW4a8, false, kModelopt},
    {Rule::kModeloptFp8Tensor, "modelopt_fp8_tensor", kFp8Tensor, false, kModelopt},
    {Rule::kModeloptFp8Channel, "modelopt_fp8_channel", kFp8Channel, false, kModelopt},
    {Rule::kModeloptMxfp4, "modelopt_mxfp4", kMxfp4, false, kModelopt},
    {Rule::kModeloptMxfp8, "modelopt_mxfp8", kMxfp8, false, kModelopt},
    {Rule::kCtNvfp4, "ct_nvfp4", kNvfp4Divisor, false, kCt},
    {Rule::kCtMxfp4, "ct_mxfp4", kMxfp4, false, kCt},
    {Rule::kCtMxfp8, "ct_mxfp8", kMxfp8, false, kCt},
    {Rule::kCtFp8Tensor, "ct_fp8_tensor", kFp8Tensor, true, kCt},
    {Rule::kCtFp8Channel, "ct_fp8_channel", kFp8Channel, true, kCt},
    {Rule::kCtFp8Block, "ct_fp8_block", kFp8Block128, true, kCt},
    {Rule::kCtInt8Channel, "ct_int8_channel", kInt8Channel, true, kCt},
    {Rule::kTritonMxfp4RoundUp, "triton_mxfp4_round_up", kMxfp4, false, kTriton},
    {Rule::kTritonMxfp4RoundDown, "triton_mxfp4_round_down", kMxfp4, false, kTriton},
    {Rule::kTritonMxfp8RoundUp, "triton_mxfp8_round_up", kMxfp8, false, kTriton},
    {Rule::kOcpMxfp4Floor, "ocp_mxfp4_floor", kMxfp4, false, kOcp},
    {Rule::kQuarkMxfp4, "quark_mxfp4", kMxfp4, false, kQuark},
    {Rule::kTransformersFp8Block, "transformers_fp8_block", kFp8Block128, false, kHf},
    {Rule::kTransformersFp8BlockUe8m0, "transformers_fp8_block_ue8m0", kFp8BlockUe8m0, false, kHf},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRules.size(); ++i) {
    if (static_cast<std::size_t>(kRules[i].rule) != i) return false;
  }
  return true;
}
static_assert(in_order(), "rule_table() is indexed by the enum");

Status check_input(const QuantiseInput& input) {
  if (input.weights != Format::kF32 && input.weights != Format::kBf16) {
    return Error{.code = Code::kUnsupported,
                 .thing = "weights to quantise",
                 .wanted = "f32 or bf16",
                 .found = std::string(info(input.weights).name)};
  }
  const Encoding& encoding = info(input.rule).encoding;
  const bool divides = encoding.block_k == kWhole || input.k % encoding.block_k == 0;
  if (encoding.block_rows == 1 && !divides) {
    return Error{.code = Code::kUnsupported,
                 .thing = "row length under " + std::string(info(input.rule).name),
                 .wanted = "a multiple of " + std::to_string(encoding.block_k),
                 .found = std::to_string(input.k)};
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  const bool sane = input.rows <= kMost && input.k <= kMost;
  if (!sane || input.values.size() != input.rows * input.k) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "values to quantise",
                 .wanted = std::to_string(input.rows) + " x " + std::to_string(input.k),
                 .found = std::to_string(input.values.size())};
  }
  return {};
}

Status check_amax(float amax) {
  if (std::isfinite(amax) && amax >= 0.0F) return {};
  return Error{.code = Code::kInvalidSource,
               .thing = "values to quantise",
               .wanted = "finite numbers",
               .found = "an infinity or NaN"};
}

}  // namespace

std::span<const RuleInfo> rule_table() noexcept { return kRules; }

const RuleInfo& info(Rule rule) noexcept { return kRules[static_cast<std::size_t>(rule)]; }

std::optional<Rule> rule_by_name(std::string_view name) noexcept {
  const auto row = std::ranges::find(kRules, name, &RuleInfo::name);
  if (row == kRules.end()) return std::nullopt;
  return row->rule;
}

float largest_magnitude(std::span<const float> values) noexcept {
  // Magnitudes order like their bits, and NaN lies above infinity.
  std::uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
  }
  return std::bit_cast<float>(std::min(largest, 0x7F800000U));
}

Result<Quantised> quantise(const QuantiseInput& input) {
  LODE_TRY_STATUS(check_input(input));
  LODE_TRY_STATUS(check_amax(largest_magnitude(input.values)));
  QuantiseInput whole = input;
  if (!whole.amax) whole.amax = largest_magnitude(input.values);
  LODE_TRY_STATUS(check_amax(*whole.amax));

  Quantised out{.encoding = info(input.rule).encoding};
  if (info(input.rule).scales_in_weight_format) out.encoding.scale = input.weights;
  out.codes.resize(input.rows * row_bytes(out.encoding, input.k));
  out.scales.resize(scales_bytes(out.encoding, input.rows, input.k));
  if (out.encoding.tensor_scale != TensorScale::kNone) {
    quantise_nvfp4(whole, out);
  } else if (out.encoding.scale == Format::kE8m0 && out.encoding.block_rows == 1) {
    quantise_mx(whole, out);
  } else {
    quantise_fp8(whole, out);
  }
  return out;
}

}  // namespace lode::formats
