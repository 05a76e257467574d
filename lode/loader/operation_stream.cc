#include "lode/loader/operation_stream.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace lode::loader {
namespace {

constexpr std::uint64_t kSmallGroupBytes = 32 * kKiB;
constexpr std::size_t kMostGroups = 1024;

auto file_place(const Group& group) {
  const Operation& first = group.front();
  const Extent& extent = first.codes.extent.bytes != 0 ? first.codes.extent : first.scales.extent;
  return std::tuple(extent.shard, extent.offset_bytes);
}

}  // namespace

void OperationStream::take(Group group) {
  for (const Operation& operation : group) window_bytes_ += operation.finished_bytes;
  window_.push_back(std::move(group));
  if (window_bytes_ >= kWindowBytes || window_.size() >= kMostGroups) close_window();
}

void OperationStream::close_window() {
  const auto small = std::stable_partition(window_.begin(), window_.end(), [](const Group& group) {
    return slot_bytes_of(group) >= kSmallGroupBytes;
  });
  std::stable_sort(small, window_.end(),
                   [](const Group& a, const Group& b) { return file_place(a) < file_place(b); });
  for (Group& group : window_) packer_.add(std::move(group));
  packer_.flush();
  window_.clear();
  window_bytes_ = 0;
}

std::optional<SlotLoad> OperationStream::next() {
  while (ready_.empty()) {
    if (next_item_ == num_items(stage_)) {
      if (window_.empty()) return std::nullopt;
      close_window();
      continue;
    }
    const Item item = item_at(stage_, binding_, next_item_++);
    slice(item, plan_.policy.slot_bytes, [this](Group group) { take(std::move(group)); });
  }
  SlotLoad load = std::move(ready_.front());
  ready_.pop_front();
  return load;
}

std::vector<SlotLoad> stage_operations(const LoadPlan& plan, const Binding& binding,
                                       std::size_t stage_idx) {
  OperationStream stream(plan, binding, stage_idx);
  std::vector<SlotLoad> loads;
  while (auto load = stream.next()) loads.push_back(*std::move(load));
  return loads;
}

}  // namespace lode::loader
