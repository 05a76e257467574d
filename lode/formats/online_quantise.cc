#include "lode/formats/online_quantise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/e8m0.h"
#include "lode/formats/f16.h"
#include "lode/formats/fp8_requantise.h"
#include "lode/formats/online_pieces.h"
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

using pieces::Codes;
using pieces::Floats;
using pieces::kPiece;
using pieces::Raw;

/// Part of a matrix; `rows` and `end` may go beyond the source.
struct Block {
  std::uint64_t row, rows;
  std::uint64_t begin, end;
};

/// Numbers [begin, begin + kPiece) of a row, but none from `end` on or that the source has not.
void load(const OnlineRows& rows, std::uint64_t row, std::uint64_t begin, std::uint64_t end,
          Raw& raw) noexcept {
  const std::uint64_t last = row < rows.rows ? std::min(rows.k, end) : 0;
  const std::uint64_t count = last > begin ? std::min(last - begin, kPiece) : 0;
  const std::byte* first = count > 0 ? rows.first + row * rows.step_bytes + begin * 2 : nullptr;
  pieces::load(first, count, raw);
}

/// A magnitude's bits as fp32; infinity for NaN too.
float magnitude_of(Format format, std::uint16_t bits) noexcept {
  if (bits >= pieces::infinity_bits(format)) return std::numeric_limits<float>::infinity();
  return format == Format::kBf16 ? pieces::widen_bf16(bits) : pieces::widen_f16(bits);
}

float block_amax(const OnlineRows& rows, const Block& block) noexcept {
  Raw raw;
  std::uint16_t largest = 0;
  const std::uint64_t last = std::min(rows.rows, block.row + block.rows);
  const std::uint64_t end = std::min(rows.k, block.end);
  for (std::uint64_t row = block.row; row < last; ++row) {
    for (std::uint64_t at = block.begin; at < end; at += kPiece) {
      load(rows, row, at, end, raw);
      largest = std::max(largest, pieces::largest_bits<kPiece>(raw.data()));
    }
  }
  return magnitude_of(rows.format, largest);
}

/// One piece of the output: codes [begin, end) of a row.
struct OutputPiece {
  std::uint64_t row, begin, end;
};

template <class Visit>
void for_pieces(const Block& block, Visit visit) noexcept {
  for (std::uint64_t row = block.row; row < block.row + block.rows; ++row) {
    for (std::uint64_t at = block.begin; at < block.end; at += kPiece) {
      visit(OutputPiece{row, at, std::min(block.end, at + kPiece)});
    }
  }
}

/// How the codes of a piece are made.
struct Encoder {
  pieces::EncodeFn encode;
  pieces::Op op;
};
struct Int8Encoder {};

void encode_piece(const Encoder& encoder, Format from, const Raw& raw, const Floats& factors,
                  Codes& codes) noexcept {
  encoder.encode(encoder.op, from, raw.data(), factors.data(), codes.data());
}

float rounded_to(Format format, float value) noexcept {
  return format == Format::kBf16 ? round_to_bf16(value) : decode_f16(encode_f16(value));
}

/// A row of zeros has the scale 0 and codes of 0.
void encode_piece(const Int8Encoder&, Format from, const Raw& raw, const Floats& scales,
                  Codes& codes) noexcept {
  Floats values;
  pieces::widen(from, raw.data(), values);
  for (std::size_t i = 0; i < kPiece; ++i) {
    const float quotient = rounded_to(from, values[i] / scales[i]);
    const float whole = std::isnan(quotient) ? 0.0F : std::nearbyint(quotient);
    codes[i] =
        static_cast<std::uint8_t>(static_cast<std::int8_t>(std::clamp(whole, -127.0F, 127.0F)));
  }
}

/// The codes of a block under one scale, a byte each.
template <class Encode>
void encode_block(const OnlineRows& rows, const Block& block, float factor, const OnlineOutput& out,
                  const Encode& encoder) noexcept {
  Raw raw;
  Floats factors;
  factors.fill(factor);
  for_pieces(block, [&](const OutputPiece& piece) {
    load(rows, piece.row, piece.begin, block.end, raw);
    Codes codes;
    encode_piece(encoder, rows.format, raw, factors, codes);
    std::memcpy(out.codes.data() + piece.row * out.k + piece.begin, codes.data(),
                piece.end - piece.begin);
  });
}

