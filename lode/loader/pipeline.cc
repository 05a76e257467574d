#include "lode/loader/pipeline.h"

#include <utility>

#include "lode/loader/transform.h"

namespace lode::loader {

Pipeline::Pipeline(const LoadPlan& plan, std::span<std::byte> ring, io::ReadEngine& engine,
                   Progress& progress)
    : plan_(plan), ring_(ring, plan.policy.num_slots), engine_(engine), progress_(progress) {}

Pipeline::~Pipeline() {
  (void)finish();  // nothing may be read into the ring any more
  ring_.close();
  workers_.clear();  // joins
}

Status Pipeline::start(std::uint32_t num_workers) {
  for (std::uint32_t i = 0; i < num_workers; ++i) {
    auto worker = parallel::SmallThread::start("lode-load", [this] { work(); });
    if (worker.joinable()) workers_.push_back(std::move(worker));
  }
  if (!workers_.empty()) return {};
  return Error{.code = Code::kOther,
               .thing = "threads that load",
               .wanted = "at least one",
               .found = "none from the system"};
}

Status Pipeline::run(OperationStream& stream, const StagePlan& stage,
                     const WeightSetBuilder::Slabs& slabs, WindowListener* listener) {
  if (listener != nullptr) {
    listener_ = listener;
    windows_.begin(listener);
  }
  stages_.emplace_back(stage, slabs);
  feed(stream);
  waiting_.reset();
  finish_load(stages_.back());
  return listener != nullptr || stopping() ? finish() : Status{};
}

// Until every load has been asked for, or one has failed.
void Pipeline::feed(OperationStream& stream) {
  look_for_stop();
  while (fill_slots(stream)) {
    if (!take_anything() && waiting_) listener_->wait_for_room();
    look_for_stop();
  }
}

Status Pipeline::finish() {
  while (take_anything()) look_for_stop();
  const std::scoped_lock lock(error_mutex_);
  if (error_) return *error_;
  return {};
}

// Waits for something to come back, read or emptied; false if nothing is under way.
bool Pipeline::take_anything() {
  if (reads_under_way_ == 0) return ring_.wait_for_free();
  take_completion();
  return true;
}

void Pipeline::look_for_stop() {
  if (auto stopped = check_may_go_on(progress_); !stopped) fail(0, std::move(stopped).error());
  if (listener_ == nullptr) return;
  Status status = listener_->status();
  if (!status) fail(0, std::move(status).error());
}

bool Pipeline::may_begin(const SlotLoad& load) {
  if (listener_ == nullptr || windows_.is_begun(load.window)) return true;
  return listener_->may_begin(load.window);
}

// False when there is nothing more to read.
bool Pipeline::fill_slots(OperationStream& stream) {
  while (!stopping()) {
    const auto idx = ring_.try_take_free();
    if (!idx) return true;
    auto load = waiting_ ? std::exchange(waiting_, std::nullopt) : stream.next();
    if (!load || !may_begin(*load)) {
      ring_.give_back(*idx);
      waiting_ = std::move(load);
      return waiting_.has_value();
    }
    windows_.add(*load);
    stages_.back().add(*load);
    ring_.slot(*idx).stage = &stages_.back();
    ring_.slot(*idx).load = *std::move(load);
    submit(*idx);
  }
  return false;
}

void Pipeline::submit(std::size_t idx) {
  Slot& slot = ring_.slot(idx);
  slot.sequence = ++next_sequence_;
  slot.reads_to_come = 0;
  for (const SlotRead& read : slot.load.reads) slot.reads_to_come += read.extent.count;
  reads_under_way_ += slot.reads_to_come;
  for (const SlotRead& read : slot.load.reads) {
    const Extent& extent = read.extent;
    progress_.read_bytes.fetch_add(extent.count * extent.bytes, std::memory_order_relaxed);
    for (std::uint64_t run = 0; run < extent.count; ++run) {
      engine_.submit({extent.shard, extent.offset_bytes + run * extent.stride_bytes,
                      slot.bytes.subspan(read.slot_offset_bytes + run * extent.bytes, extent.bytes),
                      idx, extent.count == 1});
    }
  }
}

void Pipeline::take_completion() {
  io::ReadCompletion done = engine_.wait();
  --reads_under_way_;
  Slot& slot = ring_.slot(done.ticket);
  if (!done.status) fail(slot, std::move(done.status).error());
  if (--slot.reads_to_come > 0) return;
  if (stopping()) {
    ring_.give_back(done.ticket);
  } else {
    ring_.push_full(done.ticket);
  }
}

void Pipeline::work() {
  while (const auto idx = ring_.take_full()) {
    const Slot& slot = ring_.slot(*idx);
    if (!stopping()) empty(slot);
    // Before the slot is free: when all are, every window has been told of.
    if (!stopping()) windows_.finish_load(slot.load.window);
    if (!stopping()) finish_load(*slot.stage);
    ring_.give_back(*idx);
  }
}

void Pipeline::empty(const Slot& slot) {
  for (const Operation& operation : slot.load.operations) {
    const Target& target = operation.target;
    const WeightSetBuilder::Slabs& slabs = slot.stage->slabs();
    const auto slab = target.slab == Slab::kDense ? slabs.dense : slabs.bank;
    const Result<Met> met =
        transform(operation, slot.bytes, slab.subspan(target.offset_bytes, target.bytes));
    if (!met) {
      const Extent& scales = operation.scales.extent;
      const Extent& source = scales.bytes != 0 ? scales : operation.codes.extent;
      return fail(slot, at(plan_.sources[source.shard].path, met.error()));
    }
    if (met->negative_scales) progress_.negative_scales.store(true, std::memory_order_relaxed);
    progress_.finished_bytes.fetch_add(operation.finished_bytes, std::memory_order_relaxed);
  }
}

void Pipeline::finish_load(StageRun& stage) {
  progress_.finished_bytes.fetch_add(stage.finish_one(), std::memory_order_relaxed);
}

void Pipeline::fail(const Slot& slot, Error error) {
  fail(slot.sequence, at(slot.stage->plan().name, std::move(error)));
}

void Pipeline::fail(std::uint64_t sequence, Error error) {
  const std::scoped_lock lock(error_mutex_);
  if (!error_ || sequence < error_sequence_) {
    error_ = std::move(error);
    error_sequence_ = sequence;
  }
  failed_.store(true, std::memory_order_release);
}

}  // namespace lode::loader
