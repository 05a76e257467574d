#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lode/layout/block_scales.h"
#include "lode/layout/row_shuffle.h"
#include "lode/layout/sm90_mixed.h"
#include "lode/targets/experts.h"
#include "lode/targets/preparer.h"

namespace lode::targets {

// What the tensors of the CUTLASS and TRT-LLM kernels have in common: a matrix is rows in some
// order, padded, in some tile, its numbers kept or turned. Axes, so that a target is a choice on
// each and no code of its own.

/// In which tile the rows lie.
enum class PartTile : std::uint8_t { kRows, kScaleTiles, kBlockMajor, kSm90Codes };

/// What becomes of the numbers.
enum class PartNumbers : std::uint8_t {
  kKept,
  kOneNvfp4Scale,  // E4M3 block scales: one scale for gate and up (layout/nvfp4_reconcile.h)
  kFolded,         // E4M3 block scales times the scale of the matrix, rounded once
  kOneFp8Scale,    // E4M3 codes: one scale for gate and up (fp8_tensor.h)
  kClamped,        // to F32, at least 1e-10: block scales of FP8
  kToF32,          // biases, scales of rows
  kToBf16,
};

/// What block scales of FP8 are at least.
inline constexpr float kLeastBlockScale = 1e-10F;

/// A single number of an expert.
using ScalarFn = float (*)(const ExpertsShape& shape, const LayerScalars& scalars,
                           std::uint64_t expert_idx) noexcept;

/// One tensor of a layer: a matrix, or a single number an expert.
struct Part {
  EngineTensor tensor;
  ScalarFn scalar = nullptr;  // if so, the rest means nothing
  layout::MatrixRows ExpertSource::*rows = nullptr;
  layout::RowOrder order;
  std::uint64_t row_bytes = 0;  // padded, as made
  std::byte padding{};
  PartTile tile = PartTile::kRows;
  layout::ScaleTile scale_tile;
  layout::Sm90Version sm90 = layout::Sm90Version::kFlashinfer07;
  PartNumbers numbers = PartNumbers::kKept;
  formats::Format stored{};  // of numbers that become F32 or BF16; rows only
};

/// What one `make` is of.
struct PartRequest {
  const ExpertsShape& shape;
  const ExpertSource& source;
  const LayerScalars& scalars;
  std::uint64_t expert_idx = 0;
};

/// Bytes of one expert, and of one unit.
std::uint64_t part_bytes(const Part& part) noexcept;
std::uint64_t part_unit_bytes(const Part& part) noexcept;

/// The codes that some units are made of; `code_bits` of a number. All where the part is none of
/// codes.
SourceWindow part_window(const Part& part, std::uint32_t code_bits, std::uint64_t first_unit,
                         std::uint64_t num_units) noexcept;

/// Units from `first_unit` on.
/// Shapes: out [n * unit_bytes], every byte written.
void make_part(const Part& part, const PartRequest& request, std::uint64_t first_unit,
               std::span<std::byte> out) noexcept;

/// Bytes of one row as the checkpoint had them (up to what was rounded), by the layouts' functions.
/// Shapes: expert [expert_bytes], out [at most row_bytes].
void restore_part_row(const Part& part, const layout::HalfRow& row,
                      std::span<const std::byte> expert, std::span<std::byte> out) noexcept;

}  // namespace lode::targets
