#include "lode/checkpoint/name_regex_parser.h"

#include <algorithm>
#include <tuple>

#include "lode/base/fmt.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {
namespace {

constexpr std::size_t kMaxPatternBytes = 1024;
constexpr std::size_t kMaxStates = 2'000;
constexpr std::size_t kMaxEmitted = 10'000;
constexpr int kMaxDepth = 50;
constexpr std::uint32_t kMaxRepeat = 1000;
constexpr std::string_view kPlainPunctuation = "-_/.:*+?()[]{}|^$\\ ,=<>#&~@!%\"'`;";

std::bitset<256> one_char(char c) {
  std::bitset<256> set;
  set.set(static_cast<unsigned char>(c));
  return set;
}

std::bitset<256> range(char from, char to) {
  std::bitset<256> set;
  for (unsigned c = static_cast<unsigned char>(from); c <= static_cast<unsigned char>(to); ++c) {
    set.set(c);
  }
  return set;
}

// \d \w \s and, by capital letter, all the others.
std::optional<std::bitset<256>> named_set(char letter) {
  const auto digits = range('0', '9');
  const auto words = digits | range('a', 'z') | range('A', 'Z') | one_char('_');
  const auto spaces = range('\t', '\r') | one_char(' ');
  switch (letter) {
    case 'd':
      return digits;
    case 'D':
      return ~digits;
    case 'w':
      return words;
    case 'W':
      return ~words;
    case 's':
      return spaces;
    case 'S':
      return ~spaces;
    default:
      return std::nullopt;
  }
}

}  // namespace

Error NameRegexParser::unknown(std::string_view what) const {
  return {.code = Code::kUnsupported,
          .thing = fmt::format("pattern re:{}", printable(pattern_)),
          .found = std::string(what)};
}

Error NameRegexParser::bad(std::string_view what) const {
  return {.code = Code::kInvalidSource,
          .thing = fmt::format("pattern re:{}", printable(pattern_)),
          .wanted = "a regular expression",
          .found = std::string(what)};
}

bool NameRegexParser::eat(std::string_view text) {
  if (!pattern_.substr(at_).starts_with(text)) return false;
  at_ += text.size();
  return true;
}

std::size_t NameRegexParser::add(Node node) {
  nodes_.push_back(std::move(node));
  return nodes_.size() - 1;
}

Result<NameRegex> NameRegexParser::run() {
  if (pattern_.size() > kMaxPatternBytes) return bad("more than 1024 bytes");
  LODE_TRY(const std::size_t root, alternatives(0));
  if (!done()) return bad("a ) too many");
  const std::uint32_t accept = state({.kind = NameRegex::Kind::kAccept});
  out_.first_ = emit(root, accept);
  if (too_large_) return bad("repeats that make it too large");
  return std::move(out_);
}

Result<std::size_t> NameRegexParser::alternatives(int depth) {
  if (depth > kMaxDepth) return bad("groups nested too deep");
  Node node{.kind = Kind::kAlternatives};
  do {
    LODE_TRY(const std::size_t part, sequence(depth));
    node.children.push_back(part);
  } while (eat("|"));
  return add(std::move(node));
}

Result<std::size_t> NameRegexParser::sequence(int depth) {
  Node node{.kind = Kind::kSequence};
  while (!done() && pattern_[at_] != '|' && pattern_[at_] != ')') {
    LODE_TRY(const std::size_t inner, item(depth));
    LODE_TRY(const std::size_t part, repeated(inner));
    node.children.push_back(part);
  }
  return add(std::move(node));
}

Result<std::size_t> NameRegexParser::item(int depth) {
  const char c = pattern_[at_++];
  switch (c) {
    case '^':
      return add({.kind = Kind::kStart});
    case '$':
      return add({.kind = Kind::kEnd});
    case '.':
      return add({.kind = Kind::kSet, .set = ~one_char('\n')});
    case '(':
      return group(depth);
    case '[':
      return char_class();
    case '\\':
      return escape();
    case '*':
    case '+':
    case '?':
      return bad("nothing to repeat");
    default:
      return add({.kind = Kind::kSet, .set = one_char(c)});
  }
}

Result<std::size_t> NameRegexParser::group(int depth) {
  if (!eat("?:") && eat("?")) return unknown("a group with ?");
  LODE_TRY(const std::size_t inner, alternatives(depth + 1));
  if (!eat(")")) return bad("a group without end");
  return inner;
}

std::optional<std::uint32_t> NameRegexParser::number() {
  const std::size_t begin = at_;
  std::uint32_t value = 0;
  while (!done() && pattern_[at_] >= '0' && pattern_[at_] <= '9' && value <= kMaxRepeat) {
    value = 10 * value + static_cast<std::uint32_t>(pattern_[at_++] - '0');
  }
  return at_ == begin ? std::nullopt : std::optional(value);
}

// {m}, {m,} or {m,n} after the brace; none where it is no such thing (then it is a plain brace).
std::optional<std::pair<std::uint32_t, std::uint32_t>> NameRegexParser::bounds() {
  const std::size_t begin = at_;
  const auto least = number();
  auto most = least;
  if (least && eat(",")) most = number().value_or(0);
  if (least && eat("}")) return std::pair(*least, *most);
  at_ = begin;
  return std::nullopt;
}

