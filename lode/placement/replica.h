#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/placement/expert_map.h"

namespace lode::placement {

/// A number that is spread evenly over 32 bits for consecutive rows.
///
/// Source: multiplicative hashing, Knuth, The Art of Computer Programming 3, 6.4.
constexpr std::uint32_t knuth_hash(std::size_t row) noexcept {
  return static_cast<std::uint32_t>(row) * 2654435769U;
}

/// Routed ids of a batch: `top_k` experts a row, -1 or anything else that is no expert where there
/// is none. Rows from `counted_rows` on are padding: they are mapped and not counted.
///
/// Shapes:  experts [rows, top_k].
struct RoutedRows {
  std::span<const std::int32_t> experts;
  std::size_t top_k = 1;
  std::size_t counted_rows = 0;
};

/// The slot of each id, chosen by the hash of its row: what vLLM does, kept for comparison. An
/// invalid id becomes -1. Adds one to `load` for every slot chosen for a row that counts.
///
/// Shapes:  slots as rows.experts; load [slots of the map], or empty where nothing is counted.
void choose_by_hash(const ExpertMap& map, const RoutedRows& rows, std::span<std::int32_t> slots,
                    std::span<std::int32_t> load);

/// Adds one to `load` for every valid id of a row that counts. By expert, not by slot, so that a
/// map may change while counts are kept.
///
/// Shapes:  load [experts].
void count_experts(const RoutedRows& rows, std::span<std::uint32_t> load);

/// The choice of replicas for the rows of one source rank: those on the rank itself, else those of
/// its node, else all; among them in turn, the first turn shifted by the rank. It depends on the
/// batch alone, and even a small batch is spread evenly.
///
/// Memory: four bytes for each expert and each of its nearest replicas.
class NearReplicas {
 public:
  /// Ranks of one node are consecutive, `ranks_per_node` of them, at least one.
  NearReplicas(const ExpertMap& map, std::size_t rank, std::size_t ranks_per_node);

  std::size_t experts() const noexcept { return begins_.size() - 1; }
  /// The nearest slots of an expert, rising; what the turns go over.
  std::span<const std::int32_t> slots_of(std::size_t expert) const noexcept {
    const auto begin = static_cast<std::size_t>(begins_[expert]);
    return std::span(slots_).subspan(begin, static_cast<std::size_t>(begins_[expert + 1]) - begin);
  }

  /// The slot of each id of a batch; an invalid id becomes -1. `turns` is room for a number an
  /// expert, its contents do not matter.
  ///
  /// Shapes:  ids, slots of one length; turns [experts].
  void choose(std::span<const std::int32_t> ids, std::span<std::int32_t> slots,
              std::span<std::uint32_t> turns) const;

 private:
  std::vector<std::int32_t> begins_;  // [experts + 1]
  std::vector<std::int32_t> slots_;
  std::size_t rank_;
};

}  // namespace lode::placement
