#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "lode/base/result.h"
#include "lode/loader/operation.h"

namespace lode::loader {

/// What a pipeline asks and tells where bytes do not stay in their slab.
class WindowListener {
 public:
  virtual ~WindowListener() = default;

  /// Whether there is room for one window more; if so it counts as begun.
  virtual bool may_begin(const Window& window) = 0;
  /// Waits until `may_begin` is worth another try: something left, or failed.
  virtual void wait_for_room() = 0;
  /// Every byte of the window is in its place. Called in the order of the windows, by any thread.
  virtual void finished(const Window& window) = 0;
  /// Errors: what keeps it from going on.
  virtual Status status() = 0;
};

/// Counts the loads of windows that are under way. Loads are added by one thread, in the order of
/// the stream, and finished by any. Without a listener it does nothing.
class WindowTracker {
 public:
  /// No load may be under way.
  void begin(WindowListener* listener);

  void add(const SlotLoad& load);
  void finish_load(const Window& window);
  /// Whether a load of the window has been added.
  bool is_begun(const Window& window) const;

 private:
  struct Open {
    Window window;
    std::uint64_t loads = 0;  // under way
    bool closed = false;      // no more will be added
  };

  WindowListener* listener_ = nullptr;
  mutable std::mutex mutex_;
  std::deque<Open> open_;
  std::uint64_t next_number_ = 0;
};

}  // namespace lode::loader
