#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/placement/expert_map.h"
#include "lode/placement/shape.h"

namespace lode::placement {

enum class Policy : std::uint8_t { kIdentity, kDeepSeek, kBest };

struct PolicyInfo {
  Policy policy;
  std::string_view name;  // of the flag and in JSON
  std::string_view meaning;
};

/// Every policy, in the order of the enum.
std::span<const PolicyInfo> policy_table() noexcept;

/// Errors: kUsage for a name that the table lacks.
Result<Policy> policy_by_name(std::string_view name);

/// What a plan is made from.
///
/// Shapes:  load [layers, experts], of any unit; see `usable_load` for what is no load.
///          current [layers], or empty where nothing lies anywhere yet.
struct PlanInput {
  std::span<const float> load;
  std::size_t experts = 0;
  Shape shape{};
  std::span<const ExpertMap> current{};
};

/// A map for every layer. Layers do not influence each other.
///
/// kIdentity: `initial_map`, whatever the load.
/// kDeepSeek: DeepSeek's published policy.
/// kBest: of the current map, both forms of DeepSeek's policy and our own the one whose fullest
/// rank has least to do, layer by layer; the current one wherever nothing is better. So its balance
/// is never below the current map's or kDeepSeek's.
///
/// Where maps are current, ranks and slots of a new one are named so that fewest experts move (see
/// `settle`). Current maps may have more ranks or fewer, with the same slots a rank: that is how
/// ranks leave and join. With other slots a rank nothing is kept in place.
///
/// Errors: kUsage for a shape that `check_shape` refuses, a load that does not divide by experts,
/// and current maps that are not as many as layers or of other experts.
Result<std::vector<ExpertMap>> plan(Policy policy, const PlanInput& input);

}  // namespace lode::placement
