#pragma once

#include <cstdint>

#include "lode/layout/matrix_rows.h"
#include "lode/layout/nvfp4_reconcile.h"

namespace lode::layout {

/// What bringing gate and up of an expert to one scale costs: of the block scales, how many E4M3
/// does not hold after they took up the ratio. Nothing where the scales are equal.
/// Source: field report 46.
struct ScalesRounded {
  std::uint64_t seen = 0;
  std::uint64_t rounded = 0;  // to another number than scale * ratio, those to zero among them
  std::uint64_t lost = 0;     // to zero, of a scale that was none: the block is gone

  ScalesRounded& operator+=(const ScalesRounded& other) noexcept {
    seen += other.seen;
    rounded += other.rounded;
    lost += other.lost;
    return *this;
  }
  friend bool operator==(const ScalesRounded&, const ScalesRounded&) = default;
};

/// Of the block scales of one expert's gate and up. NaN counts as held.
///
/// Shapes: scales halves [N, groups] of one byte.
ScalesRounded count_rounded(const CommonScale& common, const MatrixRows& scales) noexcept;

}  // namespace lode::layout
