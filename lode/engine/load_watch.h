#pragma once

#include <functional>
#include <memory>

#include "lode/base/result.h"
#include "lode/engine/receipt.h"
#include "lode/loader/progress.h"
#include "lode/memory/held_probe.h"

namespace lode::engine {

/// Watches a load from beside it, 100 times a second: what the kernel says is held, against the
/// weights that are finished.
class LoadWatch {
 public:
  /// Called with every sample, on the watch's own thread.
  using OnTick = std::function<void()>;

  /// `probe` has its baseline from before the checkpoint was opened. Both outlive the watch.
  /// Errors: kOther where the system gives no thread.
  static Result<LoadWatch> start(const memory::HeldProbe& probe, const loader::Progress& progress,
                                 OnTick on_tick = nullptr);
  ~LoadWatch();
  LoadWatch(LoadWatch&&) noexcept;
  LoadWatch& operator=(LoadWatch&&) noexcept;

  /// Ends the watch: `on_tick` is not called any more.
  void stop();

  /// Ends the watch; the page cache of the sources is asked for now.
  /// Errors: kIo, kUnsupported where the system does not say.
  Result<KernelFigures> finish(const checkpoint::TensorIndex& index);

 private:
  struct Shared;
  explicit LoadWatch(std::unique_ptr<Shared> shared);
  std::unique_ptr<Shared> shared_;
};

}  // namespace lode::engine
