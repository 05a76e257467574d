#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>

#include "lode/base/result.h"
#include "lode/loader/operation_stream.h"
#include "lode/loader/weight_set_builder.h"
#include "lode/loader/window_tracker.h"
#include "lode/memory/passing_buffer.h"
#include "lode/parallel/small_thread.h"

namespace lode::loader {

/// Finished bytes of a slab on their way out: whole chunks of 2 MiB, and at the slab's end what is
/// left, up to whole pages.
struct ChunkRun {
  static constexpr std::uint64_t kChunkBytes = 2 * kMiB;

  std::size_t stage_idx = 0;
  Slab slab = Slab::kDense;
  std::uint64_t offset_bytes = 0;  // in the slab; a multiple of kChunkBytes
  std::span<const std::byte> bytes;
};

/// Where they go.
class ChunkSink {
 public:
  virtual ~ChunkSink() = default;
  /// Takes the run that follows on the last one: slab after slab, without a gap. The bytes are gone
  /// when it returns. Called by one thread of the stream's.
  ///
  /// Errors: whatever keeps it from taking them; the stream ends with it.
  virtual Status put(const ChunkRun& run) = 0;
};

/// Hands finished windows to a sink on a thread of its own, and gives their memory back. What lies
/// between the last byte given back and the last window begun is kept below `room_bytes`.
class Drain final : public WindowListener {
 public:
  Drain(ChunkSink& sink, std::uint64_t room_bytes) : sink_(sink), room_bytes_(room_bytes) {}
  ~Drain() override;

  /// Errors: kOther where the system gives no thread.
  Status start();

  /// Slabs for the next stage, from `start` on; the last stage's may still be on their way out.
  /// Errors: kIo.
  Result<WeightSetBuilder::Slabs> make_slabs(const StagePlan& stage, std::size_t stage_idx,
                                             const OperationStream::Start& start);
  /// Waits until everything finished has been taken.
  /// Errors: those of the sink.
  Status finish();

  bool may_begin(const Window& window) override;
  void wait_for_room() override;
  void finished(const Window& window) override;
  /// Errors: those of the sink.
  Status status() override;

 private:
  struct Passing {
    std::size_t stage_idx = 0;
    Slab slab = Slab::kDense;
    std::uint64_t bytes = 0;           // of the slab
    std::uint64_t put_bytes = 0;       // taken by the sink
    std::uint64_t front_bytes = 0;     // given back, as windows count
    std::uint64_t finished_bytes = 0;  // final up to here
    bool begun = false;
    memory::PassingBuffer buffer;
  };

  Result<std::span<std::byte>> add_slab(std::size_t stage_idx, Slab slab, std::uint64_t bytes,
                                        std::uint64_t start_bytes);
  // With the lock held:
  Passing& slab_of(const Window& window);
  void drop_before_start(Passing& passing);
  std::optional<ChunkRun> next_run();
  void take_back(const ChunkRun& run);

  void work();

  ChunkSink& sink_;
  const std::uint64_t room_bytes_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable left_;
  std::deque<Passing> slabs_;      // those that are not wholly taken; addresses stay
  std::size_t newest_stage_ = 0;   // that windows belong to
  std::uint64_t begun_bytes_ = 0;  // of windows begun
  std::uint64_t left_bytes_ = 0;   // given back
  std::uint64_t windows_under_way_ = 0;
  std::uint64_t changes_ = 0;       // that may have made room
  std::uint64_t changes_seen_ = 0;  // when a window had to wait
  bool putting_ = false;
  bool ending_ = false;
  std::optional<Error> error_;
  parallel::SmallThread thread_;
};

}  // namespace lode::loader
