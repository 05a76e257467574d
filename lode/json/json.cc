#include "lode/json/json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lode/base/fmt.h"

namespace lode::json {
namespace {

using Parser = nlohmann::json;

Error bad_json(std::string found, std::string where) {
  return Error{.code = Code::kInvalidSource,
               .thing = "JSON",
               .wanted = "well-formed JSON with distinct names",
               .found = std::move(found),
               .where = std::move(where)};
}

// A piece of the text, fit for a message: not longer than a line, without control characters.
std::string quotable(std::string_view text) {
  constexpr std::size_t kMaxBytes = 160;
  std::string out(text.substr(0, kMaxBytes));
  std::ranges::replace_if(
      out, [](char c) { return c >= 0 && (c < ' ' || c == 0x7F); }, '?');
  return text.size() > kMaxBytes ? out + "..." : out;
}

// The text, one character at a time, for nlohmann's lexer. What that lexer would let pass (NUL ends
// the text for it, and a byte order mark may begin it) is turned into a character that it refuses.
class Pieces {
 public:
  Pieces(Source& source, const Limits& limits) : source_(source), limits_(limits) { refill(); }

  bool at_end() const { return next_ == end_; }
  char current() const {
    if (*next_ == '\0' || (position_ == 0 && *next_ == kByteOrderMark)) return kNeverInJson;
    return *next_;
  }
  void advance() {
    saw_nul_ = saw_nul_ || *next_ == '\0';
    ++position_;
    ++next_;
    if (position_ - last_event_ > limits_.max_token_bytes) {
      stop(bad_json(
          fmt::format("a string or white space longer than {} bytes", limits_.max_token_bytes),
          fmt::format("byte {}", last_event_)));
    } else if (position_ > limits_.max_bytes) {
      stop(bad_json(fmt::format("more than {} bytes", limits_.max_bytes), ""));
    } else if (next_ == end_) {
      refill();
    }
  }
  void event() { last_event_ = position_; }

  bool saw_nul() const { return saw_nul_; }
  Status status;

 private:
  static constexpr char kByteOrderMark = '\xEF';  // its first byte
  static constexpr char kNeverInJson = '\x01';

  void refill() {
    Result<std::string_view> piece = source_.next();
    if (!piece) return stop(std::move(piece).error());
    next_ = piece->data();
    end_ = next_ + piece->size();
  }
  void stop(Error error) {
    status = std::move(error);
    next_ = end_;
  }

  Source& source_;
  const Limits& limits_;
  const char* next_ = nullptr;
  const char* end_ = nullptr;
  std::size_t position_ = 0;
  std::size_t last_event_ = 0;
  bool saw_nul_ = false;
};

// What nlohmann wants to see of it: an input iterator.
class PieceIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  PieceIterator() = default;
  explicit PieceIterator(Pieces& pieces) : pieces_(&pieces) {}
  char operator*() const { return pieces_->current(); }
  PieceIterator& operator++() {
    pieces_->advance();
    return *this;
  }
  void operator++(int) { ++*this; }
  // Only ever compared with the end.
  bool operator==(const PieceIterator&) const { return pieces_ == nullptr || pieces_->at_end(); }

 private:
  Pieces* pieces_ = nullptr;
};

class OnePiece final : public Source {
 public:
  explicit OnePiece(std::string_view text) : text_(text) {}
  Result<std::string_view> next() override { return std::exchange(text_, {}); }

 private:
  std::string_view text_;
};

// The names of one open object, as hashes: open addressing, at most half full.
class NameHashes {
 public:
  void clear() {
    if (slots_.size() > kKeptSlots) slots_ = {};
    std::ranges::fill(slots_, 0);
    count_ = 0;
  }
  // False where it was there before. Equal hashes of unequal names are taken for a duplicate: that
  // refuses a file in 2^64 and lets none pass.
  bool insert(std::uint64_t hash) {
    hash = hash == 0 ? 1 : hash;
    if (2 * (count_ + 1) > slots_.size()) grow();
    std::uint64_t& slot = find(hash);
    if (slot == hash) return false;
    slot = hash;
    ++count_;
    return true;
  }

