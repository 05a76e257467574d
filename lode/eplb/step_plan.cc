#include "lode/eplb/step_plan.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "lode/base/check.h"

namespace lode::eplb {
namespace {

using placement::ExpertMap;
using placement::kNoExpert;

// Chooses what is received in one step, and where everything lies after it.
class Step {
 public:
  Step(const ExpertMap& from, const ExpertMap& to, std::size_t max_records)
      : from_(from),
        to_(to),
        experts_(from.experts()),
        ranks_(from.ranks()),
        held_(ranks_ * experts_),
        wanted_(ranks_ * experts_),
        locked_(experts_, true),
        essential_(ranks_),
        can_send_(ranks_, max_records),
        can_receive_(ranks_, max_records),
        pending_(ranks_) {
    for (std::size_t slot = 0; slot < from.slots(); ++slot) {
      const std::size_t rank = from.rank_of(slot);
      if (from.expert_of(slot) >= 0) held_[at(rank, from.expert_of(slot))] = 1;
      if (to.expert_of(slot) >= 0) wanted_[at(rank, to.expert_of(slot))] = 1;
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) look_at(rank);
    for (std::size_t expert = 0; expert < experts_; ++expert)
      if (locked_[expert]) ++essential_[keeper(expert)];
  }

  MigrationStep make() {
    while (receive_with_room() || receive_in_a_circle()) {
    }
    std::ranges::stable_sort(moves_, {}, &RecordMove::to_rank);
    Result<ExpertMap> next = ExpertMap::make(arranged(), experts_, ranks_);
    LODE_CHECK(next, "a step loses no expert");
    return {std::move(moves_), *std::move(next)};
  }

 private:
  std::size_t at(std::size_t rank, std::int32_t expert) const {
    return rank * experts_ + static_cast<std::size_t>(expert);
  }
  std::size_t slots_per_rank() const { return from_.slots_per_rank(); }

  // The rank that holds an expert until it has come to a rank that wants it.
  std::size_t keeper(std::size_t expert) const {
    return from_.rank_of(static_cast<std::size_t>(from_.slots_of(expert).front()));
  }

  void look_at(std::size_t rank) {
    for (std::size_t expert = 0; expert < experts_; ++expert) {
      const std::size_t pair = rank * experts_ + expert;
      if (wanted_[pair] == 0) continue;
      if (held_[pair] == 0) {
        pending_[rank].push_back(static_cast<std::int32_t>(expert));
      } else {
        locked_[expert] = false;
        ++essential_[rank];
      }
    }
  }

  bool has_room(std::size_t rank) const { return essential_[rank] < slots_per_rank(); }

  void receive(std::size_t rank, std::int32_t expert, std::size_t from_slot) {
    const std::size_t sender = from_.rank_of(from_slot);
    moves_.push_back({expert, sender, from_slot - sender * slots_per_rank(), rank});
    --can_send_[sender];
    --can_receive_[rank];
    held_[at(rank, expert)] = 1;
    std::erase(pending_[rank], expert);
    ++essential_[rank];
    const auto index = static_cast<std::size_t>(expert);
    if (!locked_[index]) return;
    locked_[index] = false;
    --essential_[keeper(index)];
  }

  // A slot of the rank that has sent least; none if all have sent what they may.
  std::optional<std::size_t> sender_of(std::int32_t expert) const {
    std::optional<std::size_t> best;
    for (const std::int32_t one : from_.slots_of(static_cast<std::size_t>(expert))) {
      const auto slot = static_cast<std::size_t>(one);
      const std::size_t left = can_send_[from_.rank_of(slot)];
      if (left > (best ? can_send_[from_.rank_of(*best)] : 0)) best = slot;
    }
    return best;
  }

  bool receive_with_room() {
    bool received = false;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::vector<std::int32_t> pending = pending_[rank];
      for (const std::int32_t expert : pending) {
        if (can_receive_[rank] == 0 || !has_room(rank)) break;
        const std::optional<std::size_t> slot = sender_of(expert);
        if (!slot) continue;
        receive(rank, expert, *slot);
        received = true;
      }
    }
    return received;
  }

  struct Edge {
    std::size_t rank = 0;  // that receives
    std::int32_t expert = 0;
    std::size_t from_slot = 0;
  };

  // An expert that `rank` keeps for another one that can receive it, and that other one.
  std::optional<Edge> way_on(std::size_t rank) const {
    if (can_send_[rank] == 0) return std::nullopt;
    for (std::size_t expert = 0; expert < experts_; ++expert) {
      if (!locked_[expert] || keeper(expert) != rank) continue;
      for (const std::int32_t slot : to_.slots_of(expert)) {
        const std::size_t other = to_.rank_of(static_cast<std::size_t>(slot));
        if (can_receive_[other] == 0) continue;
        return Edge{other, static_cast<std::int32_t>(expert),
                    static_cast<std::size_t>(from_.slots_of(expert).front())};
      }
    }
    return std::nullopt;
  }

