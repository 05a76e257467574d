#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "lode/eplb/migration.h"
#include "lode/placement/expert_map.h"

// For tests only: banks of records that tell whose they are, and random maps.

namespace lode::eplb::test {

using placement::ExpertMap;

/// The bytes of an expert's record, the same wherever it lies.
inline std::vector<std::byte> record_of(std::int32_t expert, std::size_t layer,
                                        std::size_t record_bytes) {
  std::mt19937 random(static_cast<unsigned>(expert) * 977U + static_cast<unsigned>(layer) + 1);
  std::vector<std::byte> record(record_bytes);
  for (std::byte& one : record) one = static_cast<std::byte>(random() >> 24);
  return record;
}

/// A rank's bank of one layer, as its map says.
class Bank {
 public:
  Bank(const ExpertMap& map, std::size_t rank, std::size_t layer, std::size_t record_bytes)
      : layer_(layer), record_bytes_(record_bytes) {
    for (const std::int32_t expert : map.experts_on(rank)) {
      const std::vector<std::byte> record = record_of(expert, layer, record_bytes);
      bytes_.insert(bytes_.end(), record.begin(), record.end());
    }
  }

  std::span<std::byte> bytes() { return bytes_; }

  /// Slots of the rank whose record is not that of their expert. Empty ones hold anything.
  std::size_t wrong_slots(const ExpertMap& map, std::size_t rank) const {
    std::size_t wrong = 0;
    for (std::size_t slot = 0; slot < map.slots_per_rank(); ++slot) {
      const std::int32_t expert = map.experts_on(rank)[slot];
      if (expert < 0) continue;
      const std::vector<std::byte> want = record_of(expert, layer_, record_bytes_);
      const auto found = std::span(bytes_).subspan(slot * record_bytes_, record_bytes_);
      if (!std::ranges::equal(found, want)) ++wrong;
    }
    return wrong;
  }

 private:
  std::size_t layer_, record_bytes_;
  std::vector<std::byte> bytes_;
};

struct MapShape {
  std::size_t experts = 1, slots_per_rank = 1, ranks = 1;
};

/// Any experts in any slots, each at least once; also empty ones where `holes`.
inline ExpertMap random_map(const MapShape& shape, bool holes, std::mt19937& random) {
  const std::size_t slots = shape.slots_per_rank * shape.ranks;
  std::vector<std::int32_t> experts(slots);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    experts[slot] =
        static_cast<std::int32_t>(slot < shape.experts ? slot : random() % shape.experts);
    if (holes && slot >= shape.experts && random() % 2 == 0) experts[slot] = placement::kNoExpert;
  }
  std::shuffle(experts.begin(), experts.end(), random);
  return *ExpertMap::make(experts, shape.experts, shape.ranks);
}

inline MapShape random_shape(std::size_t ranks, std::mt19937& random) {
  MapShape shape{.slots_per_rank = 1 + random() % 7, .ranks = ranks};
  shape.experts = 1 + random() % (shape.slots_per_rank * ranks);
  if (random() % 3 == 0) shape.experts = shape.slots_per_rank * ranks;  // no replica
  return shape;
}

/// step() until the layer has come or something fails.
inline Status move_all(Migration& migration) {
  while (migration.busy()) {
    LODE_TRY(const StepReport report, migration.step());
    (void)report;
  }
  return {};
}

}  // namespace lode::eplb::test