 private:
  static constexpr std::size_t kKeptSlots = 64;

  std::uint64_t& find(std::uint64_t hash) {
    std::size_t at = static_cast<std::size_t>(hash) & (slots_.size() - 1);
    while (slots_[at] != 0 && slots_[at] != hash) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void grow() {
    std::vector<std::uint64_t> old = std::exchange(slots_, {});
    slots_.resize(std::max<std::size_t>(16, 2 * old.size()));
    for (const std::uint64_t hash : old) {
      if (hash != 0) find(hash) = hash;
    }
  }

  std::vector<std::uint64_t> slots_;
  std::size_t count_ = 0;
};

// Between nlohmann's SAX parser and our Handler: depth and duplicate names are checked here.
class Sax final : public nlohmann::json_sax<Parser> {
 public:
  Sax(Handler& handler, Pieces& pieces, const Limits& limits)
      : handler_(handler), pieces_(pieces), limits_(limits) {}

  bool null() override { return take(handler_.scalar(Value())); }
  bool boolean(bool value) override { return take(handler_.scalar(Value(value))); }
  bool number_integer(number_integer_t value) override {
    return take(handler_.scalar(Value(std::int64_t{value})));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return take(handler_.scalar(Value(std::uint64_t{value})));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return take(handler_.scalar(Value(value)));
  }
  bool string(string_t& value) override { return take(handler_.scalar(Value(std::move(value)))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    if (!deeper()) return false;
    if (names_.size() < depth_) names_.resize(depth_);
    names_[depth_ - 1].clear();
    return take(handler_.begin_object());
  }
  bool key(string_t& value) override {
    const auto hash = static_cast<std::uint64_t>(std::hash<std::string>{}(value));
    if (!names_[depth_ - 1].insert(hash)) {
      return take(
          bad_json(fmt::format("the name \"{}\" twice in one object", quotable(value)), ""));
    }
    return take(handler_.name(value));
  }
  bool end_object() override {
    --depth_;
    return take(handler_.end_object());
  }
  bool start_array(std::size_t) override { return deeper() && take(handler_.begin_array()); }
  bool end_array() override {
    --depth_;
    return take(handler_.end_array());
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& fault) override {
    if (pieces_.saw_nul()) return take(bad_json("a NUL byte", fmt::format("byte {}", position)));
    const std::string_view text = fault.what();
    const auto detail = text.rfind("; ");
    return take(bad_json(quotable(detail == text.npos ? text : text.substr(detail + 2)),
                         fmt::format("byte {}", position)));
  }

  Status status;

 private:
  bool take(Status result) {
    pieces_.event();
    if (!result) status = std::move(result);
    return status.has_value();
  }
  bool deeper() {
    if (++depth_ <= limits_.max_depth) return true;
    return take(bad_json(fmt::format("nesting deeper than {}", limits_.max_depth), ""));
  }

  Handler& handler_;
  Pieces& pieces_;
  const Limits& limits_;
  std::size_t depth_ = 0;
  std::vector<NameHashes> names_;  // one a level, used again
};

// Builds the tree of `parse` from the same events.
class Builder final : public Handler {
 public:
  Status begin_object() override { return open(Object()); }
  Status name(std::string_view name) override {
    levels_.back().name = name;
    return {};
  }
  Status end_object() override { return close(); }
  Status begin_array() override { return open(Array()); }
  Status end_array() override { return close(); }
  Status scalar(Value value) override {
    add(std::move(value));
    return {};
  }
  Value take() { return std::move(root_); }

 private:
  struct Level {
    std::variant<Array, Object> container;
    std::string name;
  };
  template <class Container>
  Status open(Container container) {
    levels_.push_back({std::move(container), {}});
    return {};
  }
  Status close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    std::visit([&](auto& container) { add(Value(std::move(container))); }, level.container);
    return {};
  }
  void add(Value value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<Array>(&levels_.back().container)) {
      array->push_back(std::move(value));
    } else {
      std::get<Object>(levels_.back().container)
          .emplace_back(std::move(levels_.back().name), std::move(value));
    }
  }

