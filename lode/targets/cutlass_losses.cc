#include "lode/targets/cutlass_losses.h"

#include <array>
#include <cmath>

#include "lode/formats/dequantise.h"
#include "lode/formats/e4m3.h"
#include "lode/layout/nvfp4_reconcile.h"
#include "lode/targets/fp8_tensor.h"

namespace lode::targets {
namespace {

float scale_of(const std::vector<float>& scales, std::uint64_t expert_idx) noexcept {
  return scales.empty() ? 1.0F : scales[expert_idx];
}

/// Scales of the matrices of gate and up, or of down.
std::array<float, 2> matrix_scales(const Part& part, const LossRequest& request) noexcept {
  const LayerScalars& scalars = request.scalars;
  const bool gate_up = part.tensor.needs.gate_up_scales || part.tensor.needs.gate_up;
  const float first =
      scale_of(gate_up ? scalars.gate_scale : scalars.down_scale, request.expert_idx);
  const bool has_up = gate_up && !scalars.up_scale.empty();
  return {first, has_up ? scalars.up_scale[request.expert_idx] : first};
}

/// E4M3 block scales whose halves take up a factor each.
void count_scaled(const LossRequest& request, const layout::MatrixRows& rows,
                  const std::array<float, 2>& factors, LossCounts& losses, Loss rounded) {
  const layout::CodeCounts codes = scale_codes_of(request, rows);
  for (std::uint32_t half = 0; half < rows.num_halves; ++half) {
    if (factors[half] == 1.0F) continue;
    count_fates(fates_of_scaled_e4m3(factors[half], rounded), codes.of[half], losses);
  }
}

/// What becomes of codes under `from` that are brought to `to`.
Fates fates_of_numbers(const formats::CodeMap& map, float from, float to) noexcept {
  Fates fates{};
  for (std::uint32_t code = 0; code < fates.size(); ++code) {
    const float stored = formats::decode_e4m3(static_cast<std::uint8_t>(code));
    if (std::isnan(stored)) continue;
    const double wanted = static_cast<double>(stored) * static_cast<double>(from);
    const double made =
        static_cast<double>(formats::decode_e4m3(map.of[code])) * static_cast<double>(to);
    if (made != wanted) fates[code] = Loss::kRoundedNumbers;
  }
  return fates;
}

/// The numbers are only looked at where the table of a half changes one.
void count_requantised(const Part& part, const ExpertsShape& shape, const LossRequest& request,
                       LossCounts& losses) {
  const OneScale one = one_scale(shape, request.scalars, request.expert_idx);
  if (!one.changes) return;
  const layout::MatrixRows& rows = request.source.*part.rows;
  const std::array<float, 2> from = matrix_scales(part, request);
  for (std::uint32_t half = 0; half < rows.num_halves; ++half) {
    const Fates fates = fates_of_numbers(one.maps[half], from[half], one.scale);
    if (fates == Fates{}) continue;
    layout::MatrixRows only = rows;
    only.halves[0] = rows.halves[half];
    only.num_halves = 1;
    count_fates(fates, layout::count_codes(only, request.pool).of[0], losses);
  }
}

void count_raised(const Part& part, const layout::MatrixRows& rows, LossCounts& losses) {
  for (std::uint64_t i = 0; i < rows.num_halves * rows.half_rows; ++i) {
    const auto row = rows.row({static_cast<std::uint32_t>(i / rows.half_rows), i % rows.half_rows});
    const std::uint64_t columns = row.size() * 8 / formats::info(part.stored).bits;
    for (std::uint64_t column = 0; column < columns; ++column) {
      const float scale = formats::number_at(part.stored, row, column);
      if (scale < 0.0F) losses.add(Loss::kNegativeScales, 1);
      // A block of zeros has scale zero and stays one.
      if (scale > 0.0F && scale < kLeastBlockScale) losses.add(Loss::kRaisedScales, 1);
    }
  }
}

}  // namespace

bool part_may_lose(const Part& part) noexcept {
  switch (part.numbers) {
    case PartNumbers::kOneNvfp4Scale:
    case PartNumbers::kFolded:
    case PartNumbers::kOneFp8Scale:
    case PartNumbers::kClamped:
      return part.scalar == nullptr;
    case PartNumbers::kKept:
    case PartNumbers::kToF32:
    case PartNumbers::kToBf16:
      return false;
  }
  return false;
}

void count_part_losses(const Part& part, const ExpertsShape& shape, const LossRequest& request,
                       LossCounts& losses) {
  if (!part_may_lose(part)) return;
  const layout::MatrixRows& rows = request.source.*part.rows;
  const std::array<float, 2> scales = matrix_scales(part, request);
  if (part.numbers == PartNumbers::kFolded) {
    count_scaled(request, rows, scales, losses, Loss::kFoldedScales);
  } else if (part.numbers == PartNumbers::kClamped) {
    count_raised(part, rows, losses);
  } else if (part.numbers == PartNumbers::kOneFp8Scale) {
    count_requantised(part, shape, request, losses);
  } else if (shape.gated) {
    const layout::CommonScale common = layout::common_scale(scales[0], scales[1]);
    if (common.rounds()) {
      count_scaled(request, rows, {common.gate_ratio, common.up_ratio}, losses,
                   Loss::kRoundedScales);
    }
  }
}

}  // namespace lode::targets
