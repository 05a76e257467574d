#include <array>
#include <string>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/targets/marlin.h"
#include "lode/targets/routes.h"

namespace lode::targets {
namespace {

Result<std::unique_ptr<Preparer>> make_route(const ExpertsShape& shape, const Options& options) {
  LODE_TRY(const MarlinExperts experts, marlin_experts(shape, options.fp8_activations));
  return make_marlin_preparer(experts);
}

bool takes_nvfp4(const formats::Encoding& encoding) {
  return encoding == formats::kNvfp4 || encoding == formats::kNvfp4Divisor;
}
bool takes_mxfp4(const formats::Encoding& encoding) { return encoding == formats::kMxfp4; }
bool takes_mxfp8(const formats::Encoding& encoding) { return encoding == formats::kMxfp8; }
bool takes_fp8(const formats::Encoding& encoding, bool blocks, bool rows) {
  const auto rule = marlin_scale_rule(encoding);
  if (!rule || *rule != MarlinScaleRule::kFp8) return false;
  return (encoding.block_k != formats::kWhole) == blocks &&
         (encoding.block_rows != formats::kWhole) == rows;
}
bool takes_fp8_tensor(const formats::Encoding& encoding) {
  return takes_fp8(encoding, false, false);
}
bool takes_fp8_channel(const formats::Encoding& encoding) {
  return takes_fp8(encoding, false, true);
}
bool takes_fp8_block(const formats::Encoding& encoding) { return takes_fp8(encoding, true, true); }

constexpr std::string_view kWeights4 = "Marlin tiles of 4-bit codes, [gate; up], int32";
constexpr std::string_view kWeights8 = "Marlin tiles of 8-bit codes, [gate; up], int32";
constexpr std::array<Route, 6> kRoutes{{
    {Target::kMarlin, "nvfp4", kWeights4, "S0E5M3, groups first, one fp32 for each expert",
     takes_nvfp4, make_route},
    {Target::kMarlin,
     "mxfp4",
     kWeights4,
     "E8M0, groups first",
     takes_mxfp4,
     make_route,
     {.fp8_activations = true}},
    {Target::kMarlin, "fp8-tensor", kWeights8, "one a row, in the activations' format",
     takes_fp8_tensor, make_route},
    {Target::kMarlin, "fp8-channel", kWeights8, "one a row, in the activations' format",
     takes_fp8_channel, make_route},
    {Target::kMarlin, "fp8-block", kWeights8, "one a row and group, in the activations' format",
     takes_fp8_block, make_route},
    {Target::kMarlin, "mxfp8", kWeights8, "E8M0, groups first", takes_mxfp8, make_route},
}};

}  // namespace

Result<MarlinExperts> marlin_experts(const ExpertsShape& shape, bool narrow_activations) {
  LODE_TRY(const MarlinScaleRule rule, marlin_scale_rule(shape.encoding));
  MarlinExperts experts{shape, shape.hidden, shape.intermediate, narrow_activations};
  constexpr std::uint64_t kMost = std::uint64_t{1} << 32;
  if (shape.hidden % 64 != 0 && shape.encoding != formats::kMxfp4) {
    return Error{.code = Code::kUnsupported,
                 .thing = "hidden size of experts for Marlin kernels",
                 .wanted = "a multiple of 64",
                 .found = std::to_string(shape.hidden)};
  }
  if (shape.hidden == 0 || shape.intermediate == 0 || shape.hidden > kMost ||
      shape.intermediate > kMost) {
    return Error{
        .code = Code::kUnsupported,
        .thing = "sizes of experts for Marlin kernels",
        .wanted = "sizes of matrices",
        .found = fmt::format("hidden {}, intermediate {}", shape.hidden, shape.intermediate)};
  }
  if (rule == MarlinScaleRule::kNvfp4) {
    const std::uint64_t unit = shape.hidden % 128 == 0 ? 64 : 128;
    experts.padded_intermediate = align_up(shape.intermediate, unit);
  } else if (shape.encoding == formats::kMxfp4) {
    experts.padded_hidden = align_up(shape.hidden, std::uint64_t{256});
    experts.padded_intermediate = align_up(shape.intermediate, std::uint64_t{128});
  } else {
    LODE_TRY(experts.padded_intermediate,
             layout::marlin_padded_intermediate(shape.intermediate, shape.encoding.block_k));
  }
  return experts;
}

std::span<const Route> marlin_routes() noexcept { return kRoutes; }

}  // namespace lode::targets
