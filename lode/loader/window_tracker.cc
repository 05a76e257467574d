#include "lode/loader/window_tracker.h"

#include "lode/base/check.h"

namespace lode::loader {

void WindowTracker::begin(WindowListener* listener) {
  const std::scoped_lock lock(mutex_);
  listener_ = listener;
  open_.clear();
  next_number_ = 0;
}

bool WindowTracker::is_begun(const Window& window) const {
  const std::scoped_lock lock(mutex_);
  return window.number < next_number_;
}

void WindowTracker::add(const SlotLoad& load) {
  if (listener_ == nullptr) return;
  const std::scoped_lock lock(mutex_);
  if (load.window.number == next_number_) {
    open_.push_back({load.window});
    ++next_number_;
  }
  LODE_CHECK(!open_.empty() && open_.back().window == load.window, "loads come window by window");
  ++open_.back().loads;
  open_.back().closed = load.closes_window;
}

void WindowTracker::finish_load(const Window& window) {
  if (listener_ == nullptr) return;
  const std::scoped_lock lock(mutex_);
  LODE_CHECK(!open_.empty() && window.number >= open_.front().window.number,
             "a load of a window that is over");
  Open& open = open_[window.number - open_.front().window.number];
  --open.loads;
  while (!open_.empty() && open_.front().closed && open_.front().loads == 0) {
    listener_->finished(open_.front().window);
    open_.pop_front();
  }
}

}  // namespace lode::loader
