#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace lode::parallel {

/// Stack of a thread that does one thing (the system's default would count 8 MiB of address space
/// each).
inline constexpr std::size_t kSmallStackBytes = std::size_t{256} * 1024;

/// A joined-on-destruction thread, with a small stack unless asked otherwise, that takes no
/// signals: Ctrl-C is the main thread's matter.
class SmallThread {
 public:
  SmallThread() = default;
  SmallThread(SmallThread&& other) noexcept;
  SmallThread& operator=(SmallThread&& other) noexcept;
  ~SmallThread();

  /// A thread that runs `body`, or one that is not joinable where the system gave no thread.
  /// `name` shows in ps and in debuggers, at most 15 characters.
  static SmallThread start(const char* name, std::function<void()> body,
                           std::size_t stack_bytes = kSmallStackBytes);

  bool joinable() const noexcept { return body_ != nullptr; }
  void join() noexcept;

 private:
  std::unique_ptr<std::function<void()>> body_;  // at one address for as long as the thread runs
  pthread_t thread_{};
};

}  // namespace lode::parallel
