#include "lode/layout/sm90_mixed.h"

#include "lode/kernels/kernel_table.h"

namespace lode::layout {
namespace {

using Bits = std::array<std::uint8_t, 8>;
// By bit 0..7 of a byte; the drawing has them from the left.
constexpr std::array<Bits, 4> kWordBits{{{6, 7, 8, 15, 22, 23, 24, 31},
                                         {3, 4, 5, 12, 19, 20, 21, 28},
                                         {0, 1, 2, 9, 16, 17, 18, 25},
                                         {13, 10, 11, 14, 29, 26, 27, 30}}};

}  // namespace

std::string_view name(Sm90Version version) noexcept {
  return version == Sm90Version::kFlashinfer07 ? "0.7" : "0.6.16";
}

std::optional<Sm90Version> sm90_version_by_name(std::string_view name) noexcept {
  const auto is = [&](std::string_view begin) {
    return name == begin || (name.starts_with(begin) && name[begin.size()] == '.');
  };
  if (is("0.7")) return Sm90Version::kFlashinfer07;
  if (is("0.6.16")) return Sm90Version::kFlashinfer0616;
  return std::nullopt;
}

BitPlace sm90_place(Sm90Version version, const BitPlace& from) noexcept {
  const std::uint64_t h = from.row % kSm90TileRows / 8;
  const std::uint64_t c = from.column % kSm90TileBytes;
  const std::uint64_t row = from.row - 8 * h + 8 * (c / 8 % 2);
  const std::uint64_t column = from.column - c + 16 * (c / 16) + 4 * (c % 4);
  if (version == Sm90Version::kFlashinfer0616) {
    return {row, column + 2 * (c % 8 / 4) + from.bit / 4,
            static_cast<std::uint32_t>(4 * h + from.bit % 4)};
  }
  const std::uint32_t bit = kWordBits[h + 2 * (c % 8 / 4)][from.bit];
  return {row, column + bit / 8, bit % 8};
}

void sm90_codes_into(const OrderedRows& from, Sm90Version version, std::uint64_t first,
                     std::span<std::byte> out) noexcept {
  const kernels::KernelTable& table = kernels::active_or_plainest();
  const bool is_07 = version == Sm90Version::kFlashinfer07;
  for (std::uint64_t upper = 0; upper < out.size() / from.row_bytes; ++upper) {
    if (upper % kSm90TileRows >= 8) continue;
    const std::uint64_t position = first * kSm90TileRows + upper;
    std::byte* const to = out.data() + upper * from.row_bytes;
    table.mix_rows(
        {.order = is_07 ? kernels::MixedOrder::kBf16Places : kernels::MixedOrder::kNibblePairs,
         .upper = from.rows.row(from.order.at(position)).data(),
         .lower = from.rows.row(from.order.at(position + 8)).data(),
         .source_bytes = from.rows.row_bytes,
         .upper_out = to,
         .lower_out = to + 8 * from.row_bytes,
         .out_bytes = from.row_bytes});
  }
}

}  // namespace lode::layout
