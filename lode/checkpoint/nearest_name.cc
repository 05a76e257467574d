#include "lode/checkpoint/nearest_name.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lode::checkpoint {
namespace {

// Names differ in the middle: what they begin and end with costs nothing.
void strip_common(std::string_view& a, std::string_view& b) {
  const auto ends = std::ranges::mismatch(a, b);
  a.remove_prefix(static_cast<std::size_t>(ends.in1 - a.begin()));
  b.remove_prefix(static_cast<std::size_t>(ends.in2 - b.begin()));
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.remove_suffix(1);
    b.remove_suffix(1);
  }
}

}  // namespace

std::optional<std::size_t> edit_distance(std::string_view a, std::string_view b,
                                         std::size_t limit) {
  strip_common(a, b);
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > limit) return std::nullopt;
  if (a.empty()) return b.size();
  const std::size_t too_far = limit + 1;
  // Row i: distances of the first i of a to each beginning of b, within the band of the limit.
  std::vector<std::size_t> row(b.size() + 1, too_far);
  for (std::size_t j = 0; j <= std::min(b.size(), limit); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    const std::size_t from = i > limit ? i - limit : 1;
    const std::size_t to = std::min(b.size(), i + limit);
    std::size_t diagonal = row[from - 1];
    row[from - 1] = from == 1 ? std::min(i, too_far) : too_far;
    std::size_t best = row[from - 1];
    for (std::size_t j = from; j <= to; ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1, too_far});
      best = std::min(best, row[j]);
    }
    if (best > limit) return std::nullopt;
  }
  if (row[b.size()] > limit) return std::nullopt;
  return row[b.size()];
}

}  // namespace lode::checkpoint
