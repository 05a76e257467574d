#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lode/base/result.h"

namespace lode::json {

class Value;
using Array = std::vector<Value>;
using Member = std::pair<std::string, Value>;
using Object = std::vector<Member>;  // in the order of the file; names are distinct

/// A JSON value. Integers stay integers: int64 where they fit, uint64 above, double otherwise.
class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(std::int64_t value) : data_(value) {}
  Value(std::uint64_t value);  // kept as int64 where it fits
  Value(double value) : data_(value) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(std::string_view value) : data_(std::string(value)) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(Array value) : data_(std::move(value)) {}
  Value(Object value) : data_(std::move(value)) {}

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(data_); }
  bool is_number() const noexcept { return is_integer() || std::holds_alternative<double>(data_); }
  bool is_integer() const noexcept;

  /// The value as this kind, or null where it is another kind. `as_int` does not see uint64.
  const bool* as_bool() const noexcept { return std::get_if<bool>(&data_); }
  const std::int64_t* as_int() const noexcept { return std::get_if<std::int64_t>(&data_); }
  const std::uint64_t* as_big_uint() const noexcept { return std::get_if<std::uint64_t>(&data_); }
  const std::string* as_string() const noexcept { return std::get_if<std::string>(&data_); }
  const Array* as_array() const noexcept { return std::get_if<Array>(&data_); }
  const Object* as_object() const noexcept { return std::get_if<Object>(&data_); }
  /// Any number as a double; 0 where it is none (ask is_number first).
  double number() const noexcept;

  /// The member of an object, or null where this is no object or has no such member.
  const Value* find(std::string_view name) const noexcept;

  /// "null", "bool", "integer", "number", "string", "array" or "object": for messages.
  std::string_view kind() const noexcept;

  friend bool operator==(const Value&, const Value&) = default;

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      data_;
};

/// Builds an object in the order given: object({{"peak_bytes", peak}, {"fits", true}}).
Value object(std::initializer_list<Member> members);

struct Limits {
  std::size_t max_depth = 64;
  std::size_t max_bytes = 100'000'000;
  std::size_t max_token_bytes = std::size_t{16} * 1024 * 1024;  // one string, or white space
};

/// Parses strict JSON (RFC 8259). White space may surround the value; nothing else may.
///
/// Errors: kInvalidSource with the byte position for bad syntax (a byte order mark and NUL bytes
/// are that, too), bad UTF-8, a lone surrogate, a duplicate name within one object, nesting deeper
/// or text longer than the limits.
Result<Value> parse(std::string_view text, const Limits& limits = {});

/// What a streaming parse meets, in order. An Error stops the parse and is returned by it.
class Handler {
 public:
  virtual ~Handler() = default;
  /// Errors: what the handler wants to stop the parse with.
  virtual Status begin_object() = 0;
  virtual Status name(std::string_view name) = 0;  // duplicates are refused before this
  virtual Status end_object() = 0;
  virtual Status begin_array() = 0;
  virtual Status end_array() = 0;
  virtual Status scalar(Value value) = 0;  // null, bool, number or string
};

/// The same language as `parse`, without a tree: for safetensors headers of 100 MB.
///
/// Errors: as parse, and what the handler returns.
/// Memory: the names of the objects that are open, as hashes (at most 32 bytes a name).
Status parse_streaming(std::string_view text, Handler& handler, const Limits& limits = {});

/// Text that comes in pieces.
class Source {
 public:
  virtual ~Source() = default;
  /// The next piece, valid until the next call; an empty one is the end.
  ///
  /// Errors: whatever keeps it from reading; it ends the parse and is returned by it.
  virtual Result<std::string_view> next() = 0;
};

/// The same from pieces, so that the text never needs to be in memory as a whole.
///
/// Errors: as parse, what the handler returns, and what the source returns.
/// Memory: as above, and the longest string.
Status parse_streaming(Source& source, Handler& handler, const Limits& limits = {});

/// Compact text (indent < 0) or indented; numbers round-trip; strings are UTF-8, only what JSON
/// must escape is escaped.
std::string dump(const Value& value, int indent = -1);

}  // namespace lode::json
