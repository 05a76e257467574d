#include "lode/targets/deepgemm.h"

#include <array>

#include "lode/base/fmt.h"
#include "lode/targets/routes.h"

namespace lode::targets {
namespace {

bool is_fp8_block(const formats::Encoding& encoding) {
  using formats::Format;
  const Format scale = encoding.scale;
  return encoding.element == Format::kE4m3 && encoding.has_scale && encoding.block_rows == 128 &&
         encoding.block_k == 128 && encoding.tensor_scale == formats::TensorScale::kNone &&
         (scale == Format::kF32 || scale == Format::kBf16 || scale == Format::kE8m0);
}

bool is_mxfp4(const formats::Encoding& encoding) { return encoding == formats::kMxfp4; }

constexpr std::array<Route, 2> kRoutes{{
    {Target::kDeepgemm, "fp8-block", "requantised to scales that are powers of two",
     "exponents, MN-major words of four", is_fp8_block, make_deepgemm_fp8},
    {Target::kDeepgemm, "mxfp4", "as they are, padded to 128", "exponents, MN-major words of four",
     is_mxfp4, make_deepgemm_mxfp4},
}};

}  // namespace

std::span<const Route> deepgemm_routes() noexcept { return kRoutes; }

DeepgemmLayout deepgemm_layout(const ExpertsShape& padded,
                               const formats::Encoding& blocks) noexcept {
  const auto order =
      padded.rows_in_turn ? layout::GateUpOrder::kGateUpInTurn : layout::GateUpOrder::kGateThenUp;
  const auto scales = [&](const layout::RowOrder& rows, std::uint64_t k) {
    return layout::DeepgemmScales{rows.rows(), formats::scale_columns(blocks, k),
                                  blocks.block_rows};
  };
  DeepgemmLayout made{.gate_up = {padded.num_halves(), padded.intermediate, order},
                      .down = {1, padded.hidden},
                      .gate_up_scales = {},
                      .down_scales = {}};
  made.gate_up_scales = scales(made.gate_up, padded.hidden);
  made.down_scales = scales(made.down, padded.intermediate);
  return made;
}

std::uint64_t position_of(const DeepgemmLayout& layout, Matrix matrix, std::uint64_t row) noexcept {
  if (matrix == Matrix::kDown) return row;
  return layout.gate_up.position_of({matrix == Matrix::kUp ? 1U : 0U, row});
}

Status check_deepgemm_sizes(const ExpertsShape& shape, std::uint64_t multiple) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24;
  const std::array<std::uint64_t, 2> sizes{shape.hidden, shape.intermediate};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0 && sizes[i] <= kMost && sizes[i] % multiple == 0) continue;
    return Error{.code = Code::kUnsupported,
                 .thing = fmt::format("{} size of experts for target deepgemm",
                                      i == 0 ? "hidden" : "intermediate"),
                 .wanted = fmt::format("a multiple of {}, at most 2^24", multiple),
                 .found = fmt::format("{}", sizes[i])};
  }
  return {};
}

}  // namespace lode::targets
