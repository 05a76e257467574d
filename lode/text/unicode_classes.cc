#include "lode/text/unicode_classes.h"

#include <array>
#include <charconv>
#include <map>
#include <vector>

#include "lode/base/check.h"
#include "lode/text/unicode_tables.h"

namespace lode::text {
namespace {

constexpr std::size_t kBlock = 128;
constexpr std::size_t kNumCodePoints = 0x110000;

// Two stages: a block number for every 128 code points, and the distinct blocks.
struct ClassTable {
  std::array<std::uint16_t, kNumCodePoints / kBlock> block_of{};
  std::vector<CharClass> blocks;
};

std::vector<CharClass> expand_runs() {
  std::vector<CharClass> classes;
  classes.reserve(kNumCodePoints);
  const char* at = kClassRuns.data();
  const char* const end = at + kClassRuns.size();
  while (at != end) {
    const CharClass set = kClassSets[*at++ - 'a'];
    std::size_t length = 1;
    at = std::from_chars(at, end, length).ptr;  // leaves 1 where no digit stands
    classes.insert(classes.end(), length, set);
  }
  LODE_CHECK(classes.size() == kNumCodePoints, "the runs cover the code space");
  return classes;
}

ClassTable make_table() {
  const std::vector<CharClass> classes = expand_runs();
  ClassTable table;
  std::map<std::vector<CharClass>, std::uint16_t> known;
  for (std::size_t i = 0; i < table.block_of.size(); ++i) {
    const auto from = classes.begin() + static_cast<std::ptrdiff_t>(i * kBlock);
    std::vector<CharClass> block(from, from + kBlock);
    const auto [found, fresh] =
        known.try_emplace(std::move(block), static_cast<std::uint16_t>(known.size()));
    if (fresh) table.blocks.insert(table.blocks.end(), from, from + kBlock);
    table.block_of[i] = found->second;
  }
  table.blocks.shrink_to_fit();
  return table;
}

const ClassTable& class_table() {
  static const ClassTable table = make_table();
  return table;
}

}  // namespace

CharClass class_of(char32_t code_point) noexcept {
  static const ClassTable& table = class_table();
  if (code_point >= kNumCodePoints) return 0;
  return table.blocks[table.block_of[code_point / kBlock] * kBlock + code_point % kBlock];
}

ClassedChar char_at(std::string_view text, std::size_t position) noexcept {
  if (position >= text.size()) return {};
  const Utf8Step step = utf8_step(text, position);
  return {step.code_point, step.length, class_of(step.code_point)};
}

ClassedChar char_before(std::string_view text, std::size_t position) noexcept {
  if (position == 0) return {};
  std::size_t start = position - 1;
  while (start > 0 && is_utf8_continuation(text[start])) --start;
  return char_at(text, start);
}

}  // namespace lode::text
