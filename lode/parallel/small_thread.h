#pragma once

#include <pthread.h>

#include <functional>
#include <memory>

namespace lode::parallel {

/// A joined-on-destruction thread with a 256 KiB stack (the default would count 8 MiB of address
/// space each) that takes no signals: Ctrl-C is the main thread's matter.
class SmallThread {
 public:
  SmallThread() = default;
  SmallThread(SmallThread&& other) noexcept;
  SmallThread& operator=(SmallThread&& other) noexcept;
  ~SmallThread();

  /// A thread that runs `body`, or one that is not joinable where the system gave no thread.
  /// `name` shows in ps and in debuggers, at most 15 characters.
  static SmallThread start(const char* name, std::function<void()> body);

  bool joinable() const noexcept { return body_ != nullptr; }
  void join() noexcept;

 private:
  std::unique_ptr<std::function<void()>> body_;  // at one address for as long as the thread runs
  pthread_t thread_{};
};

}  // namespace lode::parallel