template <class Encode>
void encode_rows(const OnlineRows& rows, const OnlineOutput& out, const Encode& encoder) noexcept {
  for (std::uint64_t row = 0; row < out.rows; ++row) {
    float scale = 0.0F;
    std::memcpy(&scale, out.scales.data() + row * sizeof scale, sizeof scale);
    encode_block(rows, {row, 1, 0, out.k}, scale, out, encoder);
  }
}

/// Blocks of whole rows, of rows, or of pieces: `scale(amax)` gives the BlockScale.
template <class Scale, class Encode>
bool run_wide(OnlineScheme scheme, const OnlineRows& rows, const OnlineOutput& out, Scale scale,
              const Encode& encoder) noexcept {
  const Encoding& encoding = info(scheme).encoding;
  const std::uint64_t block_rows = encoding.block_rows == kWhole ? out.rows : encoding.block_rows;
  const std::uint64_t block_k = encoding.block_k == kWhole ? out.k : encoding.block_k;
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
      if (!one_scale) {
        std::memcpy(stored, &chosen.stored, sizeof chosen.stored);
        stored += sizeof chosen.stored;
      }
      if (!out.codes.empty()) encode_block(rows, block, chosen.factor, out, encoder);
    }
  }
  return finite;
}

/// Blocks of kBlock numbers of a row, whose scales are one byte.
template <std::uint64_t kBlock, class Scale>
bool run_narrow(const OnlineRows& rows, const OnlineOutput& out, Scale scale,
                const Encoder& encoder) noexcept {
  const std::uint64_t per_byte = encoder.op == pieces::Op::kE2m1Product ? 2 : 1;
  std::byte* stored = out.scales.data();
  bool finite = true;
  Raw raw;
  Floats factors;
  for_pieces({0, out.rows, 0, out.k}, [&](const OutputPiece& piece) {
    load(rows, piece.row, piece.begin, out.k, raw);
    factors.fill(1.0F);
    for (std::uint64_t at = 0; at < piece.end - piece.begin; at += kBlock) {
      const float amax = magnitude_of(rows.format, pieces::largest_bits<kBlock>(raw.data() + at));
      finite = finite && std::isfinite(amax);
      const BlockScale chosen = scale(amax);
      *stored++ = static_cast<std::byte>(chosen.stored);
      std::fill_n(factors.begin() + static_cast<std::ptrdiff_t>(at), kBlock, chosen.factor);
    }
    if (out.codes.empty()) return;
    Codes codes;
    encode_piece(encoder, rows.format, raw, factors, codes);
    std::memcpy(out.codes.data() + (piece.row * out.k + piece.begin) / per_byte, codes.data(),
                (piece.end - piece.begin) / per_byte);
  });
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

auto int8_scale(Format format) noexcept {
  return [format](float amax) {
    const float scale = rounded_to(format, amax / 127.0F);
    return in_f32(scale, scale);
  };
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
                     const OnlineOutput& out, pieces::EncodeFn encode) noexcept {
  const Encoder e4m3_products{encode, pieces::Op::kE4m3Product};
  const Encoder e4m3_quotients{encode, pieces::Op::kE4m3Quotient};
  const Encoder e2m1_products{encode, pieces::Op::kE2m1Product};
  switch (scheme) {
    case OnlineScheme::kTensorFp8: {
      const float inverse = 1.0F / online_matrix_scale(scheme, amax);
      const auto scale = [inverse](float) { return BlockScale{0, inverse}; };
      return run_wide(scheme, rows, out, scale, e4m3_products) && std::isfinite(amax);
    }
    case OnlineScheme::kRowFp8:
      return run_wide(scheme, rows, out, channel_scale, e4m3_quotients);
    case OnlineScheme::kBlockFp8:
      return run_wide(scheme, rows, out, block_scale, e4m3_products);
    case OnlineScheme::kMx8:
      return run_narrow<32>(rows, out, mxfp8_scale, e4m3_quotients);
    case OnlineScheme::kMx4:
      return run_narrow<32>(rows, out, mxfp4_scale, e2m1_products);
    case OnlineScheme::kNv4:
      return run_narrow<16>(rows, out, nvfp4_scale(amax), e2m1_products);
    case OnlineScheme::kRowInt8:
      return run_wide(scheme, rows, out, int8_scale(rows.format), Int8Encoder{});
  }
  return false;
}

void encode_scaled_rows(OnlineScheme scheme, const OnlineRows& rows, const OnlineOutput& out,
                        pieces::EncodeFn encode) noexcept {
  if (scheme == OnlineScheme::kRowInt8) return encode_rows(rows, out, Int8Encoder{});
  encode_rows(rows, out, Encoder{encode, pieces::Op::kE4m3Quotient});
}

}  // namespace lode::formats
