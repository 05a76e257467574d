#pragma once

#include <cstddef>
#include <cstdint>

namespace lode::kernels::scalar {

/// The laws of the entries of KernelTable that have these names.
float dot(const float* a, const float* b, std::size_t n) noexcept;
void add_scaled(float scale, const float* x, std::size_t n, float* out) noexcept;
float dot_f16(const float* a, const std::uint16_t* b, std::size_t n) noexcept;
void add_scaled_f16(float scale, const std::uint16_t* x, std::size_t n, float* out) noexcept;
void to_f16(const float* x, std::size_t n, std::uint16_t* out) noexcept;
void rms_norm(const float* x, const float* weight, float eps, std::size_t n, float* out) noexcept;

}  // namespace lode::kernels::scalar
