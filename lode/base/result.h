#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "lode/base/check.h"

namespace lode {

/// What kind of fault an Error is. One row of `code_table()` each; the exit statuses are a
/// contract.
enum class Code : std::uint8_t {
  kOther,           // none of the below
  kUsage,           // a flag or an argument that cannot be meant
  kOverBudget,      // does not fit into the bytes that were named
  kInvalidSource,   // the checkpoint is damaged or contradicts itself
  kSourceChanged,   // a file changed while it was being read
  kIo,              // the system refused to read or write
  kNoSpace,         // the disk is full
  kLayoutMismatch,  // prepared for another target or by another version
  kBudgetViolated,  // more was held than was reserved: our bug
  kPressure,        // stopped before the machine would suffer
  kUnsupported,     // a family, format, target or machine that we do not know
  kCheckFailed,     // a check found faults
  kPeerLost,        // another rank went away
  kInterrupted,     // the user said stop
};

struct CodeInfo {
  Code code;
  std::string_view name;              // as in JSON and logs
  int exit_status;                    // of the `lode` command
  int http_status;                    // of the server
  std::string_view python_exception;  // raised by the package
  std::string_view meaning;
};

/// Every code, in the order of the enum. The one home of names and exit statuses.
std::span<const CodeInfo> code_table() noexcept;
const CodeInfo& info(Code code) noexcept;

/// A fault that input can cause: the thing, what was wanted, what was found, where, and a hint.
/// Any part but the thing may be empty.
struct Error {
  Code code = Code::kOther;
  std::string thing{};
  std::string wanted{};
  std::string found{};
  std::string where{};
  std::string hint{};
};

/// One line: "thing: want W, found F (where); hint". Fit for a terminal whatever a file had in it:
/// control characters become '?', a part of more than 2000 bytes is cut.
std::string to_string(const Error& error);

/// Adds where the error happened, outermost place first; used on the way up.
Error at(std::string_view place, Error error);

/// A value or an Error. The common subset of std::expected, which g++ 12 has only in C++23.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& operator*() & { return checked(); }
  const T& operator*() const& { return checked(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &checked(); }

  const Error& error() const& {
    LODE_CHECK(!has_value(), "error() of a Result that holds a value");
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    LODE_CHECK(!has_value(), "error() of a Result that holds a value");
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  T& checked() {
    LODE_CHECK(has_value(), "value of a Result that holds an error");
    return *std::get_if<0>(&state_);
  }
  const T& checked() const {
    LODE_CHECK(has_value(), "value of a Result that holds an error");
    return *std::get_if<0>(&state_);
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool has_value() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }
  const Error& error() const& {
    LODE_CHECK(error_.has_value(), "error() of a Result without one");
    return *error_;
  }
  Error&& error() && {
    LODE_CHECK(error_.has_value(), "error() of a Result without one");
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace lode

#define LODE_CONCAT_INNER(a, b) a##b
#define LODE_CONCAT(a, b) LODE_CONCAT_INNER(a, b)

/// `LODE_TRY(auto x, f());` declares x as the value of f(), or returns its error.
#define LODE_TRY(declaration, expression) \
  LODE_TRY_NAMED(LODE_CONCAT(lode_result_, __LINE__), declaration, expression)
#define LODE_TRY_NAMED(name, declaration, expression) \
  auto name = (expression);                           \
  if (!name) return std::move(name).error();          \
  declaration = *std::move(name)

/// `LODE_TRY_STATUS(f());` returns the error of f() if it has one.
#define LODE_TRY_STATUS(expression)                          \
  do {                                                       \
    auto lode_status = (expression);                         \
    if (!lode_status) return std::move(lode_status).error(); \
  } while (false)