Result<std::size_t> NameRegexParser::repeated(std::size_t inner) {
  Node node{.kind = Kind::kRepeat, .children = {inner}};
  const std::size_t begin = at_;
  bool bounded = false;
  if (eat("*")) {
  } else if (eat("+")) {
    node.least = 1;
  } else if (eat("?")) {
    node.most = 1;
  } else if (eat("{")) {
    const auto limits = bounds();
    if (!limits) {
      at_ = begin;
      return inner;
    }
    std::tie(node.least, node.most) = *limits;
    bounded = true;
  } else {
    return inner;
  }
  if (bounded && node.most != 0 && node.most < node.least) return bad("{m,n} with m above n");
  if (std::max(node.least, node.most) > kMaxRepeat) return bad("a repeat above 1000");
  if (bounded && node.least == 0 && node.most == 0 && pattern_[at_ - 2] != ',') {
    return add({.kind = Kind::kSequence});  // {0}: nothing
  }
  eat("?");  // lazy or greedy: whether it matches is the same
  if (!done() && (pattern_[at_] == '*' || pattern_[at_] == '+')) return unknown("a double repeat");
  return add(std::move(node));
}

Result<std::bitset<256>> NameRegexParser::escaped_set() {
  if (done()) return bad("a \\ at the end");
  const char c = pattern_[at_++];
  if (const auto set = named_set(c)) return *set;
  if (kPlainPunctuation.find(c) != kPlainPunctuation.npos) return one_char(c);
  return unknown(fmt::format("\\{}", c));
}

Result<std::size_t> NameRegexParser::escape() {
  LODE_TRY(const CharSet set, escaped_set());
  return add({.kind = Kind::kSet, .set = set});
}

// One member of a [class]: a character, a range, or a named set.
Result<std::bitset<256>> NameRegexParser::class_member() {
  const char from = pattern_[at_++];
  if (from == '\\') return escaped_set();
  const bool is_range =
      at_ + 1 < pattern_.size() && pattern_[at_] == '-' && pattern_[at_ + 1] != ']';
  if (!is_range) return one_char(from);
  const char to = pattern_[at_ + 1];
  at_ += 2;
  if (to == '\\') return unknown("a range up to an escape");
  if (static_cast<unsigned char>(to) < static_cast<unsigned char>(from))
    return bad("a range backwards");
  return range(from, to);
}

Result<std::size_t> NameRegexParser::char_class() {
  const bool negated = eat("^");
  CharSet set;
  bool first = true;
  while (!done() && (first || pattern_[at_] != ']')) {
    LODE_TRY(const CharSet member, class_member());
    set |= member;
    first = false;
  }
  if (!eat("]")) return bad("a [ without ]");
  return add({.kind = Kind::kSet, .set = negated ? ~set : set});
}

std::uint32_t NameRegexParser::state(NameRegex::State state) {
  if (out_.states_.size() >= kMaxStates) {
    too_large_ = true;
    return 0;
  }
  out_.states_.push_back(state);
  return static_cast<std::uint32_t>(out_.states_.size() - 1);
}

std::uint32_t NameRegexParser::emit(std::size_t id, std::uint32_t next) {
  using Made = NameRegex::Kind;
  const Node& node = nodes_[id];
  too_large_ = too_large_ || ++emitted_ > kMaxEmitted;
  if (too_large_) return next;
  switch (node.kind) {
    case Kind::kSet:
      out_.sets_.push_back(node.set);
      return state({.kind = Made::kSet,
                    .set = static_cast<std::uint32_t>(out_.sets_.size() - 1),
                    .next = next});
    case Kind::kStart:
      return state({.kind = Made::kStart, .next = next});
    case Kind::kEnd:
      return state({.kind = Made::kEnd, .next = next});
    case Kind::kSequence:
      for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
        next = emit(*child, next);
      }
      return next;
    case Kind::kAlternatives: {
      std::uint32_t first = emit(node.children.back(), next);
      for (auto child = node.children.rbegin() + 1; child != node.children.rend(); ++child) {
        first = state({.kind = Made::kSplit, .next = emit(*child, next), .other = first});
      }
      return first;
    }
    case Kind::kRepeat:
      return emit_repeat(node, next);
  }
  return next;
}

std::uint32_t NameRegexParser::emit_repeat(const Node& node, std::uint32_t next) {
  using Made = NameRegex::Kind;
  const std::size_t inner = node.children.front();
  if (node.most == 0) {  // no bound: a loop
    const std::uint32_t loop = state({.kind = Made::kSplit, .other = next});
    const std::uint32_t body = emit(inner, loop);
    if (too_large_) return next;
    out_.states_[loop].next = body;
    next = loop;
  } else {
    for (std::uint32_t i = node.least; i < node.most && !too_large_; ++i) {
      next = state({.kind = Made::kSplit, .next = emit(inner, next), .other = next});
    }
  }
  for (std::uint32_t i = 0; i < node.least && !too_large_; ++i) next = emit(inner, next);
  return next;
}

}  // namespace lode::checkpoint
