#include "lode/comm/thread_mail.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "lode/base/fmt.h"
#include "lode/comm/failures.h"

namespace lode::comm {
namespace {

using State = ThreadMessage::State;

bool belong_together(const ThreadMessage& a, const ThreadMessage& b) {
  return a.sends != b.sends && a.from == b.from && a.to == b.to && a.tag == b.tag;
}

Status copy(const ThreadMessage& send, const ThreadMessage& receive, ThreadBoard& board) {
  if (send.outgoing.size() != receive.incoming.size()) {
    return board.raise(sizes_differ(send.to, subject_of_message(send.tag, send.from, send.to),
                                    send.from, receive.incoming.size(),
                                    fmt::format("{} bytes", send.outgoing.size())));
  }
  return board.while_readable([&] {
    if (send.outgoing.empty()) return;
    std::memcpy(receive.incoming.data(), send.outgoing.data(), send.outgoing.size());
  });
}

}  // namespace

// The oldest other end, or null: then it has been put down.
ThreadMessage* ThreadMail::match(ThreadMessage& message) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const ThreadMessage* other) {
    return belong_together(message, *other);
  });
  if (found == posted_.end()) {
    posted_.push_back(&message);
    return nullptr;
  }
  ThreadMessage* other = *found;
  posted_.erase(found);
  other->state = State::kCopying;
  return other;
}

Status ThreadMail::post(ThreadMessage& message, ThreadBoard& board) {
  ThreadMessage* other = match(message);
  if (other == nullptr) return {};
  Status copied = message.sends ? copy(message, *other, board) : copy(*other, message, board);
  message.state = State::kDone;
  other->state = State::kDone;  // the last touch: its owner may destroy it now
  board.wake();
  return copied;
}

void ThreadMail::withdraw(ThreadMessage& message) noexcept {
  {
    const std::lock_guard lock(mutex_);
    posted_.remove(&message);
  }
  while (message.state == State::kCopying) sched_yield();
}

}  // namespace lode::comm
