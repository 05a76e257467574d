#include "lode/checkpoint/nearest_name.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace lode::checkpoint {
namespace {

// The textbook table, without bands or shortcuts.
std::size_t plain_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
      } else {
        const std::size_t replaced = table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
        table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, replaced});
      }
    }
  }
  return table[a.size()][b.size()];
}

TEST(EditDistance, OfKnownPairs) {
  EXPECT_EQ(edit_distance("kitten", "sitting", 10), 3U);
  EXPECT_EQ(edit_distance("", "abc", 3), 3U);
  EXPECT_EQ(edit_distance("same", "same", 0), 0U);
  EXPECT_EQ(edit_distance("abcd", "abxd", 0), std::nullopt);
  EXPECT_EQ(edit_distance("kitten", "sitting", 2), std::nullopt);
}

TEST(EditDistance, AgreesWithTheTextbookWithinItsLimit) {
  std::mt19937 random(1);
  const auto text = [&] {
    std::string out(random() % 12, 'a');
    for (char& c : out) c = static_cast<char>('a' + random() % 3);
    return out;
  };
  for (int round = 0; round < 20'000; ++round) {
    const std::string a = text();
    const std::string b = text();
    const std::size_t limit = random() % 13;
    const std::size_t distance = plain_distance(a, b);
    const auto found = edit_distance(a, b, limit);
    if (distance <= limit) {
      ASSERT_EQ(found, distance) << a << " " << b << " limit " << limit;
    } else {
      ASSERT_EQ(found, std::nullopt) << a << " " << b << " limit " << limit;
    }
  }
}

}  // namespace
}  // namespace lode::checkpoint
