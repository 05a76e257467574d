#include "lode/placement/step_clock.h"

#include <algorithm>

namespace lode::placement {

StepClock::StepClock(std::int64_t interval, std::int64_t window) noexcept
    : interval_(std::max<std::int64_t>(interval, 1)),
      window_(std::max<std::int64_t>(window, 1)),
      step_(interval_ - interval_ / 4) {}

bool StepClock::after_pass(bool busy) noexcept {
  ++step_;
  if (step_ < interval_ || busy) return false;
  step_ = 0;
  return true;
}

}  // namespace lode::placement
