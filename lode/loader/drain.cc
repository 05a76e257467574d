#include "lode/loader/drain.h"

#include <algorithm>
#include <utility>

namespace lode::loader {
namespace {

constexpr std::uint64_t kPageBytes = 4 * kKiB;
// At once: large writes are quick ones, and the windows behind need room.
constexpr std::uint64_t kMostRunBytes = 8 * kMiB;

}  // namespace

Drain::~Drain() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  thread_.join();
}

Status Drain::start() {
  thread_ = parallel::SmallThread::start("lode-drain", [this] { work(); });
  if (thread_.joinable()) return {};
  return Error{.code = Code::kOther,
               .thing = "the thread that takes finished weights",
               .wanted = "a thread",
               .found = "none from the system"};
}

Result<std::span<std::byte>> Drain::add_slab(std::size_t stage_idx, Slab slab, std::uint64_t bytes,
                                             std::uint64_t start_bytes) {
  Passing passing{.stage_idx = stage_idx,
                  .slab = slab,
                  .bytes = bytes,
                  .put_bytes = start_bytes,
                  .finished_bytes = start_bytes,
                  .buffer = {}};
  LODE_TRY(passing.buffer,
           memory::PassingBuffer::make(align_up(bytes, kPageBytes), "a slab that passes"));
  const std::scoped_lock lock(mutex_);
  slabs_.push_back(std::move(passing));
  return slabs_.back().buffer.mutate();
}

Result<WeightSetBuilder::Slabs> Drain::make_slabs(const StagePlan& stage, std::size_t stage_idx,
                                                  const OperationStream::Start& start) {
  WeightSetBuilder::Slabs slabs;
  if (start.slab == Slab::kDense && stage.slab_bytes > start.offset_bytes) {
    LODE_TRY(slabs.dense, add_slab(stage_idx, Slab::kDense, stage.slab_bytes, start.offset_bytes));
  }
  const std::uint64_t bank_start = start.slab == Slab::kBank ? start.offset_bytes : 0;
  if (stage.bank && stage.bank->bytes() > bank_start) {
    LODE_TRY(slabs.bank, add_slab(stage_idx, Slab::kBank, stage.bank->bytes(), bank_start));
  }
  const std::scoped_lock lock(mutex_);
  newest_stage_ = stage_idx;
  return slabs;
}

Drain::Passing& Drain::slab_of(const Window& window) {
  const auto found = std::find_if(slabs_.begin(), slabs_.end(), [&](const Passing& passing) {
    return passing.stage_idx == newest_stage_ && passing.slab == window.slab;
  });
  LODE_CHECK(found != slabs_.end(), "a window of a slab that is gone");
  return *found;
}

bool Drain::may_begin(const Window& window) {
  const std::scoped_lock lock(mutex_);
  const bool room = begun_bytes_ - left_bytes_ + window.bytes() <= room_bytes_;
  const bool idle = windows_under_way_ == 0 && !putting_ && !next_run();
  if (!room && !idle) {
    changes_seen_ = changes_;
    return false;
  }
  Passing& passing = slab_of(window);
  if (!passing.begun) passing.front_bytes = window.begin_bytes;
  passing.begun = true;
  begun_bytes_ += window.bytes();
  ++windows_under_way_;
  return true;
}

void Drain::wait_for_room() {
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return changes_ != changes_seen_ || error_; });
}

void Drain::finished(const Window& window) {
  {
    const std::scoped_lock lock(mutex_);
    Passing& passing = slab_of(window);
    passing.finished_bytes = window.end_bytes;
    drop_before_start(passing);
    --windows_under_way_;
  }
  work_.notify_one();
  left_.notify_all();
}

// What lies across the start is made as a whole, so the first window may reach back behind it: all
// of that was taken by an earlier stream. No later window needs it.
void Drain::drop_before_start(Passing& passing) {
  if (passing.front_bytes >= passing.put_bytes || passing.finished_bytes < passing.put_bytes) {
    return;
  }
  left_bytes_ += passing.put_bytes - passing.front_bytes;
  passing.front_bytes = passing.put_bytes;
  passing.buffer.pass(passing.put_bytes);
  ++changes_;
}

Status Drain::status() {
  const std::scoped_lock lock(mutex_);
  if (error_) return *error_;
  return {};
}

Status Drain::finish() {
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return slabs_.empty() || error_; });
  if (error_) return *error_;
  return {};
}

std::optional<ChunkRun> Drain::next_run() {
  if (slabs_.empty()) return std::nullopt;
  Passing& passing = slabs_.front();
  const bool whole = passing.finished_bytes == passing.bytes;
  const std::uint64_t ready =
      whole ? align_up(passing.bytes, kPageBytes)
            : passing.finished_bytes / ChunkRun::kChunkBytes * ChunkRun::kChunkBytes;
  if (ready <= passing.put_bytes) return std::nullopt;
  const std::uint64_t bytes = std::min(ready - passing.put_bytes, kMostRunBytes);
  return ChunkRun{passing.stage_idx, passing.slab, passing.put_bytes,
                  passing.buffer.mutate().subspan(passing.put_bytes, bytes)};
}

void Drain::take_back(const ChunkRun& run) {
  Passing& passing = slabs_.front();
  passing.put_bytes = run.offset_bytes + run.bytes.size();
  const std::uint64_t front = std::min(passing.put_bytes, passing.bytes);
  left_bytes_ += front - passing.front_bytes;
  passing.front_bytes = front;
  passing.buffer.pass(passing.put_bytes);
  ++changes_;
  if (front == passing.bytes) slabs_.pop_front();
}

void Drain::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::optional<ChunkRun> run;
    work_.wait(lock, [&] { return ending_ || (run = next_run()); });
    if (ending_) return;
    putting_ = true;
    lock.unlock();
    Status status = sink_.put(*run);
    lock.lock();
    putting_ = false;
    if (status) {
      take_back(*run);
    } else {
      error_ = std::move(status).error();
      ending_ = true;
    }
    left_.notify_all();
  }
}

}  // namespace lode::loader
