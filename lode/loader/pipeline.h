#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "lode/io/read_engine.h"
#include "lode/loader/operation_stream.h"
#include "lode/loader/progress.h"
#include "lode/loader/ring.h"
#include "lode/loader/weight_set_builder.h"
#include "lode/loader/window_tracker.h"
#include "lode/parallel/small_thread.h"

namespace lode::loader {

/// Disk -> slot -> final place. The caller's thread asks for reads, the engine fills slots, workers
/// empty them. The disk does not wait between stages: the last loads of one are under way while the
/// first of the next are asked for.
class Pipeline {
 public:
  /// `ring` is cut into slots as the plan says; all that is given here must outlive this.
  Pipeline(const LoadPlan& plan, std::span<std::byte> ring, io::ReadEngine& engine,
           Progress& progress);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Errors: kOther where the system gives no threads.
  Status start(std::uint32_t num_workers);

  /// Asks for all loads of a stage. Without a `listener` it returns when the last has been asked
  /// for: its slabs must live until `finish`. With one the stage is done when it returns; no window
  /// is begun before the listener agrees, it hears of each that is finished, in order, and its
  /// error ends the run. After an error nothing is under way.
  ///
  /// Errors: of the engine; of `transform`, with the file; both with the stage; those of
  /// check_may_go_on. Of several errors, that of the earliest load.
  Status run(OperationStream& stream, const StagePlan& stage, const WeightSetBuilder::Slabs& slabs,
             WindowListener* listener = nullptr);

  /// Waits until nothing is under way.
  /// Errors: those of `run`.
  Status finish();

 private:
  void feed(OperationStream& stream);
  bool fill_slots(OperationStream& stream);
  bool may_begin(const SlotLoad& load);
  void look_for_stop();
  void submit(std::size_t idx);
  void take_completion();
  bool take_anything();
  void work();
  void empty(const Slot& slot);
  void finish_load(StageRun& stage);
  void fail(std::uint64_t sequence, Error error);
  void fail(const Slot& slot, Error error);
  bool stopping() const noexcept { return failed_.load(std::memory_order_acquire); }

  const LoadPlan& plan_;
  Ring ring_;
  io::ReadEngine& engine_;
  Progress& progress_;
  std::deque<StageRun> stages_;         // that have been begun; they stay where they are
  WindowListener* listener_ = nullptr;  // changes only while nothing is under way
  WindowTracker windows_;
  std::optional<SlotLoad> waiting_;  // the first load of a window that may not begin yet
  std::uint64_t next_sequence_ = 0;
  std::uint64_t reads_under_way_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex error_mutex_;
  std::optional<Error> error_;
  std::uint64_t error_sequence_ = 0;
  std::vector<parallel::SmallThread> workers_;
};

}  // namespace lode::loader
