#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "lode/base/result.h"

namespace lode::comm {

/// `error` with "rank R" before its place, unless a rank stands there already.
Error at_rank(std::size_t rank, Error error);

/// The one failure of a group and its duplicates: the first stays. Any thread may ask and raise.
class Fate {
 public:
  bool failed() const noexcept { return failed_.load(); }

  /// Nothing, for the price of reading a flag, or the failure. Errors: that.
  Status status() const;

  /// Makes `error` the failure if there is none yet. The one that stands.
  Error raise(Error error);

 private:
  mutable std::mutex mutex_;
  Error error_;
  std::atomic<bool> failed_{false};
};

}  // namespace lode::comm
