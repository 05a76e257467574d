#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lode/base/result.h"

namespace lode::checkpoint {

/// A regular expression out of a config file, matched without backtracking: a hostile pattern
/// costs its length times the name's, never more. Knows characters, '.', classes, groups (nothing
/// is captured), alternatives, the quantifiers ? * + {m,n} greedy or not, ^ and $, \d \w \s and
/// their opposites. Not: lookaround, references, word borders.
class NameRegex {
 public:
  /// Errors: kUnsupported naming the pattern for what is not known; kInvalidSource for bad syntax
  /// and for a pattern that is too large (1 KiB, 2,000 states).
  static Result<NameRegex> compile(std::string_view pattern);

  /// Whether the pattern matches some beginning of `text`, as Python's re.match does.
  bool matches_start(std::string_view text) const;

 private:
  friend class NameRegexParser;
  enum class Kind : std::uint8_t { kSet, kSplit, kStart, kEnd, kAccept };
  struct State {
    Kind kind = Kind::kAccept;
    std::uint32_t set = 0;  // position in sets_
    std::uint32_t next = 0;
    std::uint32_t other = 0;  // second way of a split
  };
  void follow(std::uint32_t state, std::size_t at, std::size_t length,
              std::vector<std::uint32_t>& list, std::vector<bool>& seen) const;

  std::vector<State> states_;
  std::vector<std::bitset<256>> sets_;
  std::uint32_t first_ = 0;
};

}  // namespace lode::checkpoint
