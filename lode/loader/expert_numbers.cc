#include "lode/loader/expert_numbers.h"

#include <array>
#include <cmath>
#include <string_view>

#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/loader/bind_matrix.h"

namespace lode::loader {
namespace {

using formats::Format;

struct NamedRows {
  layout::MatrixRows targets::ExpertSource::*rows;
  std::array<std::string_view, 2> halves;
};
constexpr std::array<NamedRows, 2> kScales{
    {{&targets::ExpertSource::gate_up_scales, {"gate", "up"}},
     {&targets::ExpertSource::down_scales, {"down", ""}}}};

// A number that no producer means: its half, row and column.
struct BadNumber {
  std::uint32_t half = 0;
  std::uint64_t row = 0;
  std::uint64_t column = 0;
};

std::optional<BadNumber> first_bad(const layout::MatrixRows& rows, Format format) {
  const std::size_t width = number_bytes(format);
  for (std::uint64_t i = 0; i < rows.num_halves * rows.half_rows; ++i) {
    const layout::HalfRow at{static_cast<std::uint32_t>(i / rows.half_rows), i % rows.half_rows};
    const std::span<const std::byte> row = rows.row(at);
    for (std::size_t column = 0; column < row.size() / width; ++column) {
      if (std::isfinite(formats::number_at(format, row, column))) continue;
      return BadNumber{at.half, at.row, column};
    }
  }
  return std::nullopt;
}

bool any_bad(const layout::CodeCounts& counts, Format format) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const std::byte byte{static_cast<std::uint8_t>(code)};
    if (counts.of[0][code] + counts.of[1][code] == 0) continue;
    if (!std::isfinite(formats::number_at(format, {&byte, 1}, 0))) return true;
  }
  return false;
}

}  // namespace

Result<std::optional<layout::CodeCounts>> check_block_scales(const targets::ExpertSource& source,
                                                             Format format,
                                                             parallel::ThreadPool* pool) {
  std::optional<layout::CodeCounts> counts;
  std::size_t counted = 0;
  for (const NamedRows& named : kScales) {
    const layout::MatrixRows& rows = source.*named.rows;
    if (rows.empty()) continue;
    if (number_bytes(format) == 1) {
      counts = layout::count_codes(rows, pool);
      ++counted;
      if (!any_bad(*counts, format)) continue;
    }
    const auto bad = first_bad(rows, format);
    if (!bad) continue;
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("block scale of {}, row of blocks {}, column {}",
                                      named.halves.at(bad->half), bad->row, bad->column),
                 .wanted = "a finite number",
                 .found = "NaN or infinity"};
  }
  if (counted > 1) counts.reset();
  return counts;
}

}  // namespace lode::loader
