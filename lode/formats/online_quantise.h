#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lode/formats/format.h"
#include "lode/formats/online_pieces.h"

namespace lode::formats {

// How an engine quantises 16-bit weights itself while it loads them. As `quantise`, but with the
// engines' rules, over rows wherever they lie, so that an expert passes through in strips.
//
//   scheme     scale of                        from its largest magnitude a       codes
//   tensor     a matrix, gate and up as one    a/448                              x * (1/s)
//   channel    a row                           max(a/448, 1/(448*512))            x / s
//   block      128 x 128                       max(a, 1e-4)/448                   x * (1/s)
//   mxfp8      32 along k                      2^ceil(log2(max(a, tiny)/448))     x / s
//   mxfp4      32 along k                      2^(exponent of a*(1+1/4) - 2)      x * (1/s)
//   nvfp4      a matrix, and 16 along k        g = 2688/max(a, 1e-8); g*(a/6)     x * 1/(s * 1/g)
//   int8       a row                           a/127, all in the source's format  x / s
//
// All divisions are true ones. On a GPU a division by a constant may be a product with its
// reciprocal (block, int8: the last place of a scale may differ), and NVFP4 uses the hardware's
// approximate reciprocals: there no CPU can promise the same bytes.
//
// Source: weight_layouts 3.5; tests/golden/weight_layouts, online_*.

enum class OnlineScheme : std::uint8_t {
  kTensorFp8,
  kRowFp8,
  kBlockFp8,
  kMx8,
  kMx4,
  kNv4,
  kRowInt8,
};

struct OnlineSchemeInfo {
  OnlineScheme scheme;
  std::string_view name;     // "fp8-tensor": as in flags
  Encoding encoding;         // of what comes out
  bool needs_amax;           // of the whole matrix (gate and up as one) before its first row
  std::uint32_t k_multiple;  // rows are a multiple of this; 1: of any length
  std::uint32_t padded_to;   // engines round rows and k up to this and fill with zeros; 1: not
  bool exact;                // whether a GPU writes the same bytes
};

/// Every scheme, in the order of the enum.
std::span<const OnlineSchemeInfo> online_scheme_table() noexcept;
const OnlineSchemeInfo& info(OnlineScheme scheme) noexcept;
std::optional<OnlineScheme> online_scheme_by_name(std::string_view name) noexcept;

/// Rows of 16-bit numbers at equal distances.
///
/// Shapes: [rows, k] of `format`, kBf16 or kF16.
struct OnlineRows {
  const std::byte* first = nullptr;
  std::uint64_t step_bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
  Format format = Format::kBf16;
};

/// The largest magnitude; infinity where a number is not finite. 0 of nothing.
float largest_magnitude(const OnlineRows& rows) noexcept;

/// The scale of the whole matrix as a multiplier; 1 where the scheme has none.
float online_matrix_scale(OnlineScheme scheme, float amax) noexcept;
/// The largest block scale that a matrix of NVFP4 gets: that of the block of its largest number.
float online_largest_block_scale(float amax) noexcept;

/// Where codes and scales go: a matrix at least as large as the rows; what is beyond them is
/// quantised as zeros.
///
/// Shapes: codes [rows, row_bytes(k)], scales [scale_rows, scale_columns] of the scheme's encoding.
///         Codes may be empty if nobody asks. kTensorFp8 writes no scales: its scale is
///         online_matrix_scale.
struct OnlineOutput {
  std::uint64_t rows = 0;
  std::uint64_t k = 0;
  std::span<std::byte> codes;
  std::span<std::byte> scales;
};

/// Quantises rows; in strips of 128 rows (kBlockFp8) or any (the others) it gives the same bytes.
/// False where a number is not finite: then the bytes are those of no engine.
///
/// `encode` makes the codes (INT8 has none of these): the law, or a kernel that gives the same.
///
/// Shapes: amax as info(scheme).needs_amax says, else not read.
/// Memory: none but the stack.
[[nodiscard]] bool quantise_online(OnlineScheme scheme, const OnlineRows& rows, float amax,
                                   const OnlineOutput& out,
                                   pieces::EncodeFn encode = pieces::encode) noexcept;

/// The codes of rows whose scales are known: for schemes with one scale a row, whose numbers come
/// in parts. The same codes as quantise_online gives.
///
/// Shapes: rows [rows, k], out as above, its scales [rows] F32 and read.
void encode_scaled_rows(OnlineScheme scheme, const OnlineRows& rows, const OnlineOutput& out,
                        pieces::EncodeFn encode = pieces::encode) noexcept;

}  // namespace lode::formats
