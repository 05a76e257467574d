#include "lode/layout/code_counts.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <span>

#include "lode/base/bytes.h"
#include "lode/formats/dequantise.h"

namespace lode::layout {
namespace {

constexpr std::uint64_t kTaskBytes = 256 * kKiB;
// A byte that follows its like would wait for the count before it: neighbours count apart.
constexpr std::size_t kApart = 4;

using Counts = std::array<std::array<std::uint32_t, 256>, kApart>;

void count_row(std::span<const std::byte> row, Counts& counts) noexcept {
  const std::size_t whole = row.size() / kApart * kApart;
  for (std::size_t i = 0; i < whole; i += kApart) {
    for (std::size_t j = 0; j < kApart; ++j) {
      ++counts[j][std::to_integer<std::uint8_t>(row[i + j])];
    }
  }
  for (std::size_t i = whole; i < row.size(); ++i) {
    ++counts[0][std::to_integer<std::uint8_t>(row[i])];
  }
}

struct Sums {
  std::array<std::array<std::atomic<std::uint64_t>, 256>, 2> of{};

  void add(std::uint32_t half, const Counts& counts) noexcept {
    for (std::size_t code = 0; code < 256; ++code) {
      std::uint64_t sum = 0;
      for (const auto& apart : counts) sum += apart[code];
      if (sum > 0) of[half][code].fetch_add(sum, std::memory_order_relaxed);
    }
  }
};

}  // namespace

CodeCounts count_codes(const MatrixRows& rows, parallel::ThreadPool* pool) {
  Sums sums;
  const std::uint64_t row_bytes = std::max<std::uint64_t>(rows.bytes_here().size(), 1);
  const std::uint64_t at_once = std::max<std::uint64_t>(kTaskBytes / row_bytes, 1);
  const auto strips_of = [&](std::uint32_t half) {
    return half < rows.num_halves ? ceil_div(rows.rows_here(half).size(), at_once) : 0;
  };
  const std::uint64_t first_strips = strips_of(0);
  const auto count_strip = [&](std::size_t task, std::size_t) {
    const std::uint32_t half = task < first_strips ? 0 : 1;
    const Range here = rows.rows_here(half);
    const std::uint64_t first = here.begin + (task - half * first_strips) * at_once;
    Counts counts{};
    for (std::uint64_t row = first; row < std::min(here.end, first + at_once); ++row) {
      count_row(rows.row_here({half, row}), counts);
    }
    sums.add(half, counts);
  };
  const std::size_t tasks = first_strips + strips_of(1);
  if (pool != nullptr && tasks > 1) {
    pool->run(tasks, count_strip);
  } else {
    for (std::size_t task = 0; task < tasks; ++task) count_strip(task, 0);
  }
  CodeCounts counts;
  for (std::size_t half = 0; half < 2; ++half) {
    for (std::size_t code = 0; code < 256; ++code) counts.of[half][code] = sums.of[half][code];
  }
  return counts;
}

float largest_number(const CodeCounts& counts, formats::Format format) noexcept {
  float largest = 0.0F;
  for (std::size_t code = 0; code < 256; ++code) {
    if (counts.of[0][code] + counts.of[1][code] == 0) continue;
    const std::byte byte{static_cast<std::uint8_t>(code)};
    largest = std::fmax(largest, formats::number_at(format, {&byte, 1}, 0));
  }
  return largest;
}

}  // namespace lode::layout