  // Each rank of a circle receives what the one before has kept for it, and so has room for it.
  bool receive_in_a_circle() {
    for (std::size_t start = 0; start < ranks_; ++start) {
      std::vector<Edge> path;
      std::vector<std::size_t> place_of(ranks_, kNowhere);
      std::size_t rank = start;
      while (place_of[rank] == kNowhere) {
        const std::optional<Edge> edge = way_on(rank);
        if (!edge) break;
        place_of[rank] = path.size();
        path.push_back(*edge);
        rank = edge->rank;
      }
      if (place_of[rank] == kNowhere) continue;
      for (std::size_t i = place_of[rank]; i < path.size(); ++i)
        receive(path[i].rank, path[i].expert, path[i].from_slot);
      return true;
    }
    return false;
  }

  std::vector<std::int32_t> arranged() const {
    const bool last = std::ranges::all_of(pending_, [](const auto& list) { return list.empty(); });
    const auto end = to_.physical_to_logical();
    if (last) return {end.begin(), end.end()};
    std::vector<std::int32_t> next(from_.slots());
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::size_t first = rank * slots_per_rank();
      arrange(rank, std::span(next).subspan(first, slots_per_rank()));
    }
    return next;
  }

  // Wanted experts that are there take their final slots; those that are kept for others take what
  // is left, their own slots if they can; all other slots stay as they are.
  void arrange(std::size_t rank, std::span<std::int32_t> next) const {
    const auto now = from_.experts_on(rank), end = to_.experts_on(rank);
    std::vector<bool> taken = final_slots(rank);
    for (std::size_t slot = 0; slot < next.size(); ++slot)
      next[slot] = taken[slot] ? end[slot] : now[slot];
    std::vector<std::int32_t> homeless;
    for (const std::int32_t expert : kept_by(rank)) {
      bool stays = false;
      for (std::size_t slot = 0; slot < next.size() && !stays; ++slot) {
        stays = !taken[slot] && now[slot] == expert;
        if (stays) taken[slot] = true;
      }
      if (!stays) homeless.push_back(expert);
    }
    for (const std::int32_t expert : homeless) {
      const auto slot = static_cast<std::size_t>(std::ranges::find(taken, false) - taken.begin());
      LODE_CHECK(slot < next.size(), "a rank has room for what it keeps");
      next[slot] = expert;
      taken[slot] = true;
    }
  }

  std::vector<std::int32_t> kept_by(std::size_t rank) const {
    std::vector<std::int32_t> kept;
    for (std::size_t expert = 0; expert < experts_; ++expert)
      if (locked_[expert] && keeper(expert) == rank)
        kept.push_back(static_cast<std::int32_t>(expert));
    return kept;
  }

  // Slots that get what they shall have at the end. Where the rank keeps more than then has room,
  // replicas beside the first wait.
  std::vector<bool> final_slots(std::size_t rank) const {
    const auto end = to_.experts_on(rank);
    std::vector<bool> taken(end.size());
    std::vector<std::size_t> copies(experts_);
    std::size_t left = 0;
    for (std::size_t slot = 0; slot < end.size(); ++slot) {
      taken[slot] = end[slot] >= 0 && held_[at(rank, end[slot])] != 0;
      if (taken[slot]) ++copies[static_cast<std::size_t>(end[slot])];
      if (!taken[slot]) ++left;
    }
    const std::size_t kept = kept_by(rank).size();
    for (std::size_t slot = end.size(); slot-- > 0 && left < kept;) {
      if (!taken[slot] || copies[static_cast<std::size_t>(end[slot])] == 1) continue;
      --copies[static_cast<std::size_t>(end[slot])];
      taken[slot] = false;
      ++left;
    }
    return taken;
  }

  static constexpr std::size_t kNowhere = ~std::size_t{0};

  const ExpertMap& from_;
  const ExpertMap& to_;
  std::size_t experts_, ranks_;
  std::vector<std::uint8_t> held_;                   // [ranks, experts], with what the step brings
  std::vector<std::uint8_t> wanted_;                 // [ranks, experts]
  std::vector<bool> locked_;                         // [experts]: no rank that wants it has it
  std::vector<std::size_t> essential_;               // [ranks]: slots that a rank cannot do without
  std::vector<std::size_t> can_send_, can_receive_;  // [ranks]
  std::vector<std::vector<std::int32_t>> pending_;   // [ranks]: wanted and not there
  std::vector<RecordMove> moves_;
};

}  // namespace

std::size_t records_to_receive(const ExpertMap& from, const ExpertMap& to, std::size_t rank) {
  std::vector<bool> there(from.experts());
  for (const std::int32_t expert : from.experts_on(rank))
    if (expert >= 0) there[static_cast<std::size_t>(expert)] = true;
  std::size_t records = 0;
  for (const std::int32_t expert : to.experts_on(rank)) {
    if (expert < 0 || there[static_cast<std::size_t>(expert)]) continue;
    there[static_cast<std::size_t>(expert)] = true;
    ++records;
  }
  return records;
}

MigrationStep next_step(const ExpertMap& from, const ExpertMap& to, std::size_t max_records) {
  LODE_CHECK(
      from.experts() == to.experts() && from.slots() == to.slots() && from.ranks() == to.ranks(),
      "maps of one layer are of one size");
  LODE_CHECK(max_records > 0, "a step moves at least one record");
  return Step(from, to, max_records).make();
}

}  // namespace lode::eplb
