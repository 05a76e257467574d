#include "lode/placement/moves.h"

#include <algorithm>
#include <optional>

#include "lode/base/check.h"

namespace lode::placement {
namespace {

using Place = Move::Place;

std::size_t slots_per_rank(std::span<const RankTransfer> plan, std::span<const std::int32_t> to) {
  LODE_CHECK(!plan.empty() && to.size() % plan.size() == 0, "slots are those of the plan's ranks");
  return to.size() / plan.size();
}

std::size_t sent_from(const RankTransfer& sender, std::int32_t expert) {
  const auto found = std::ranges::find(sender.sends, expert, &Send::expert);
  LODE_CHECK(found != sender.sends.end(), "what one rank receives another sends");
  return static_cast<std::size_t>(found->from_slot);
}

// Slot to slot: first what changes from old content, rank by rank, then the duplicates.
struct Direct {
  std::vector<Move> moves;
  std::vector<Move> duplicates;
};
Direct direct_moves(std::span<const RankTransfer> plan, std::span<const std::int32_t> to) {
  Direct direct;
  const std::size_t width = slots_per_rank(plan, to);
  const auto local = [&](std::size_t rank, const LocalCopy& copy) {
    const auto slot = static_cast<std::size_t>(copy.to_slot);
    return Move{.expert = to[rank * width + slot],
                .from_rank = rank,
                .from = static_cast<std::size_t>(copy.from_slot),
                .to_rank = rank,
                .to = slot};
  };
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    for (const LocalCopy& copy : plan[rank].local_copies) direct.moves.push_back(local(rank, copy));
    for (const Receive& receive : plan[rank].receives) {
      const auto sender = static_cast<std::size_t>(receive.from_rank);
      direct.moves.push_back({.expert = receive.expert,
                              .from_rank = sender,
                              .from = sent_from(plan[sender], receive.expert),
                              .to_rank = rank,
                              .to = static_cast<std::size_t>(receive.to_slot)});
    }
    for (const LocalCopy& copy : plan[rank].duplicates)
      direct.duplicates.push_back(local(rank, copy));
  }
  return direct;
}

// Orders moves so that no record is overwritten before its last reader.
class Chains {
 public:
  Chains(std::vector<Move> moves, std::size_t slots, std::size_t width)
      : moves_(std::move(moves)), width_(width), readers_(slots), move_to_(slots) {
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      ++readers_[source(moves_[i])];
      move_to_[target(moves_[i])] = i;
    }
  }

  std::vector<Move> ordered() {
    for (const Move& move : moves_)
      if (readers_[target(move)] == 0) ready_.push_back(target(move));
    follow();
    // What is left are cycles, in each of which every slot has one reader.
    for (std::size_t slot = 0; slot < move_to_.size(); ++slot)
      if (move_to_[slot]) open_cycle(slot);
    return std::move(done_);
  }

 private:
  std::size_t source(const Move& move) const { return move.from_rank * width_ + move.from; }
  std::size_t target(const Move& move) const { return move.to_rank * width_ + move.to; }

  void follow() {
    while (!ready_.empty()) {
      const std::size_t slot = ready_.back();
      ready_.pop_back();
      const Move& move = moves_[*move_to_[slot]];
      move_to_[slot].reset();
      done_.push_back(move);
      if (move.from_place == Place::kBuffer) continue;
      const std::size_t freed = source(move);
      if (--readers_[freed] == 0 && move_to_[freed]) ready_.push_back(freed);
    }
  }

  void open_cycle(std::size_t slot) {
    const std::size_t rank = slot / width_;
    const auto reader = std::ranges::find_if(moves_, [&](const Move& move) {
      return source(move) == slot && move_to_[target(move)].has_value();
    });
    LODE_CHECK(reader != moves_.end(), "a slot of a cycle has a reader");
    done_.push_back({.expert = reader->expert,
                     .from_rank = rank,
                     .from = slot % width_,
                     .to_rank = rank,
                     .to = 0,
                     .to_place = Place::kBuffer});
    reader->from = 0;
    reader->from_place = Place::kBuffer;
    --readers_[slot];
    ready_.push_back(slot);
    follow();
  }

  std::vector<Move> moves_;
  std::size_t width_;
  std::vector<std::size_t> readers_;                 // of the old content of a slot
  std::vector<std::optional<std::size_t>> move_to_;  // the move that is still to write a slot
  std::vector<std::size_t> ready_;
  std::vector<Move> done_;
};

}  // namespace

std::vector<Move> staged_moves(std::span<const RankTransfer> plan,
                               std::span<const std::int32_t> to) {
  Direct direct = direct_moves(plan, to);
  std::vector<Move> staged, out;
  std::vector<std::size_t> entries(plan.size());
  for (const Move& move : direct.moves) {
    const std::size_t entry = entries[move.to_rank]++;
    Move in = move;
    in.to = entry;
    in.to_place = Place::kBuffer;
    staged.push_back(in);
    out.push_back({.expert = move.expert,
                   .from_rank = move.to_rank,
                   .from = entry,
                   .to_rank = move.to_rank,
                   .to = move.to,
                   .from_place = Place::kBuffer});
  }
  staged.insert(staged.end(), out.begin(), out.end());
  staged.insert(staged.end(), direct.duplicates.begin(), direct.duplicates.end());
  return staged;
}

std::vector<Move> chained_moves(std::span<const RankTransfer> plan,
                                std::span<const std::int32_t> to) {
  Direct direct = direct_moves(plan, to);
  Chains chains(std::move(direct.moves), to.size(), slots_per_rank(plan, to));
  std::vector<Move> moves = chains.ordered();
  moves.insert(moves.end(), direct.duplicates.begin(), direct.duplicates.end());
  return moves;
}

}  // namespace lode::placement
