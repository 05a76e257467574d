#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "lode/memory/carver.h"
#include "lode/ops/compute.h"

namespace lode::ops {

/// Which forms of an activation row the next kernels read.
class Forms {
 public:
  constexpr Forms() = default;
  constexpr void add(kernels::ActivationForm form) noexcept { bits_ |= bit(form); }
  constexpr void add(Forms other) noexcept { bits_ |= other.bits_; }
  constexpr bool has(kernels::ActivationForm form) const noexcept {
    return (bits_ & bit(form)) != 0;
  }

 private:
  static constexpr std::uint8_t bit(kernels::ActivationForm form) noexcept {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(form));
  }
  std::uint8_t bits_ = 0;
};

/// Activation rows in f32 and, in the fast mode, the same rows as int8: one buffer for each form,
/// filled once for all matrices that read them. A view.
///
/// Shapes: f32 [capacity][k], rows `stride` floats apart, each on a 64-byte line.
struct Rows {
  std::span<float> f32;
  std::size_t k = 0;
  std::size_t stride = 0;
  std::array<std::span<std::byte>, 2> packed;  // kI8Fp4, kI8Plain

  std::span<float> row(std::size_t index) const noexcept { return f32.subspan(index * stride, k); }
  const std::byte* data(kernels::ActivationForm form) const noexcept;
  std::size_t stride_bytes(kernels::ActivationForm form) const noexcept;
};

/// Rows of `k` numbers with room for what `mode` needs.
Rows carve_rows(memory::Carver& carver, std::size_t capacity, std::size_t k, Mode mode);

/// Writes row `index` in the int8 forms of `forms` from its f32 numbers.
void pack_row(const Compute& compute, const Rows& rows, std::size_t index, Forms forms) noexcept;

/// The same for rows [0, num_rows), shared among the threads.
void pack_rows(const Compute& compute, const Rows& rows, std::size_t num_rows,
               Forms forms) noexcept;

}  // namespace lode::ops
