#pragma once

#include <array>
#include <cstdint>

#include "lode/formats/format.h"
#include "lode/layout/matrix_rows.h"
#include "lode/parallel/thread_pool.h"

namespace lode::layout {

/// How often each byte occurs in each half: what a table of 256 does to a matrix is known from
/// these, without another look at it.
/// Source: none; a count.
struct CodeCounts {
  std::array<std::array<std::uint64_t, 256>, 2> of{};

  friend bool operator==(const CodeCounts&, const CodeCounts&) = default;
};

/// Counts all bytes of the rows that are in memory; of a matrix of one half the other counts
/// nothing. The same numbers for any number of threads; `pool` may be null.
///
/// Shapes: rows halves [half_rows, row_bytes].
/// Memory: 8 KiB of stack a thread.
CodeCounts count_codes(const MatrixRows& rows, parallel::ThreadPool* pool = nullptr);

/// The largest number that occurs in a format of one byte a number; 0 where none is above it. NaN
/// is not above any.
float largest_number(const CodeCounts& counts, formats::Format format) noexcept;

}  // namespace lode::layout
