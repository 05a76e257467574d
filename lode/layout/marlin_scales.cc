#include "lode/layout/marlin_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/bf16.h"
#include "lode/formats/e4m3.h"
#include "lode/formats/e8m0.h"
#include "lode/formats/f16.h"
#include "lode/kernels/kernel_table.h"

namespace lode::layout {
namespace {

using formats::Format;

constexpr std::uint32_t kS0e5m3One = 7;        // scales come as scale * 2^7
constexpr std::uint32_t kBiasDifference = 15;  // of S0E5M3's exponents and E4M3's
constexpr std::uint8_t kS0e5m3Special = 0xF8;  // exponent 31: infinite or NaN
constexpr std::uint8_t kE4m3Nan = 0x7F;
constexpr std::uint8_t kMostMxfp4 = 249;
constexpr std::uint64_t kBlock = kernels::ScaleColumns::kMost;

std::uint64_t middle_swapped(std::uint64_t column) noexcept {
  constexpr std::array<std::uint64_t, 4> kOrder{0, 2, 1, 3};
  return column - column % 4 + kOrder[column % 4];
}
// Both are their own inverses.
std::uint64_t turned(MarlinScaleMap map, std::uint64_t column) noexcept {
  if (map == MarlinScaleMap::kGrouped) {
    const std::uint64_t p = column % 64;
    return column - p + p / 8 + 8 * (p % 8);
  }
  const std::uint64_t p = column % 32;
  return column - p + 2 * (p / 8) + 8 * (p % 8 / 2) + p % 2;
}

std::uint16_t to_16(float value, Format format) noexcept {
  return format == Format::kF16 ? formats::encode_f16(value) : formats::encode_bf16(value);
}
float from_16(std::uint16_t bits, Format format) noexcept {
  return format == Format::kF16 ? formats::decode_f16(bits) : formats::decode_bf16(bits);
}

// A code's place is nearer to zero in the kernel's format than the code's own: by 2^this.
int nvfp4_exponent(Format activations) noexcept {
  return (activations == Format::kF16 ? 14 : 126) - static_cast<int>(kS0e5m3One);
}
float fp8_unit(Format activations) noexcept {
  return activations == Format::kF16 ? 0x1p8F : 0x1p120F;
}

}  // namespace

std::uint64_t MarlinScaleOrder::row_at(std::uint64_t column) const noexcept {
  return turned(map, middle_swapped ? layout::middle_swapped(column) : column);
}

std::uint64_t MarlinScaleOrder::column_of(std::uint64_t row) const noexcept {
  const std::uint64_t column = turned(map, row);
  return middle_swapped ? layout::middle_swapped(column) : column;
}

MarlinScaleMap marlin_scale_map(std::uint64_t group, std::uint64_t k,
                                bool narrow_activations) noexcept {
  const bool grouped = group != formats::kWhole && group < k && !narrow_activations;
  return grouped ? MarlinScaleMap::kGrouped : MarlinScaleMap::kSingle;
}

float nvfp4_marlin_factor(float largest, Format activations) noexcept {
  if (activations == Format::kF16 || !(largest > 0.0F) || largest >= formats::kE4m3Max) return 1.0F;
  return std::ldexp(1.0F, std::ilogb(formats::kE4m3Max / largest));
}

ByteTable nvfp4_marlin_bytes(float factor, Format activations) noexcept {
  // What a NaN becomes on its way through BF16, or stays.
  const std::uint8_t nan = activations == Format::kF16 ? 0xFF : 0xFC;
  ByteTable table{};
  for (std::uint32_t code = 0; code < table.size(); ++code) {
    const float scale = formats::decode_e4m3(static_cast<std::uint8_t>(code));
    const float value = scale * factor * 128.0F;
    if (std::isnan(scale)) {
      table[code] = nan;
    } else if (value >= 2.0F) {
      table[code] = static_cast<std::uint8_t>(formats::encode_f16(value) >> 7);
    }
  }
  return table;
}

std::uint8_t e4m3_of_s0e5m3(std::uint8_t byte) noexcept {
  if (byte >= kS0e5m3Special) return kE4m3Nan;
  return byte < 0x80 ? std::uint8_t{0} : static_cast<std::uint8_t>(byte - (kBiasDifference << 3));
}

float nvfp4_marlin_global(float scale, float factor, Format activations) noexcept {
  return std::ldexp(scale / factor, nvfp4_exponent(activations));
}

float nvfp4_scale_of_global(float global, Format activations) noexcept {
  return std::ldexp(global, -nvfp4_exponent(activations));
}

ByteTable mx_marlin_bytes(Format activations, bool add_six) noexcept {
  ByteTable table{};
  for (std::uint32_t code = 0; code < table.size(); ++code) {
    const float scale = formats::decode_e8m0(static_cast<std::uint8_t>(code));
    std::uint8_t byte = formats::encode_e8m0(from_16(to_16(scale, activations), activations));
    if (add_six) byte = byte > kMostMxfp4 ? formats::kE8m0Nan : static_cast<std::uint8_t>(byte + 6);
    table[code] = byte;
  }
  return table;
}

std::uint16_t fp8_marlin_scale(float scale, Format activations) noexcept {
  const float rounded = from_16(to_16(scale, activations), activations);
  return to_16(rounded * fp8_unit(activations), activations);
}

float scale_of_fp8_marlin(std::uint16_t bits, Format activations) noexcept {
  return from_16(bits, activations) / fp8_unit(activations);
}

void marlin_scale_bytes(const MarlinScaleBytes& scales, std::uint64_t first_group,
                        std::span<std::byte> out) noexcept {
  const kernels::KernelTable& isa = kernels::active_or_plainest();
  const std::uint64_t row_bytes = scales.source.row_bytes;
  kernels::ScaleColumns block;
  block.row_bytes = row_bytes - std::min(first_group, row_bytes);
  block.num_groups = out.size() / scales.rows.rows();
  block.out_step_bytes = scales.rows.rows();
  for (std::uint64_t begin = 0; begin < scales.rows.rows(); begin += kBlock) {
    block.num_columns = std::min(kBlock, scales.rows.rows() - begin);
    for (std::uint64_t column = 0; column < block.num_columns; ++column) {
      const HalfRow at = scales.rows.at(scales.columns.row_at(begin + column));
      const auto row = scales.source.row(at);
      const bool there = !row.empty() && block.row_bytes > 0;
      block.rows[column] = there ? row.data() + first_group : nullptr;
      block.tables[column] = scales.tables[at.half].data();
    }
    block.out = out.data() + begin;
    isa.scales_to_columns(block);
  }
}

void marlin_row_of_words(const MarlinScaleOrder& columns, const RowOrder& rows,
                         parallel::FunctionRef<std::uint16_t(const HalfRow&)> number,
                         std::span<std::byte> out) noexcept {
  for (std::uint64_t column = 0; column < rows.rows(); ++column) {
    const std::uint16_t word = number(rows.at(columns.row_at(column)));
    std::memcpy(out.data() + column * sizeof(word), &word, sizeof(word));
  }
}

Result<MarlinSize> marlin_padded_size(const MarlinSize& size, std::uint64_t group) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;  // its square is counted by 64 bits
  const std::uint64_t unit = group == 0 ? 1 : group;
  if (size.rows > kMost / 2 || size.k > kMost / 4 || unit > kMost / 512) {
    return Error{.code = Code::kUnsupported,
                 .thing = "sizes of a matrix for Marlin tiles",
                 .wanted = "sizes of a matrix",
                 .found = fmt::format("{} rows, {} k, groups of {}", size.rows, size.k, group)};
  }
  const auto padded = [&](std::uint64_t rows, std::uint64_t k) {
    return MarlinSize{align_up(size.rows, rows), align_up(size.k, std::lcm(k, unit))};
  };
  const MarlinSize low = padded(64, 128), wide = padded(128, 64);
  const auto cost = [](const MarlinSize& a) { return std::pair(a.rows * a.k, a.rows + a.k); };
  return cost(wide) < cost(low) ? wide : low;
}

Result<std::uint64_t> marlin_padded_intermediate(std::uint64_t intermediate, std::uint64_t group) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;
  const std::uint64_t unit = group == 0 ? 1 : group;
  if (intermediate > kMost || unit > kMost) {
    return Error{.code = Code::kUnsupported,
                 .thing = "intermediate size of experts for Marlin tiles",
                 .wanted = "a size of a matrix",
                 .found = fmt::format("{}, groups of {}", intermediate, group)};
  }
  return align_up(intermediate, std::lcm(std::uint64_t{64}, unit));
}

}  // namespace lode::layout
