#include "lode/placement/policies.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/placement/balance.h"
#include "lode/placement/deepseek.h"
#include "lode/placement/fewest_moves.h"
#include "lode/placement/spread.h"

namespace lode::placement {
namespace {

constexpr std::array kPolicies{
    PolicyInfo{Policy::kIdentity, "identity",
               "slot s holds expert s, further slots the experts again from 0 on"},
    PolicyInfo{Policy::kDeepSeek, "deepseek",
               "DeepSeek's published balancer, hierarchical where groups divide by nodes"},
    PolicyInfo{Policy::kBest, "best",
               "the best of the current map, both forms of deepseek, and largest first with one "
               "replica a rank and pairwise swaps"},
};

Error mismatch(std::string_view thing, std::string wanted, std::size_t found) {
  return {.code = Code::kUsage,
          .thing = std::string(thing),
          .wanted = std::move(wanted),
          .found = fmt::format("{}", found)};
}

Status check_input(const PlanInput& input) {
  if (input.load.size() % input.experts != 0)
    return mismatch("loads to plan for", fmt::format("rows of {} experts", input.experts),
                    input.load.size());
  if (input.current.empty()) return {};
  const std::size_t layers = input.load.size() / input.experts;
  if (input.current.size() != layers)
    return mismatch("current maps", fmt::format("one for each of {} layers", layers),
                    input.current.size());
  for (const ExpertMap& map : input.current)
    if (map.experts() != input.experts)
      return mismatch("experts of a current map", fmt::format("{}", input.experts), map.experts());
  return {};
}

// A plan before it is a map.
struct Draft {
  std::vector<std::int32_t> physical_to_logical;
  std::size_t free_nodes = 1;  // ranks may change names within each of that many nodes
};

class Planner {
 public:
  Planner(const PlanInput& input, Hierarchy hierarchy)
      : input_(input),
        load_(input.load.begin(), input.load.end()),
        hierarchical_(input.experts, input.shape, hierarchy),
        hierarchy_(hierarchy) {
    std::ranges::transform(load_, load_.begin(), usable_load);
  }

  Result<ExpertMap> identity() const {
    return initial_map(input_.experts, input_.shape.slots, input_.shape.ranks);
  }

  Result<ExpertMap> deepseek(std::size_t layer) { return settled(hierarchical(layer), layer); }

  Result<ExpertMap> best(std::size_t layer) {
    std::optional<ExpertMap> best = current(layer);
    double least = best ? fullest(*best, layer) : 0;
    // A map with holes yields to a full one that is as good.
    bool holes = best && best->filled_slots() < best->slots();
    for (Draft& draft : drafts(layer)) {
      LODE_TRY(ExpertMap map, settled(std::move(draft), layer));
      const double load = fullest(map, layer);
      if (best && (load > least || (load == least && !holes))) continue;
      best = std::move(map);
      least = load;
      holes = false;
    }
    return *std::move(best);
  }

 private:
  std::span<const float> load(std::size_t layer) const {
    return std::span(load_).subspan(layer * input_.experts, input_.experts);
  }
  double fullest(const ExpertMap& map, std::size_t layer) const {
    return std::ranges::max(rank_loads(map, load(layer)));
  }

  Draft hierarchical(std::size_t layer) {
    Draft draft{std::vector<std::int32_t>(input_.shape.slots), hierarchy_.nodes};
    hierarchical_.plan_layer(load(layer), draft.physical_to_logical);
    return draft;
  }

  // Ours first: of equal ones it has fewest replicas side by side.
  std::vector<Draft> drafts(std::size_t layer) {
    if (!spread_) spread_.emplace(input_.experts, input_.shape);
    std::vector<Draft> all(1, {std::vector<std::int32_t>(input_.shape.slots)});
    spread_->plan_layer(load(layer), all.back().physical_to_logical);
    all.push_back(hierarchical(layer));
    if (hierarchy_.groups == 1) return all;
    all.push_back({std::vector<std::int32_t>(input_.shape.slots)});
    if (!global_) global_.emplace(input_.experts, input_.shape, Hierarchy{});
    global_->plan_layer(load(layer), all.back().physical_to_logical);
    return all;
  }

  std::optional<ExpertMap> current(std::size_t layer) const {
    if (input_.current.empty()) return std::nullopt;
    const ExpertMap& map = input_.current[layer];
    if (map.slots() != input_.shape.slots || map.ranks() != input_.shape.ranks) return std::nullopt;
    return map;
  }

  // The current content of the ranks that the plan is for; joining ranks hold nothing.
  std::vector<std::int32_t> held(std::size_t layer) const {
    const auto old = input_.current[layer].physical_to_logical();
    std::vector<std::int32_t> held(old.begin(), old.end());
    held.resize(input_.shape.slots, kNoExpert);
    return held;
  }

  Result<ExpertMap> settled(Draft draft, std::size_t layer) const {
    const Shape& shape = input_.shape;
    const std::size_t slots_per_rank = shape.slots / shape.ranks;
    if (!input_.current.empty() && input_.current[layer].slots_per_rank() == slots_per_rank)
      settle(draft.physical_to_logical, held(layer), {shape.ranks, draft.free_nodes});
    return ExpertMap::make(std::move(draft.physical_to_logical), input_.experts, shape.ranks);
  }

  const PlanInput& input_;
  std::vector<float> load_;
  DeepSeekPlanner hierarchical_;
  Hierarchy hierarchy_;
  std::optional<DeepSeekPlanner> global_;
  std::optional<SpreadPlanner> spread_;
};

Result<ExpertMap> plan_layer(Policy policy, Planner& planner, std::size_t layer) {
  switch (policy) {
    case Policy::kIdentity:
      return planner.identity();
    case Policy::kDeepSeek:
      return planner.deepseek(layer);
    case Policy::kBest:
      break;
  }
  return planner.best(layer);
}

}  // namespace

std::span<const PolicyInfo> policy_table() noexcept { return kPolicies; }

Result<Policy> policy_by_name(std::string_view name) {
  const auto found = std::ranges::find(kPolicies, name, &PolicyInfo::name);
  if (found != kPolicies.end()) return found->policy;
  return Error{.code = Code::kUsage,
               .thing = "policy of balancing",
               .wanted = "identity, deepseek or best",
               .found = std::string(name)};
}

Result<std::vector<ExpertMap>> plan(Policy policy, const PlanInput& input) {
  LODE_TRY(const Hierarchy hierarchy, check_shape(input.shape, input.experts));
  LODE_TRY_STATUS(check_input(input));
  Planner planner(input, hierarchy);
  std::vector<ExpertMap> maps;
  maps.reserve(input.load.size() / input.experts);
  for (std::size_t layer = 0; layer < input.load.size() / input.experts; ++layer) {
    LODE_TRY(ExpertMap map, plan_layer(policy, planner, layer));
    maps.push_back(std::move(map));
  }
  return maps;
}

}  // namespace lode::placement
