#include "lode/json/json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

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

// Between nlohmann's SAX parser and our Handler: depth and duplicate names are checked here.
class Sax final : public nlohmann::json_sax<Parser> {
 public:
  Sax(Handler& handler, const Limits& limits) : handler_(handler), limits_(limits) {}

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
    return deeper() && (open_.emplace_back(), take(handler_.begin_object()));
  }
  bool key(string_t& value) override {
    const auto hash = static_cast<std::uint64_t>(std::hash<std::string>{}(value));
    if (!open_.back().insert(hash).second) {
      return take(bad_json(fmt::format("the name \"{}\" twice in one object", value), ""));
    }
    return take(handler_.name(value));
  }
  bool end_object() override {
    open_.pop_back();
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
    const std::string_view text = fault.what();
    const auto detail = text.rfind("; ");
    return take(bad_json(std::string(detail == text.npos ? text : text.substr(detail + 2)),
                         fmt::format("byte {}", position)));
  }

  Status status;

 private:
  bool take(Status result) {
    if (!result) status = std::move(result);
    return status.has_value();
  }
  bool deeper() {
    if (++depth_ <= limits_.max_depth) return true;
    return take(bad_json(fmt::format("nesting deeper than {}", limits_.max_depth), ""));
  }

  Handler& handler_;
  Limits limits_;
  std::size_t depth_ = 0;
  std::vector<std::unordered_set<std::uint64_t>> open_;
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

Status parse_streaming(std::string_view text, Handler& handler, const Limits& limits) {
  if (text.size() > limits.max_bytes) {
    return bad_json(fmt::format("{} bytes, more than {}", text.size(), limits.max_bytes), "");
  }
  Sax sax(handler, limits);
  const bool done = Parser::sax_parse(text.begin(), text.end(), &sax);
  if (!sax.status) return std::move(sax.status);
  if (!done) return bad_json("a value that JSON does not have", "");
  return {};
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
