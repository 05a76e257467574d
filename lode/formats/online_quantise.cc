#include "lode/formats/online_quantise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/e2m1.h"
#include "lode/formats/e8m0.h"
#include "lode/formats/f16.h"
#include "lode/formats/fp8_requantise.h"
#include "lode/formats/quantise_parts.h"

namespace lode::formats {
namespace {

constexpr Encoding kInt8Channel{Format::kI8, Format::kF32, 1, kWhole, true};

constexpr std::array<OnlineSchemeInfo, 7> kSchemes{{
    {OnlineScheme::kTensorFp8, "fp8-tensor", kFp8Tensor, true, 1, 1, true},
    {OnlineScheme::kRowFp8, "fp8-channel", kFp8Channel, false, 1, 1, true},
    {OnlineScheme::kBlockFp8, "fp8-block", kFp8Block128, false, 1, 128, false},
    {OnlineScheme::kMx8, "mxfp8", kMxfp8, false, 32, 1, true},
    {OnlineScheme::kMx4, "mxfp4", kMxfp4, false, 32, 1, true},
    {OnlineScheme::kNv4, "nvfp4", kNvfp4, true, 16, 1, false},
    {OnlineScheme::kRowInt8, "int8-channel", kInt8Channel, false, 1, 1, false},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kSchemes.size(); ++i) {
    if (static_cast<std::size_t>(kSchemes[i].scheme) != i) return false;
  }
  return true;
}
static_assert(in_order(), "online_scheme_table() is indexed by the enum");

// Rows pass in pieces of this many numbers; blocks along k are shorter, or whole pieces.
constexpr std::uint64_t kPiece = 128;
using Piece = std::array<float, kPiece>;

/// A block of the output; `rows` and `end` may go beyond the source.
struct Block {
  std::uint64_t row, rows;
  std::uint64_t begin, end;
};

/// Numbers [begin, end) of a row, zeros beyond the source.
std::span<const float> read(const OnlineRows& rows, std::uint64_t row, std::uint64_t begin,
                            std::uint64_t end, Piece& piece) noexcept {
  const std::uint64_t count = end - begin;
  const std::uint64_t known =
      row < rows.rows ? std::min(std::max(rows.k, begin), end) - begin : std::uint64_t{0};
  std::array<std::uint16_t, kPiece> raw;
  if (known > 0) {
    std::memcpy(raw.data(), rows.first + row * rows.step_bytes + begin * 2, known * 2);
  }
  const bool bf16 = rows.format == Format::kBf16;
  for (std::uint64_t i = 0; i < known; ++i) {
    piece[i] = bf16 ? decode_bf16(raw[i]) : decode_f16(raw[i]);
  }
  std::fill(piece.begin() + static_cast<std::ptrdiff_t>(known),
            piece.begin() + static_cast<std::ptrdiff_t>(count), 0.0F);
  return {piece.data(), count};
}

/// The largest magnitude of the part of a block that the source has.
float block_amax(const OnlineRows& rows, const Block& block) noexcept {
  Piece piece;
  float amax = 0.0F;
  const std::uint64_t last = std::min(rows.rows, block.row + block.rows);
  const std::uint64_t end = std::min(rows.k, block.end);
  for (std::uint64_t row = block.row; row < last; ++row) {
    for (std::uint64_t at = block.begin; at < end; at += kPiece) {
      amax =
          std::max(amax, largest_magnitude(read(rows, row, at, std::min(end, at + kPiece), piece)));
    }
  }
  return amax;
}

template <class Code>
void write_codes(std::span<const float> values, float factor, Code code, Format element,
                 std::byte* codes) noexcept {
  if (element == Format::kE2m1) {
    for (std::size_t i = 0; i < values.size(); i += 2) {
      const std::uint8_t low = code(values[i], factor);
      const std::uint8_t high = code(values[i + 1], factor);
      codes[i / 2] = static_cast<std::byte>(nibble_pair(low, high));
    }
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = static_cast<std::byte>(code(values[i], factor));
  }
}

template <class Code>
void encode(const OnlineRows& rows, const Block& block, const OnlineOutput& out,
            const Encoding& encoding, float factor, Code code) noexcept {
  Piece piece;
  const std::uint64_t stride = row_bytes(encoding, out.k);
  const std::uint64_t per_byte = encoding.element == Format::kE2m1 ? 2 : 1;
  for (std::uint64_t row = block.row; row < block.row + block.rows; ++row) {
    for (std::uint64_t at = block.begin; at < block.end; at += kPiece) {
      const auto values = read(rows, row, at, std::min(block.end, at + kPiece), piece);
      write_codes(values, factor, code, encoding.element,
                  out.codes.data() + row * stride + at / per_byte);
    }
  }
}

/// All blocks of a scheme: `scale(amax)` gives the BlockScale, `code(value, factor)` the codes.
template <class Scale, class Code>
bool run(OnlineScheme scheme, const OnlineRows& rows, const OnlineOutput& out, Scale scale,
         Code code) noexcept {
  const Encoding& encoding = info(scheme).encoding;
  const std::uint64_t block_rows = encoding.block_rows == kWhole ? out.rows : encoding.block_rows;
  const std::uint64_t block_k = encoding.block_k == kWhole ? out.k : encoding.block_k;
  const std::size_t scale_bytes = info(encoding.scale).bits / 8;
  const bool one_scale = scheme == OnlineScheme::kTensorFp8;
  std::byte* stored = out.scales.data();
  bool finite = true;
  for (std::uint64_t row = 0; row < out.rows; row += block_rows) {
    for (std::uint64_t begin = 0; begin < out.k; begin += block_k) {
      const Block block{row, std::min(block_rows, out.rows - row), begin,
                        std::min(begin + block_k, out.k)};
      const float amax = one_scale ? 0.0F : block_amax(rows, block);
      finite = finite && std::isfinite(amax);
      const BlockScale chosen = scale(amax);
      if (!out.codes.empty()) encode(rows, block, out, encoding, chosen.factor, code);
      if (one_scale) continue;
      std::memcpy(stored, &chosen.stored, scale_bytes);
      stored += scale_bytes;
    }
  }
  return finite;
}

BlockScale in_f32(float stored, float factor) noexcept {
  return {std::bit_cast<std::uint32_t>(stored), factor};
}

BlockScale channel_scale(float amax) noexcept {
  const float scale = dynamic_scale(amax);
  return in_f32(scale, scale);
}

BlockScale block_scale(float amax) noexcept {
  const float scale = std::max(amax, 1e-4F) / kE4m3Max;
  return in_f32(scale, 1.0F / scale);
}

BlockScale mxfp8_scale(float amax) noexcept {
  const float wanted = std::max(amax, std::numeric_limits<float>::min()) / kE4m3Max;
  const float byte = std::ceil(std::log2(wanted)) + 127.0F;
  const auto code = static_cast<std::uint8_t>(std::clamp(byte, 0.0F, 254.0F));
  return {code, decode_e8m0(code)};
}

BlockScale mxfp4_scale(float amax) noexcept {
  const auto rounded = static_cast<int>((std::bit_cast<std::uint32_t>(amax) + 0x200000U) >> 23);
  const auto code = static_cast<std::uint8_t>(std::clamp(rounded - 2, 0, 254));
  return {code, decode_e8m0(static_cast<std::uint8_t>(254 - code))};
}

float nvfp4_range(float amax) noexcept { return 2688.0F / std::max(amax, 1e-8F); }

std::uint8_t nvfp4_block_code(float range, float amax) noexcept {
  return encode_e4m3(range * (amax * (1.0F / 6.0F)));
}

auto nvfp4_scale(float whole_amax) noexcept {
  return [range = nvfp4_range(whole_amax)](float amax) {
    const std::uint8_t code = nvfp4_block_code(range, amax);
    const float scale = decode_e4m3(code) * (1.0F / range);
    return BlockScale{code, code == 0 ? 0.0F : 1.0F / scale};
  };
}

float rounded_to(Format format, float value) noexcept {
  return format == Format::kBf16 ? round_to_bf16(value) : decode_f16(encode_f16(value));
}

auto int8_scale(Format format) noexcept {
  return [format](float amax) {
    const float scale = rounded_to(format, amax / 127.0F);
    return in_f32(scale, scale);
  };
}

/// A row of zeros has the scale 0 and codes of 0.
auto int8_code(Format format) noexcept {
  return [format](float value, float scale) {
    const float quotient = rounded_to(format, value / scale);
    if (std::isnan(quotient)) return std::uint8_t{0};
    const float whole = std::clamp(std::nearbyint(quotient), -127.0F, 127.0F);
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(whole));
  };
}

std::uint8_t e4m3_product(float value, float factor) noexcept {
  return encode_e4m3(value * factor);
}
std::uint8_t e4m3_quotient(float value, float scale) noexcept { return encode_e4m3(value / scale); }
std::uint8_t e2m1_product(float value, float factor) noexcept {
  return encode_e2m1(value * factor);
}
std::uint8_t static_code(float value, float inverse) noexcept {
  return quantise_static(value, inverse);
}
std::uint8_t dynamic_code(float value, float scale) noexcept {
  return quantise_dynamic(value, scale);
}

}  // namespace

