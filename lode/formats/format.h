#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lode::formats {

/// How one number is stored. E2M1 is one value whether a file calls it "F4" or hides two of them in
/// each byte of a U8 tensor: the container is the checkpoint's matter, the numbers are the same.
enum class Format : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kE4m3,
  kE5m2,
  kE8m0,
  kE2m1,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF64,
  kBool,
  kE2m3,
  kE3m2,
  kE4m3Fnuz,
  kE5m2Fnuz,
  kC64,
};

/// One row a format; the one home of names and widths.
/// Source: the safetensors README for its names; each row for its bits.
struct FormatInfo {
  Format format;
  std::string_view name;              // ours: in messages, flags and JSON
  std::string_view safetensors_name;  // as in a safetensors header
  unsigned bits;
  double max;  // largest finite value
  bool has_inf;
  bool has_nan;
  std::string_view source;  // what fixes the meaning of the bits
};

/// Every format, in the order of the enum.
std::span<const FormatInfo> format_table() noexcept;
const FormatInfo& info(Format format) noexcept;

/// The format a safetensors header means by `name`, if we know it.
std::optional<Format> format_by_safetensors_name(std::string_view name) noexcept;
std::optional<Format> format_by_name(std::string_view name) noexcept;

/// Scale of the whole matrix on top of the block scales, and which way it is written.
enum class TensorScale : std::uint8_t {
  kNone,
  kMultiplier,  // ModelOpt's weight_scale_2: w = code * (block scale * scale)
  kDivisor,     // compressed-tensors' weight_global_scale: w = code * (block scale / scale)
};

/// A block edge that is the whole matrix.
inline constexpr std::uint32_t kWhole = 0;

/// How a weight matrix [rows, k] is stored as numbers: codes of `element`, one `scale` for every
/// block_rows x block_k of them (edge blocks may be partial), perhaps one more for the matrix.
/// Where the numbers lie is a layout's matter.
struct Encoding {
  Format element = Format::kF32;
  Format scale = Format::kF32;  // means nothing unless has_scale
  std::uint32_t block_rows = kWhole;
  std::uint32_t block_k = kWhole;
  bool has_scale = false;
  TensorScale tensor_scale = TensorScale::kNone;

  bool operator==(const Encoding&) const = default;
};

inline constexpr Encoding kPlainF32{.element = Format::kF32};
inline constexpr Encoding kPlainF16{.element = Format::kF16};
inline constexpr Encoding kPlainBf16{.element = Format::kBf16};
inline constexpr Encoding kMxfp4{Format::kE2m1, Format::kE8m0, 1, 32, true};
inline constexpr Encoding kMxfp8{Format::kE4m3, Format::kE8m0, 1, 32, true};
inline constexpr Encoding kNvfp4{Format::kE2m1, Format::kE4m3,           1, 16,
                                 true,          TensorScale::kMultiplier};
inline constexpr Encoding kNvfp4Divisor{Format::kE2m1, Format::kE4m3,        1, 16,
                                        true,          TensorScale::kDivisor};
inline constexpr Encoding kFp8Block128{Format::kE4m3, Format::kF32, 128, 128, true};
inline constexpr Encoding kFp8Channel{Format::kE4m3, Format::kF32, 1, kWhole, true};
inline constexpr Encoding kFp8Tensor{Format::kE4m3, Format::kF32, kWhole, kWhole, true};
inline constexpr Encoding kInt8Row128{Format::kI8, Format::kF32, 1, 128, true};

/// An encoding with its short name.
struct EncodingInfo {
  Encoding encoding;
  std::string_view name;     // "nvfp4"
  std::string_view meaning;  // one sentence for the documents
};

/// The encodings that have names, best known first.
std::span<const EncodingInfo> encoding_table() noexcept;

/// "nvfp4", "fp8-block", "bf16", ...; "unnamed" for an encoding outside the table.
std::string_view name(const Encoding& encoding) noexcept;
std::optional<Encoding> encoding_by_name(std::string_view name) noexcept;

/// Scales along the rows of a matrix, and along k.
constexpr std::uint64_t scale_rows(const Encoding& encoding, std::uint64_t rows) noexcept {
  if (!encoding.has_scale || rows == 0) return 0;
  if (encoding.block_rows == kWhole) return 1;
  return (rows - 1) / encoding.block_rows + 1;
}
constexpr std::uint64_t scale_columns(const Encoding& encoding, std::uint64_t k) noexcept {
  if (!encoding.has_scale || k == 0) return 0;
  return encoding.block_k == kWhole ? 1 : (k - 1) / encoding.block_k + 1;
}

}  // namespace lode::formats
