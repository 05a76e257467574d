#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/name_regex.h"

namespace lode::checkpoint {

/// Builds the states of a NameRegex, from the end of the pattern's parts to their beginning:
/// each part is made with the state to go to after it.
class NameRegexParser {
 public:
  explicit NameRegexParser(std::string_view pattern) : pattern_(pattern) {}

  /// Errors: as NameRegex::compile.
  Result<NameRegex> run();

 private:
  using CharSet = std::bitset<256>;
  // A parsed part as a tree; states are made from it afterwards, as often as it is repeated.
  enum class Kind : std::uint8_t { kSet, kStart, kEnd, kSequence, kAlternatives, kRepeat };
  struct Node {
    Kind kind = Kind::kSequence;
    CharSet set{};
    std::vector<std::size_t> children{};
    std::uint32_t least = 0, most = 0;  // of kRepeat; most 0: no bound
  };

  Result<std::size_t> alternatives(int depth);
  Result<std::size_t> sequence(int depth);
  Result<std::size_t> item(int depth);
  Result<std::size_t> group(int depth);
  Result<std::size_t> repeated(std::size_t inner);
  Result<std::size_t> escape();
  Result<std::size_t> char_class();
  Result<CharSet> escaped_set();
  Result<CharSet> class_member();
  std::optional<std::pair<std::uint32_t, std::uint32_t>> bounds();
  std::optional<std::uint32_t> number();

  std::size_t add(Node node);
  std::uint32_t emit(std::size_t node, std::uint32_t next);
  std::uint32_t emit_repeat(const Node& node, std::uint32_t next);
  std::uint32_t state(NameRegex::State state);

  bool done() const { return at_ == pattern_.size(); }
  bool eat(std::string_view text);
  Error unknown(std::string_view what) const;
  Error bad(std::string_view what) const;

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::vector<Node> nodes_;
  NameRegex out_;
  bool too_large_ = false;
  std::size_t emitted_ = 0;  // nodes, those without states too
};

}  // namespace lode::checkpoint