std::span<const OnlineSchemeInfo> online_scheme_table() noexcept { return kSchemes; }

const OnlineSchemeInfo& info(OnlineScheme scheme) noexcept {
  return kSchemes[static_cast<std::size_t>(scheme)];
}

std::optional<OnlineScheme> online_scheme_by_name(std::string_view name) noexcept {
  const auto row = std::ranges::find(kSchemes, name, &OnlineSchemeInfo::name);
  if (row == kSchemes.end()) return std::nullopt;
  return row->scheme;
}

float largest_magnitude(const OnlineRows& rows) noexcept {
  return block_amax(rows, {0, rows.rows, 0, rows.k});
}

float online_matrix_scale(OnlineScheme scheme, float amax) noexcept {
  if (scheme == OnlineScheme::kTensorFp8) return amax / kE4m3Max;
  return scheme == OnlineScheme::kNv4 ? 1.0F / nvfp4_range(amax) : 1.0F;
}

float online_largest_block_scale(float amax) noexcept {
  return decode_e4m3(nvfp4_block_code(nvfp4_range(amax), amax));
}

bool quantise_online(OnlineScheme scheme, const OnlineRows& rows, float amax,
                     const OnlineOutput& out) noexcept {
  switch (scheme) {
    case OnlineScheme::kTensorFp8: {
      const float inverse = 1.0F / online_matrix_scale(scheme, amax);
      const auto scale = [inverse](float) { return BlockScale{0, inverse}; };
      return run(scheme, rows, out, scale, static_code) && std::isfinite(amax);
    }
    case OnlineScheme::kRowFp8:
      return run(scheme, rows, out, channel_scale, dynamic_code);
    case OnlineScheme::kBlockFp8:
      return run(scheme, rows, out, block_scale, e4m3_product);
    case OnlineScheme::kMx8:
      return run(scheme, rows, out, mxfp8_scale, e4m3_quotient);
    case OnlineScheme::kMx4:
      return run(scheme, rows, out, mxfp4_scale, e2m1_product);
    case OnlineScheme::kNv4:
      return run(scheme, rows, out, nvfp4_scale(amax), e2m1_product);
    case OnlineScheme::kRowInt8:
      return run(scheme, rows, out, int8_scale(rows.format), int8_code(rows.format));
  }
  return false;
}

}  // namespace lode::formats
