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

OperationStream::OperationStream(const LoadPlan& plan, const Binding& binding,
                                 std::size_t stage_idx, const Options& options)
    : plan_(plan),
      binding_(binding),
      stage_(plan.stages[stage_idx]),
      options_(options),
      packer_(plan.policy.slot_bytes, ready_) {
  window_.slab = options.start.slab;
  window_.begin_bytes = options.start.offset_bytes;
}

std::uint64_t OperationStream::slab_bytes(Slab slab) const {
  if (slab == Slab::kDense) return stage_.slab_bytes;
  return stage_.bank ? stage_.bank->bytes() : 0;
}

// Whether the window must end before a group that reaches so far. What is cut along k is finished
// only with its last piece, so it should not wait for others.
bool OperationStream::is_due(const Reach& next) const {
  if (!last_.completes) return false;
  const std::uint64_t with_next = groups_bytes_ + (next.end_bytes - next.begin_bytes);
  return groups_bytes_ >= options_.window_bytes || groups_.size() >= kMostGroups ||
         (!next.completes && with_next > kWindowBytes);
}

void OperationStream::take(Group group) {
  const Reach reach = reach_of(group);
  const Start& start = options_.start;
  if (reach.slab < start.slab) return;
  if (reach.slab == start.slab && reach.end_bytes <= start.offset_bytes) return;
  if (reach.slab != window_.slab) {
    end_slab();
    window_.slab = reach.slab;
    window_.begin_bytes = 0;
  }
  if (!groups_.empty() && is_due(reach)) close_window(last_.end_bytes);
  // A group that lies across the start is made as a whole.
  window_.begin_bytes = std::min(window_.begin_bytes, reach.begin_bytes);
  for (const Operation& operation : group) groups_bytes_ += operation.finished_bytes;
  groups_.push_back(std::move(group));
  last_ = reach;
}

void OperationStream::end_slab() {
  if (!groups_.empty()) close_window(slab_bytes(window_.slab));
}

void OperationStream::close_window(std::uint64_t end_bytes) {
  window_.end_bytes = end_bytes;
  const auto small = std::stable_partition(groups_.begin(), groups_.end(), [](const Group& group) {
    return slot_bytes_of(group) >= kSmallGroupBytes;
  });
  std::stable_sort(small, groups_.end(),
                   [](const Group& a, const Group& b) { return file_place(a) < file_place(b); });
  const std::size_t before = ready_.size();
  for (Group& group : groups_) packer_.add(std::move(group));
  packer_.flush();
  for (std::size_t i = before; i < ready_.size(); ++i) ready_[i].window = window_;
  ready_.back().closes_window = true;
  groups_.clear();
  groups_bytes_ = 0;
  ++window_.number;
  window_.begin_bytes = end_bytes;
}

std::optional<SlotLoad> OperationStream::next() {
  while (ready_.empty()) {
    if (next_item_ == num_items(stage_)) {
      if (groups_.empty()) return std::nullopt;
      end_slab();
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
