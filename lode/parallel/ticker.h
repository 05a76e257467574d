#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "lode/base/result.h"

namespace lode::parallel {

/// A thread that calls a function at once and then every `period`, until the ticker is destroyed;
/// a call that takes longer delays the next ones rather than letting them pile up.
class Ticker {
 public:
  /// Errors: kOther when the system gives no thread.
  static Result<Ticker> start(std::chrono::milliseconds period, std::function<void()> tick);

  /// Returns when the function is not running and will not be called any more.
  ~Ticker();
  Ticker(Ticker&&) noexcept;
  Ticker& operator=(Ticker&&) noexcept;

 private:
  struct Shared;
  explicit Ticker(std::unique_ptr<Shared> shared);
  std::unique_ptr<Shared> shared_;
};

}  // namespace lode::parallel
