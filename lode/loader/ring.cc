#include "lode/loader/ring.h"

namespace lode::loader {

Ring::Ring(std::span<std::byte> bytes, std::uint32_t num_slots)
    : slots_(num_slots), is_with_worker_(num_slots, false) {
  const std::size_t slot_bytes = bytes.size() / num_slots;
  for (std::size_t idx = 0; idx < num_slots; ++idx) {
    slots_[idx].bytes = bytes.subspan(idx * slot_bytes, slot_bytes);
    free_.push_back(idx);
  }
}

std::optional<std::size_t> Ring::try_take_free() {
  const std::scoped_lock lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const std::size_t idx = free_.front();
  free_.pop_front();
  return idx;
}

bool Ring::wait_for_free() {
  std::unique_lock lock(mutex_);
  if (with_workers_ == 0) return false;
  const std::size_t before = with_workers_;
  freed_.wait(lock, [&] { return with_workers_ < before; });
  return true;
}

void Ring::give_back(std::size_t idx) {
  slots_[idx].load = {};
  {
    const std::scoped_lock lock(mutex_);
    free_.push_back(idx);
    if (is_with_worker_[idx]) --with_workers_;
    is_with_worker_[idx] = false;
  }
  freed_.notify_one();
}

void Ring::push_full(std::size_t idx) {
  {
    const std::scoped_lock lock(mutex_);
    full_.push_back(idx);
    ++with_workers_;
    is_with_worker_[idx] = true;
  }
  filled_.notify_one();
}

std::optional<std::size_t> Ring::take_full() {
  std::unique_lock lock(mutex_);
  filled_.wait(lock, [this] { return closed_ || !full_.empty(); });
  if (full_.empty()) return std::nullopt;
  const std::size_t idx = full_.front();
  full_.pop_front();
  return idx;
}

void Ring::close() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
  }
  filled_.notify_all();
}

}  // namespace lode::loader
