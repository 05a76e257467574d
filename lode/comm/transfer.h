#pragma once

#include <chrono>
#include <memory>

#include "lode/base/result.h"

namespace lode::comm {

/// What stands behind a Transfer; a kind of group each has its own.
class PendingTransfer {
 public:
  PendingTransfer() = default;
  PendingTransfer(const PendingTransfer&) = delete;
  PendingTransfer& operator=(const PendingTransfer&) = delete;
  virtual ~PendingTransfer() = default;

  /// Errors: as Transfer::test.
  virtual Result<bool> poll() = 0;
  /// Errors: as Transfer::wait.
  virtual Status wait() = 0;
};

/// A send or a receive that goes on by itself. The bytes belong to it until it is complete: the
/// caller neither changes what is being sent nor looks at what is being received, and keeps both.
///
/// One that is destroyed early takes its bytes back: a receive is withdrawn; a send is withdrawn
/// or, where it cannot be (MPI), waited for, and if it does not end within the deadline the group
/// fails. The partner of a withdrawn one then waits in vain and gets an Error at its own deadline.
class Transfer {
 public:
  Transfer() = default;  // complete
  explicit Transfer(std::unique_ptr<PendingTransfer> pending) : pending_(std::move(pending)) {}

  /// Whether it is complete. Never waits and knows no deadline: a caller that polls between other
  /// work has its own patience. MPI moves bytes only while a rank is inside a call: poll often.
  /// Errors: of the group, if it has failed; kPeerLost if the partner has left; kOther if the
  ///         partner's message has another size, which fails the group.
  Result<bool> test();

  /// Returns when complete.
  /// Errors: as `test`, and kPeerLost after the group's deadline, which fails the group.
  Status wait();

 private:
  std::unique_ptr<PendingTransfer> pending_;  // null: complete
};

}  // namespace lode::comm
