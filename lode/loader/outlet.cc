#include "lode/loader/outlet.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lode/base/check.h"

namespace lode::loader {

Outlet::Outlet(ChunkSink& sink, std::span<std::byte> memory) : sink_(sink) {
  const std::size_t half = memory.size() / 2;
  halves_[0] = memory.first(half);
  halves_[1] = memory.subspan(half, half);
}

Outlet::~Outlet() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status Outlet::start() {
  thread_ = parallel::SmallThread::start("lode-write", [this] { work(); });
  if (thread_.joinable()) return {};
  return Error{.code = Code::kOther, .thing = "the thread that writes", .found = "none"};
}

void Outlet::begin(std::size_t stage_idx, std::uint64_t offset_bytes) {
  LODE_CHECK(filled_ == 0, "what came before is complete");
  next_ = {stage_idx, Slab::kBank, offset_bytes, {}};
}

Result<std::span<std::byte>> Outlet::room(std::uint64_t bytes) {
  const std::uint64_t whole = filled_ / ChunkRun::kChunkBytes * ChunkRun::kChunkBytes;
  if (whole > 0 && filled_ + bytes > halves_[half_].size()) LODE_TRY_STATUS(hand_over(whole));
  LODE_CHECK(filled_ + bytes <= halves_[half_].size(), "a half has room for what is made at once");
  return halves_[half_].subspan(filled_, bytes);
}

void Outlet::drop_front(std::uint64_t bytes) noexcept {
  std::byte* const first = halves_[half_].data();
  std::memmove(first, first + bytes, filled_ - bytes);
  filled_ -= bytes;
}

Status Outlet::wait_until_taken() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !handed_; });
  if (error_) return *error_;
  return {};
}

// The rest, less than a chunk, moves to the other half.
Status Outlet::hand_over(std::uint64_t bytes) {
  LODE_TRY_STATUS(wait_until_taken());
  const std::span<std::byte> full = halves_[half_];
  half_ = 1 - half_;
  std::memcpy(halves_[half_].data(), full.data() + bytes, filled_ - bytes);
  filled_ -= bytes;
  next_.bytes = full.first(bytes);
  {
    const std::scoped_lock lock(mutex_);
    handed_ = next_;
  }
  changed_.notify_all();
  next_.offset_bytes += bytes;
  return {};
}

Status Outlet::end() {
  if (filled_ > 0) LODE_TRY_STATUS(hand_over(filled_));
  return wait_until_taken();
}

void Outlet::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || handed_; });
    if (!handed_) return;
    const ChunkRun run = *handed_;
    if (!error_) {
      lock.unlock();
      Status status = sink_.put(run);
      lock.lock();
      if (!status) error_ = std::move(status).error();
    }
    handed_.reset();
    changed_.notify_all();
  }
}

}  // namespace lode::loader
