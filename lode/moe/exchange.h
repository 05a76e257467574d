#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/result.h"
#include "lode/comm/group.h"
#include "lode/memory/carver.h"
#include "lode/moe/layer_watch.h"
#include "lode/moe/runner.h"
#include "lode/placement/expert_map.h"
#include "lode/placement/replica.h"

namespace lode::moe {

/// How the experts of a layer are spread over ranks, seen from one of them. A view.
struct ExpertRanks {
  comm::Group* group = nullptr;
  const placement::ExpertMap* map = nullptr;          // slot p lies on rank p / slots_per_rank
  const placement::NearReplicas* replicas = nullptr;  // of this rank
  bool whole_bank = false;      // the bank holds all experts in order, not only those of the slots
  LayerWatch* watch = nullptr;  // null where nobody asks
};

/// Rows [first, first + count) of a pass.
struct RowRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// What an exchange reads and adds to. A view.
///
/// Shapes: x, sums [at least range.first + range.count][H].
struct ExchangeRows {
  ops::Rows x;
  ops::Rows sums;
  RowRange range;  // of this rank
};

/// The rows of `num_rows` that a rank routes and combines: equal shares, the first ranks one more.
RowRange rows_of_rank(std::size_t num_rows, std::size_t num_ranks, std::size_t rank) noexcept;

/// What decides how much an exchange holds. `slots` are those of one rank.
struct ExchangeShape {
  std::size_t rows = 0;  // of all ranks together
  std::size_t ranks = 1;
  std::size_t experts = 0;
  std::size_t slots = 0;
  std::size_t top_k = 0;
  std::size_t hidden = 0;
  ops::Mode mode = ops::Mode::kExact;

  /// A token on its way to a rank: its numbers, and its slots there.
  std::size_t row_bytes() const noexcept {
    return hidden * sizeof(float) + top_k * sizeof(std::int32_t);
  }
};

/// What one exchange writes, reused by all layers. A view.
///
/// Shapes: own = the most rows of one rank; counts [ranks].
struct ExchangeScratch {
  ExchangeShape shape;
  std::span<std::int32_t> slot_of;    // [own * top_k]: physical, -1 where a pair has none
  std::span<std::uint32_t> reply_of;  // [own * top_k]: row of `replies` that answers a pair
  std::span<std::uint32_t> turns;     // [experts], for the choice of replicas
  std::span<std::int32_t> rows_to;    // [ranks], as the next three
  std::span<std::int32_t> rows_from;
  std::span<std::int32_t> pairs_to;
  std::span<std::int32_t> pairs_from;
  std::span<std::size_t> gather_bytes;  // [ranks]
  std::span<std::byte> sent;            // [own * min(ranks, top_k)][row_bytes]
  std::span<std::byte> received;        // [rows][row_bytes]
  std::span<std::int32_t> local_slot;  // [rows * top_k]: of this rank, -1 where a pair is another's
  std::span<std::uint32_t> reply_row;  // [rows * top_k]: row of `answers` for a pair
  ExpertOrder order;                   // of the slots
  std::span<ActiveExpert> active;      // [slots]
  ops::Rows x;                         // [rows][H]
  ops::Rows answers;                   // [rows * top_k][H]: products of this rank's experts
  ops::Rows replies;                   // [own * top_k][H]: products for this rank's rows
};

ExchangeScratch carve_exchange(memory::Carver& carver, const ExchangeShape& shape);

/// The experts of a layer over ranks: sums += the weighted experts of x for the rows of this rank.
/// A row goes once to every rank that has one of its experts, with the slots that it wants there;
/// each product comes back by itself and is added where the row is, by rising expert id. So the
/// bits are those of one rank, whatever the ranks, the map and the choice of replicas; the price is
/// a product a pair on the way back instead of a sum a rank.
///
/// Collective: all ranks enter, also those without rows. `scratch` holds ids and weights of the
/// rows; its `inner`, `row_of` and `weight_of` are used. layer.experts are the slots of this rank,
/// or all of them.
///
/// Errors: those of comm::exchange_rows; kPeerLost where ranks do not agree about slots, which
///         fails the group.
Status exchange_experts(const ops::Compute& compute, const MoeLayer& layer,
                        const ExpertRanks& ranks, const ExchangeRows& rows,
                        const MoeScratch& scratch, const ExchangeScratch& exchange);

/// Brings the rows that each rank has combined to all of them. Collective.
///
/// Shapes: rows [at least num_rows][H].
/// Errors: those of comm::Group.
Status gather_rows(comm::Group& group, const ops::Rows& rows, std::size_t num_rows,
                   const ExchangeScratch& exchange);

}  // namespace lode::moe