  Value root_;
  std::vector<Level> levels_;
};

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const std::string text = fmt::format("{}", value);
  out += text;
  if (text.find_first_of(".e") == text.npos) out += ".0";
}

void append(std::string& out, const Value& value, int indent, int depth);

void append_break(std::string& out, int indent, int depth) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(depth), ' ');
}

template <class Container, class Each>
void append_all(std::string& out, const Container& items, std::string_view brackets, int indent,
                int depth, Each each) {
  out += brackets[0];
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ',';
    first = false;
    append_break(out, indent, depth + 1);
    each(item);
  }
  if (!first) append_break(out, indent, depth);
  out += brackets[1];
}

void append(std::string& out, const Value& value, int indent, int depth) {
  if (const auto* object = value.as_object()) {
    append_all(out, *object, "{}", indent, depth, [&](const Member& member) {
      append_string(out, member.first);
      out += indent < 0 ? ":" : ": ";
      append(out, member.second, indent, depth + 1);
    });
  } else if (const auto* array = value.as_array()) {
    append_all(out, *array, "[]", indent, depth,
               [&](const Value& item) { append(out, item, indent, depth + 1); });
  } else if (const auto* text = value.as_string()) {
    append_string(out, *text);
  } else if (const auto* flag = value.as_bool()) {
    out += *flag ? "true" : "false";
  } else if (const auto* integer = value.as_int()) {
    out += fmt::format("{}", *integer);
  } else if (const auto* big = value.as_big_uint()) {
    out += fmt::format("{}", *big);
  } else if (value.is_number()) {
    append_double(out, value.number());
  } else {
    out += "null";
  }
}

}  // namespace

Value::Value(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    data_ = static_cast<std::int64_t>(value);
  } else {
    data_ = value;
  }
}

bool Value::is_integer() const noexcept {
  return std::holds_alternative<std::int64_t>(data_) ||
         std::holds_alternative<std::uint64_t>(data_);
}

double Value::number() const noexcept {
  if (const auto* integer = as_int()) return static_cast<double>(*integer);
  if (const auto* big = as_big_uint()) return static_cast<double>(*big);
  const auto* real = std::get_if<double>(&data_);
  return real != nullptr ? *real : 0.0;
}

const Value* Value::find(std::string_view name) const noexcept {
  const auto* members = as_object();
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

std::string_view Value::kind() const noexcept {
  constexpr std::string_view kKinds[] = {"null",   "bool",   "integer", "integer",
                                         "number", "string", "array",   "object"};
  return kKinds[data_.index()];
}

Value object(std::initializer_list<Member> members) { return Value(Object(members)); }

Status parse_streaming(Source& source, Handler& handler, const Limits& limits) {
  Pieces pieces(source, limits);
  Sax sax(handler, pieces, limits);
  const bool done = Parser::sax_parse(PieceIterator(pieces), PieceIterator(), &sax);
  if (!pieces.status) return std::move(pieces.status);
  if (!sax.status) return std::move(sax.status);
  if (!done) return bad_json("a value that JSON does not have", "");
  return {};
}

Status parse_streaming(std::string_view text, Handler& handler, const Limits& limits) {
  if (text.size() > limits.max_bytes) {
    return bad_json(fmt::format("{} bytes, more than {}", text.size(), limits.max_bytes), "");
  }
  OnePiece source(text);
  return parse_streaming(source, handler, limits);
}

Result<Value> parse(std::string_view text, const Limits& limits) {
  Builder builder;
  LODE_TRY_STATUS(parse_streaming(text, builder, limits));
  return builder.take();
}

std::string dump(const Value& value, int indent) {
  std::string out;
  append(out, value, indent, 0);
  return out;
}

}  // namespace lode::json
