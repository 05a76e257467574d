#pragma once

namespace lode {

/// Says on stderr which of our own promises was broken, and aborts. Never reached by user input.
[[noreturn]] void check_failed(const char* condition, const char* message, const char* file,
                               int line) noexcept;

}  // namespace lode

/// Always on: our mistakes at a room's door. What a file, flag or request can trigger is an Error.
#define LODE_CHECK(condition, message)                                 \
  do {                                                                 \
    if (!(condition)) {                                                \
      ::lode::check_failed(#condition, (message), __FILE__, __LINE__); \
    }                                                                  \
  } while (false)

#ifdef NDEBUG
#define LODE_DCHECK(condition, message) \
  do {                                  \
  } while (false)
#else
#define LODE_DCHECK(condition, message) LODE_CHECK(condition, message)
#endif
