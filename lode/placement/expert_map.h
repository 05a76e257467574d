#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/base/result.h"

namespace lode::placement {

/// What a slot holds that holds no expert: a slot of a rank that has just joined, or the slots that
/// are left over where experts do not divide by ranks.
inline constexpr std::int32_t kNoExpert = -1;

/// No map is larger, so that sizes out of files multiply without care.
inline constexpr std::size_t kMaxExperts = std::size_t{1} << 14;
inline constexpr std::size_t kMaxRanks = std::size_t{1} << 12;
inline constexpr std::size_t kMaxSlots = std::size_t{1} << 20;

/// Which slot of which rank holds which expert of one layer, both ways. Slot s lies on rank
/// s / slots_per_rank(). An expert may lie in several slots, its replicas, and a slot may be empty.
///
/// Memory: four bytes for each slot (its expert), for each filled slot (the list) and for each
/// expert (where its part of the list begins), and four more. Nothing is padded.
class ExpertMap {
 public:
  /// The map whose slot s holds expert physical_to_logical[s].
  ///
  /// Errors: kInvalidSource for more experts, slots or ranks than the limits above or none at all,
  /// slots that do not divide by ranks, an id that is neither an expert nor kNoExpert, and an
  /// expert that has no slot; each names the slot or the expert.
  static Result<ExpertMap> make(std::vector<std::int32_t> physical_to_logical, std::size_t experts,
                                std::size_t ranks);

  std::size_t experts() const noexcept { return begins_.size() - 1; }
  std::size_t slots() const noexcept { return physical_to_logical_.size(); }
  std::size_t ranks() const noexcept { return ranks_; }
  std::size_t slots_per_rank() const noexcept { return slots() / ranks_; }
  std::size_t filled_slots() const noexcept { return list_.size(); }

  std::int32_t expert_of(std::size_t slot) const noexcept { return physical_to_logical_[slot]; }
  std::size_t rank_of(std::size_t slot) const noexcept { return slot / slots_per_rank(); }
  std::size_t replica_count(std::size_t expert) const noexcept { return slots_of(expert).size(); }

  /// The slots of an expert, rising.
  std::span<const std::int32_t> slots_of(std::size_t expert) const noexcept {
    const auto begin = static_cast<std::size_t>(begins_[expert]);
    return std::span(list_).subspan(begin, static_cast<std::size_t>(begins_[expert + 1]) - begin);
  }
  std::span<const std::int32_t> physical_to_logical() const noexcept {
    return physical_to_logical_;
  }
  /// The experts of a rank's slots, in the order of the slots.
  std::span<const std::int32_t> experts_on(std::size_t rank) const noexcept {
    return physical_to_logical().subspan(rank * slots_per_rank(), slots_per_rank());
  }
  /// What the tables hold, to the byte.
  std::size_t table_bytes() const noexcept {
    return (physical_to_logical_.size() + list_.size() + begins_.size()) * sizeof(std::int32_t);
  }

  friend bool operator==(const ExpertMap&, const ExpertMap&) = default;

 private:
  ExpertMap(std::vector<std::int32_t> physical_to_logical, std::size_t experts, std::size_t ranks);

  std::vector<std::int32_t> physical_to_logical_;  // [slots]
  std::vector<std::int32_t> begins_;               // [experts + 1], into list_
  std::vector<std::int32_t> list_;                 // [filled slots]
  std::size_t ranks_ = 1;
};

/// How balancing begins: slot s < experts holds s, the slots above hold the experts once more from
/// 0 on, over and over.
///
/// Errors: kUsage for fewer slots than experts, slots that do not divide by ranks, or sizes beyond
/// the limits.
Result<ExpertMap> initial_map(std::size_t experts, std::size_t slots, std::size_t ranks);

/// The same slots with ranks behind them that hold nothing yet.
///
/// Errors: kUsage for fewer ranks than the map has, or more than the limits.
Result<ExpertMap> grown(const ExpertMap& map, std::size_t ranks);

/// The map of the first `ranks` ranks alone. To give up ranks, plan for the ranks that stay, bring
/// the weights into `grown` of that plan (it leaves the others empty), then shrink.
///
/// Errors: kUsage for no rank or more ranks than the map has, and for an expert that lies on
/// leaving ranks only.
Result<ExpertMap> shrunk(const ExpertMap& map, std::size_t ranks);

}  // namespace lode::placement
