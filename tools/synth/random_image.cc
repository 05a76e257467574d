#include <array>
#include <cmath>
#include <cstring>

#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/e4m3.h"
#include "lode/formats/e8m0.h"
#include "tools/synth/image.h"

namespace lode::synth {
namespace {

using formats::Format;

/// Bytes of the hash, eight at a time.
void fill(std::uint64_t key, std::span<std::byte> out) {
  std::size_t at = 0;
  for (; at + 8 <= out.size(); at += 8) {
    const std::uint64_t bits = mixed(key + at);
    std::memcpy(out.data() + at, &bits, 8);
  }
  const std::uint64_t last = mixed(key + at);
  std::memcpy(out.data() + at, &last, out.size() - at);
}

/// E4M3 codes of magnitude 0.25 to 1.875 with either sign: finite, spread about 0.9.
void fill_e4m3(std::uint64_t key, std::span<std::byte> out) {
  fill(key, out);
  for (std::byte& code : out) {
    const auto bits = static_cast<unsigned>(code);
    const unsigned magnitude = 0x28U + (bits & 0x7FU) % 0x18U;
    code = static_cast<std::byte>((bits & 0x80U) | magnitude);
  }
}

/// BF16 numbers evenly spread around 0.
void fill_bf16(std::uint64_t key, float spread_wanted, std::span<std::byte> out) {
  const float scale = spread_wanted * 1.7320508F / 32768.0F;
  for (std::size_t at = 0; at + 1 < out.size(); at += 8) {
    const std::uint64_t bits = mixed(key + at);
    std::array<std::uint16_t, 4> codes;
    for (unsigned i = 0; i < 4; ++i) {
      const auto even = static_cast<std::int16_t>((bits >> (16 * i)) & 0xFFFFU);
      codes[i] = formats::encode_bf16(static_cast<float>(even) * scale);
    }
    std::memcpy(out.data() + at, codes.data(), std::min<std::size_t>(8, out.size() - at));
  }
}

/// Block scales near `wanted` (the spread of codes taken out), one or two binades wide.
void fill_scales(std::uint64_t key, Format format, float wanted, std::span<std::byte> out) {
  if (format == Format::kF32) {
    for (std::size_t at = 0; at < out.size(); at += 4) {
      const auto part = static_cast<float>(mixed(key + at) >> 56) / 256.0F;
      const float scale = wanted * (0.5F + part);
      std::memcpy(out.data() + at, &scale, 4);
    }
    return;
  }
  fill(key, out);
  const int exponent = static_cast<int>(std::lround(std::log2(wanted)));
  for (std::byte& code : out) {
    const auto bits = static_cast<unsigned>(code);
    // E8M0: the power of two or half of it. E4M3: 0.5 to 1.875, the scale of the matrix does the
    // rest.
    const unsigned scale = format == Format::kE8m0
                               ? static_cast<unsigned>(127 + exponent) - bits % 2U
                               : 0x30U + bits % 0x10U;
    code = static_cast<std::byte>(scale);
  }
}

float power_of_two(float near) { return std::exp2(std::round(std::log2(near))); }

/// Block scales that are `wanted` or twice as much, as powers of two.
void fill_even_scales(std::uint64_t key, Format format, float wanted, std::span<std::byte> out) {
  const std::uint64_t width = formats::info(format).bits / 8;
  for (std::uint64_t i = 0; i * width < out.size(); ++i) {
    const float scale = power_of_two(wanted) * (mixed(key + i) % 2 == 0 ? 1.0F : 2.0F);
    const std::span<std::byte> at = out.subspan(i * width, width);
    if (format == Format::kF32) std::memcpy(at.data(), &scale, sizeof scale);
    if (format == Format::kE4m3) at[0] = static_cast<std::byte>(formats::encode_e4m3(scale));
    if (format == Format::kE8m0) at[0] = static_cast<std::byte>(formats::encode_e8m0(scale));
  }
}

/// Spread of codes that come out of `fill`.
float spread_of_codes(Format format) { return format == Format::kE2m1 ? 2.93F : 0.9F; }

void fill_codes(std::uint64_t key, Format format, float wanted, std::span<std::byte> out) {
  if (format == Format::kE2m1) return fill(key, out);
  if (format == Format::kE4m3) return fill_e4m3(key, out);
  fill_bf16(key, wanted, out);
}

float tensor_scale_of(const formats::Encoding& encoding, float wanted) {
  switch (encoding.tensor_scale) {
    case formats::TensorScale::kNone:
      return has_block_scales(encoding) ? 1.0F : wanted;
    case formats::TensorScale::kMultiplier:
      return wanted;
    case formats::TensorScale::kDivisor:
      return 1.0F / wanted;
  }
  return 1.0F;
}

}  // namespace

Result<formats::Quantised> RandomMaker::make(const Job& job, const MatrixId& matrix,
                                             std::uint64_t first_row, std::uint64_t count) const {
  const formats::Encoding& encoding = job.encoding;
  if (matrix.columns == 1) {  // a vector: norms are near 1, and it costs nothing
    return QuantisingMaker(HashSource(seed_), {}).make(job, matrix, first_row, count);
  }
  formats::Quantised made{.encoding = encoding};
  const std::uint64_t stride = formats::row_bytes(encoding, matrix.columns);
  made.codes.resize(count * stride);
  if (has_block_scales(encoding)) {
    made.scales.resize(formats::scales_bytes(encoding, count, matrix.columns));
  }
  const float wanted = spread(matrix) / spread_of_codes(encoding.element);
  for (std::uint64_t row = 0; row < count; ++row) {
    fill_codes(row_key(seed_, matrix, first_row + row), encoding.element, spread(matrix),
               std::span(made.codes).subspan(row * stride, stride));
  }
  if (even_scales_) {
    made.tensor_scale = has_block_scales(encoding) ? 1.0F : power_of_two(wanted);
    fill_even_scales(~row_key(seed_, matrix, first_row), encoding.scale, wanted, made.scales);
    return made;
  }
  made.tensor_scale = tensor_scale_of(encoding, wanted);
  if (made.scales.empty()) return made;
  const std::uint64_t scale_rows = formats::scale_rows(encoding, count);
  const std::uint64_t first = formats::scale_rows(encoding, first_row);
  for (std::uint64_t row = 0; row < scale_rows; ++row) {
    const std::uint64_t scale_stride = made.scales.size() / scale_rows;
    fill_scales(~row_key(seed_, matrix, first + row), encoding.scale, wanted,
                std::span(made.scales).subspan(row * scale_stride, scale_stride));
  }
  return made;
}

}  // namespace lode::synth
