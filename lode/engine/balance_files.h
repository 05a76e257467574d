#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/json/json.h"
#include "lode/placement/expert_map.h"

namespace lode::engine {

/// No file of loads or maps has more numbers: 16,384 experts in 256 layers, or 256 in 16,384.
inline constexpr std::size_t kMaxBalanceNumbers = std::size_t{1} << 22;

/// How much each expert of each layer had to do. In JSON:
///
///   {"layers": 2, "experts": 4, "steps": 10, "loads": [[90, 30, 61, 20], [5, 0, 7, 1]]}
///
/// "steps" are the passes that were counted, 1 where absent. Traffic that changes has a matrix a
/// step: {"layers": 2, "experts": 4, "traffic": [[[..], [..]], ...]}. Other members are ignored, so
/// engines may note what they like.
struct BalanceLoads {
  std::size_t layers = 0;
  std::size_t experts = 0;
  double steps = 1;                           // that `loads` sums
  std::vector<float> loads{};                 // [layers, experts]
  std::vector<std::vector<float>> traffic{};  // of each step the same, or empty
};

/// Errors: kInvalidSource naming the member: one that is missing or of another kind, a row of
/// another length, a number below 0 or no number, and more than kMaxBalanceNumbers.
Result<BalanceLoads> read_balance_loads(const json::Value& value);
json::Value as_json(const BalanceLoads& loads);

/// Maps of all layers. In JSON, slot by slot the expert, -1 in a slot that holds none:
///
///   {"layers": 1, "experts": 4, "slots": 6, "ranks": 2, "physical_to_logical": [[0, 1, 2, 3, 0,
///   2]]}
///
/// "layers" and "experts" may be absent: as many as there are rows, and up to the highest expert.
///
/// Errors: kInvalidSource naming the member or the layer: as above, and what
/// `placement::ExpertMap::make` refuses.
Result<std::vector<placement::ExpertMap>> read_balance_maps(const json::Value& value);
json::Value as_json(std::span<const placement::ExpertMap> maps);

}  // namespace lode::engine
