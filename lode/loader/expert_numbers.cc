#include "lode/loader/expert_numbers.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <string>
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
  const std::uint64_t first_column = rows.bytes_here().begin / width;
  const Range first = rows.rows_here(0);
  const Range second = rows.num_halves == 2 ? rows.rows_here(1) : Range{0, 0};
  for (std::uint64_t i = 0; i < first.size() + second.size(); ++i) {
    const layout::HalfRow at = i < first.size()
                                   ? layout::HalfRow{0, first.begin + i}
                                   : layout::HalfRow{1, second.begin + i - first.size()};
    const std::span<const std::byte> row = rows.row_here(at);
    for (std::size_t column = 0; column < row.size() / width; ++column) {
      if (std::isfinite(formats::number_at(format, row, column))) continue;
      return BadNumber{at.half, at.row, first_column + column};
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

// Numbers of an expert that may be refused, and where their first byte lies in the files.
struct StoredRows {
  const layout::MatrixRows& rows;
  Format format;
  std::array<const Region*, 2> halves;
};

bool is_plain(Format format) { return format == Format::kBf16 || format == Format::kF16; }

}  // namespace

std::string place_in_files(std::uint32_t shard, std::uint64_t offset_bytes,
                           const checkpoint::TensorIndex* index) {
  if (index == nullptr) return {};
  for (const checkpoint::TensorRecord& tensor : index->tensors()) {
    const bool here = tensor.shard_id == shard && tensor.file_offset <= offset_bytes &&
                      offset_bytes - tensor.file_offset < tensor.bytes;
    if (!here) continue;
    return fmt::format("{} in {}", checkpoint::printable(tensor.name),
                       index->shards()[tensor.shard_id].path);
  }
  return {};
}

Error with_origin(Error error, const targets::ExpertSource& source, const NumberOrigin& origin) {
  if (error.code != Code::kInvalidSource || origin.index == nullptr) return error;
  const ExpertSource& stored = origin.expert;
  const MatrixSource& first = stored.gate.present ? stored.gate : stored.up;
  const Format codes = origin.encoding.element;
  const Format scales = origin.encoding.scale;
  const std::array<StoredRows, 4> all{
      {{source.gate_up_scales, scales, {&first.scales, &stored.up.scales}},
       {source.down_scales, scales, {&stored.down.scales, nullptr}},
       {source.gate_up, codes, {&first.codes, &stored.up.codes}},
       {source.down, codes, {&stored.down.codes, nullptr}}}};
  for (const StoredRows& one : all) {
    const bool is_codes = &one.rows == &source.gate_up || &one.rows == &source.down;
    if (one.rows.empty() || (is_codes && !is_plain(one.format))) continue;
    const auto bad = first_bad(one.rows, one.format);
    if (!bad) continue;
    const Region& region = *one.halves.at(bad->half);
    const std::string place = place_in_files(region.shard, region.offset_bytes, origin.index);
    if (place.empty()) break;
    error.where = error.where.empty() ? place : fmt::format("{}, {}", error.where, place);
    break;
  }
  return error;
}

Error with_advice(Error error, const checkpoint::TensorIndex* index) {
  const bool advised = error.code != Code::kInvalidSource || !error.hint.empty();
  if (advised || index == nullptr || index->shards().empty()) return error;
  const std::filesystem::path file = index->shards().front().path;
  error.hint = fmt::format("`lode verify {}` looks at all numbers", file.parent_path().string());
  return error;
}

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
