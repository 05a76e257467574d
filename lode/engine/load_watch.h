#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lode/base/result.h"
#include "lode/engine/receipt.h"
#include "lode/io/read_engine.h"
#include "lode/loader/progress.h"
#include "lode/memory/held_probe.h"
#include "lode/memory/pressure.h"

namespace lode::engine {

/// What a LoadWatch does besides sampling.
struct WatchDuties {
  std::function<void()> on_tick{};  // called with every sample, on the watch's own thread
  /// What the load will have taken when it is done; the rest is "still to come".
  std::uint64_t load_peak_bytes = 0;
  /// Asked for pressure, such as memory::read_pressure; null: no watch for that.
  std::function<Result<memory::PressureSample>()> read_pressure{};
};

/// Watches a load from beside it, 100 times a second: what the kernel says is held, against the
/// weights that are finished. Five times a second it also asks how the machine does, and stops the
/// load before it would suffer.
class LoadWatch {
 public:
  /// `probe` has its baseline from before the checkpoint was opened. Both outlive the watch.
  /// Under pressure `progress.pressed` is set.
  /// Errors: kOther where the system gives no thread.
  static Result<LoadWatch> start(const memory::HeldProbe& probe, loader::Progress& progress,
                                 WatchDuties duties = {});
  ~LoadWatch();
  LoadWatch(LoadWatch&&) noexcept;
  LoadWatch& operator=(LoadWatch&&) noexcept;

  /// Ends the watch with a last sample: `on_tick` is not called any more.
  void stop();

  /// Why the load was stopped, once the watch has ended; "" where it was not.
  const std::string& pressure() const noexcept;

  /// Ends the watch; the page cache of the files that were read, none of them mapped, is asked for
  /// now.
  /// Errors: kIo; kUnsupported where the system does not say what is held.
  Result<KernelFigures> finish(std::span<const io::SourceFile> files);

 private:
  struct Shared;
  explicit LoadWatch(std::unique_ptr<Shared> shared);
  std::unique_ptr<Shared> shared_;
};

}  // namespace lode::engine
