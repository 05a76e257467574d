#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/comm/group.h"
#include "lode/families/model_spec.h"
#include "lode/loader/plan.h"
#include "lode/placement/expert_map.h"
#include "lode/placement/linear_placement.h"
#include "lode/placement/policies.h"

namespace lode::engine {

/// How experts are moved between ranks while a model runs.
struct BalanceSettings {
  placement::Policy policy = placement::Policy::kBest;
  std::int64_t interval_passes = 3000;      // between two looks at the load
  double half_life_passes = 1000;           // after which a pass counts half
  std::uint64_t step_bytes = 256ULL << 20;  // of records that a rank receives at once
  double bytes_per_second = 1e9;            // that a rank can send: what moving is judged by
  double threshold = 1;    // a move must save more than this many times what it takes
  bool checksums = false;  // of every record that moves
};

/// How a run spreads a model's experts over ranks; everything else each rank has for itself. One
/// rank: not at all.
struct RankSettings {
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;
  // The ranks of this machine, consecutive ones, which share its memory and its processors.
  std::uint32_t first_here = 0;
  std::uint32_t ranks_here = 1;
  bool one_process = true;  // those are threads of one process
  std::uint32_t redundant_experts = 0;
  placement::Order order = placement::Order::kLinear;  // of experts without replicas
  std::vector<placement::ExpertMap> maps{};            // [layers], instead of all that, or empty
  std::optional<BalanceSettings> balance{};            // none: every expert stays where it is
};

/// Bytes that MPI takes in each process.
inline constexpr std::uint64_t kMpiBytes = 6ULL << 20;

/// The settings of this rank of a group.
RankSettings settings_of(const comm::Group& group, bool one_process);

/// Where the experts of each layer lie to begin with; empty for one rank.
///
/// Errors: kUsage for experts that do not divide by ranks with their replicas, for a round robin
///         that cannot be had, for maps of another model or of other ranks, for a model without
///         experts, and for empty slots where experts are to be moved.
Result<std::vector<placement::ExpertMap>> expert_maps(const families::ModelSpec& spec,
                                                      const RankSettings& settings);

/// The experts that `rank` loads, layer by layer; none listed where there are no maps, which is
/// all.
loader::ExpertSlots slots_of(const std::vector<placement::ExpertMap>& maps, std::size_t rank);

/// Bytes of the tables of all layers, those for the choice of replicas included.
std::uint64_t table_bytes(const std::vector<placement::ExpertMap>& maps);

/// Whether any of the ranks says so. Collective. Errors: those of comm::Group.
Result<bool> any_rank(comm::Group& group, bool own);

/// Whether all ranks run the same thing, which `description` says. Collective.
/// Errors: kInvalidSource naming the first rank that differs; those of comm::Group.
Status check_same(comm::Group& group, std::string_view description);

}  // namespace lode::engine
