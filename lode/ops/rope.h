#pragma once

#include <cstdint>
#include <span>

namespace lode::ops {

/// Cosines and sines of one position, times `magnitude`. The angle is rounded to f32 before its
/// cosine is taken, as in the models' training code; that decides bits at large positions.
///
/// Shapes: frequencies, cosines, sines [rotary_dim / 2].
void rope_angles(std::span<const float> frequencies, float magnitude, std::uint32_t position,
                 std::span<float> cosines, std::span<float> sines) noexcept;

/// Rotates the first 2 * cosines.size() numbers of each head in place, halves paired.
///
/// Shapes: heads [n * head_dim].
void rotate_heads(std::span<float> heads, std::size_t head_dim, std::span<const float> cosines,
                  std::span<const float> sines) noexcept;

}  // namespace lode::ops
