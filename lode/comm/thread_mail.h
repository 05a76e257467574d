#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>

#include "lode/base/result.h"
#include "lode/comm/thread_board.h"

namespace lode::comm {

/// One end of a message between two threads that are ranks, posted until its other end is.
struct ThreadMessage {
  enum class State { kPosted, kCopying, kDone };

  std::size_t from = 0, to = 0;
  std::uint32_t tag = 0;
  bool sends = false;
  std::span<const std::byte> outgoing{};
  std::span<std::byte> incoming{};
  std::atomic<State> state{State::kPosted};
};

/// Sends and receives of one communicator that wait for their other end. Whoever posts the second
/// end copies the bytes, once, then and there.
class ThreadMail {
 public:
  /// `message` stays where it is until it is done or withdrawn.
  /// Errors: kOther if the other end has another size, the failure of the board: both fail it.
  Status post(ThreadMessage& message, ThreadBoard& board);

  /// Takes it back; returns when nobody touches it any more.
  void withdraw(ThreadMessage& message) noexcept;

 private:
  ThreadMessage* match(ThreadMessage& message);

  std::mutex mutex_;
  std::list<ThreadMessage*> posted_;
};

}  // namespace lode::comm
