#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "lode/eplb/test_banks.h"

// For tests only: random pairs of maps, moved on ranks of any kind. What does not hold is an Error.

namespace lode::eplb::test {

inline Status hold(bool right, std::string_view what) {
  if (right) return {};
  return Error{.code = Code::kCheckFailed, .thing = std::string(what), .found = "it does not hold"};
}

struct Pair {
  ExpertMap from, to;
  std::size_t record_bytes = 1;
  std::size_t max_records = 1;
};

inline Pair random_pair(std::size_t ranks, std::size_t max_record_bytes, std::mt19937& random) {
  const MapShape shape = test::random_shape(ranks, random);
  const bool holes = random() % 3 == 0;
  return {test::random_map(shape, holes, random), test::random_map(shape, holes, random),
          1 + random() % max_record_bytes, 1 + random() % 4};
}

// Every rank draws the same pair; each slot is looked at after each step.
inline Status move_pair(comm::Group& group, const Pair& pair, std::size_t layer) {
  const std::size_t rank = group.rank();
  memory::Ledger ledger(std::uint64_t{1} << 30);
  moe::ExpertPlaces places(group, std::vector<ExpertMap>(layer + 1, pair.from), false);
  Bank bank(pair.from, rank, layer, pair.record_bytes);
  const std::uint64_t step_bytes = pair.max_records * pair.record_bytes + pair.record_bytes - 1;
  LODE_TRY(Migration migration,
           Migration::make(places, ledger, {.step_bytes = step_bytes, .checksums = true}));
  LODE_TRY_STATUS(migration.begin({layer, pair.to, bank.bytes(), pair.record_bytes}));
  const std::size_t needed = records_to_receive(pair.from, pair.to, rank);
  const std::size_t entries = migration.busy() ? std::min(needed, pair.max_records) : 0;
  const memory::BufferCost cost = memory::buffer_cost(entries * pair.record_bytes);
  LODE_TRY_STATUS(hold(ledger.held_bytes(memory::Tag::kStaging) == cost.tag_bytes &&
                           ledger.held_bytes() == cost.tag_bytes + cost.page_table_bytes,
                       "the ledger holds the buffer alone"));
  std::size_t received = 0;
  while (migration.busy()) {
    LODE_TRY(const StepReport report, migration.step());
    received += report.records_received;
    LODE_TRY_STATUS(hold(report.bytes_received <= step_bytes, "a step is bounded"));
    LODE_TRY_STATUS(hold(bank.wrong_slots(places.map(layer), rank) == 0,
                         "every slot holds the record of its expert"));
    LODE_TRY_STATUS(hold(report.layer_done == !migration.busy(), "done is idle"));
  }
  LODE_TRY_STATUS(hold(places.map(layer) == pair.to, "the map is the new one"));
  LODE_TRY_STATUS(hold(received == needed, "no record comes twice"));
  return hold(ledger.held_bytes() == 0, "nothing stays held");
}

struct Moves {
  std::size_t pairs = 1;
  std::size_t max_record_bytes = 1;
};

/// As a body of ranks, threads or processes.
inline Status experts_move(comm::Group& group, const Moves& moves) {
  std::mt19937 random(static_cast<unsigned>(group.size()));
  for (std::size_t i = 0; i < moves.pairs; ++i) {
    const Pair pair = random_pair(group.size(), moves.max_record_bytes, random);
    LODE_TRY_STATUS(move_pair(group, pair, i % 3));
  }
  return {};
}

}  // namespace lode::eplb::test
