#pragma once

#include <functional>
#include <vector>

#include "lode/loader/operation.h"
#include "lode/loader/plan.h"

namespace lode::loader {

/// One tensor to be made from its sources: a pair has two matrices.
struct Item {
  Target target;
  tensor::Meta meta;
  const MatrixSource* first = nullptr;
  const MatrixSource* second = nullptr;
  const VectorSource* vector = nullptr;
};

/// Operations that must find their source bytes in one slot.
using Group = std::vector<Operation>;
using GroupSink = std::function<void(Group)>;

/// Cuts the making of `item` into groups that fit into a slot of `slot_bytes`, in the order of
/// destinations: whole panels, whole super-blocks of k. Plans have checked that it can be done.
void slice(const Item& item, std::uint64_t slot_bytes, const GroupSink& sink);

/// Bytes that a slot needs for a group if nothing of it overlaps.
std::uint64_t slot_bytes_of(const Group& group) noexcept;

/// The items of a stage by number, in the order of destinations.
std::size_t num_items(const StagePlan& stage) noexcept;
Item item_at(const StagePlan& stage, const Binding& binding, std::size_t item_idx);

}  // namespace lode::loader
