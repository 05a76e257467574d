#include "lode/placement/assignment.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lode/base/check.h"

namespace lode::placement {
namespace {

// The shortest augmenting paths of Kuhn and Munkres, with potentials of rows and columns. Row and
// column 0 are not real, so that a path has a place to begin; costs are gains turned round.
class Exact {
 public:
  Exact(std::span<const std::int64_t> gains, std::size_t n)
      : gains_(gains), n_(n), row_(n + 1), column_(n + 1), row_of_(n + 1), from_(n + 1) {}

  std::vector<std::size_t> solve() {
    for (std::size_t row = 1; row <= n_; ++row) insert(row);
    std::vector<std::size_t> columns(n_);
    for (std::size_t column = 1; column <= n_; ++column) columns[row_of_[column] - 1] = column - 1;
    return columns;
  }

 private:
  std::int64_t reduced_cost(std::size_t row, std::size_t column) const {
    // Scaled so that staying breaks ties and never outweighs a gain.
    const auto scale = static_cast<std::int64_t>(n_ + 1);
    const std::int64_t gain = gains_[(row - 1) * n_ + column - 1] * scale + (row == column ? 1 : 0);
    return -gain - row_[row] - column_[column];
  }

  // Looks from the row of `at` at all free columns and steps to the nearest.
  std::size_t step(std::size_t at) {
    used_[at] = true;
    std::size_t next = 0;
    for (std::size_t column = 1; column <= n_; ++column) {
      if (used_[column]) continue;
      const std::int64_t cost = reduced_cost(row_of_[at], column);
      if (cost < nearest_[column]) {
        nearest_[column] = cost;
        from_[column] = at;
      }
      if (next == 0 || nearest_[column] < nearest_[next]) next = column;
    }
    const std::int64_t distance = nearest_[next];
    for (std::size_t column = 0; column <= n_; ++column) {
      if (used_[column]) {
        row_[row_of_[column]] += distance;
        column_[column] -= distance;
      } else {
        nearest_[column] -= distance;
      }
    }
    return next;
  }

  void insert(std::size_t row) {
    row_of_[0] = row;
    nearest_.assign(n_ + 1, std::numeric_limits<std::int64_t>::max() / 2);
    used_.assign(n_ + 1, false);
    std::size_t at = 0;
    do at = step(at);
    while (row_of_[at] != 0);
    while (at != 0) {
      row_of_[at] = row_of_[from_[at]];
      at = from_[at];
    }
  }

  std::span<const std::int64_t> gains_;
  std::size_t n_;
  std::vector<std::int64_t> row_, column_, nearest_;
  std::vector<std::size_t> row_of_, from_;
  std::vector<bool> used_;
};

std::vector<std::size_t> assign_greedily(std::span<const std::int64_t> gains, std::size_t n) {
  std::vector<std::size_t> cells(n * n);
  std::iota(cells.begin(), cells.end(), std::size_t{0});
  std::erase_if(cells, [&](std::size_t cell) { return gains[cell] == 0 && cell / n != cell % n; });
  std::ranges::stable_sort(cells, [&](std::size_t a, std::size_t b) {
    if (gains[a] != gains[b]) return gains[a] > gains[b];
    return (a / n == a % n) > (b / n == b % n);
  });
  std::vector<std::size_t> columns(n, n);
  std::vector<bool> taken(n);
  for (const std::size_t cell : cells) {
    if (columns[cell / n] != n || taken[cell % n]) continue;
    columns[cell / n] = cell % n;
    taken[cell % n] = true;
  }
  std::size_t free = 0;
  for (std::size_t& column : columns) {
    if (column != n) continue;
    while (taken[free]) ++free;
    column = free++;
  }
  return columns;
}

}  // namespace

std::vector<std::size_t> assign(std::span<const std::int64_t> gains, std::size_t n) {
  LODE_CHECK(gains.size() == n * n, "a gain for each pair");
  return n <= kMaxExactAssignment ? Exact(gains, n).solve() : assign_greedily(gains, n);
}

}  // namespace lode::placement
