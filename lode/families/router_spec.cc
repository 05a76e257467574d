#include "lode/families/router_spec.h"

#include <cmath>
#include <string>
#include <string_view>

#include "lode/families/config_fault.h"

namespace lode::families {
namespace {

constexpr std::uint32_t kMaxExperts = 65536;

Status check_range(std::string_view key, std::uint64_t value, std::uint64_t least,
                   std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return config_fault(key, std::to_string(least) + " to " + std::to_string(most),
                      std::to_string(value));
}

Status check_groups(const RouterSpec& spec) {
  LODE_TRY_STATUS(check_range("n_group", spec.num_groups, 1, spec.num_experts));
  LODE_TRY_STATUS(check_range("topk_group", spec.top_k_groups, 1, spec.num_groups));
  if (spec.num_groups == 1) return {};
  const std::string groups = std::to_string(spec.num_groups);
  // Other engines choose without groups here, and some then forget the scaling factor.
  if (spec.num_experts % spec.num_groups != 0) {
    return config_fault("n_group", "a divisor of num_experts", groups);
  }
  if (spec.num_experts == spec.num_groups) {
    return config_fault("n_group", "groups of at least two experts", groups);
  }
  if (spec.num_zero_experts != 0) {
    return config_fault("n_group", "1 where zero_expert_num is not 0", groups);
  }
  const std::uint64_t eligible =
      std::uint64_t{spec.num_experts} / spec.num_groups * spec.top_k_groups;
  if (eligible >= spec.top_k) return {};
  return config_fault("topk_group", "groups that hold num_experts_per_tok experts",
                      std::to_string(spec.top_k_groups));
}

Status check_number(std::string_view key, double value, bool may_be_zero) {
  const bool ok = std::isfinite(value) && (value > 0.0 || (may_be_zero && value == 0.0));
  if (ok) return {};
  return config_fault(key,
                      may_be_zero ? "a finite number, not negative" : "a finite number above 0",
                      std::to_string(value));
}

Status check_sparse_mixer(const RouterSpec& spec) {
  if (spec.score != Score::kSparseMixer) return {};
  LODE_TRY_STATUS(check_range("num_experts_per_tok", spec.top_k, 2, 2));
  if (spec.selection_bias || spec.num_groups != 1) {
    return config_fault("n_group", "1 and no selection bias with a sparse mixer",
                        std::to_string(spec.num_groups));
  }
  return check_number("router_jitter_noise", spec.near, true);
}

}  // namespace

Status check_router(const RouterSpec& spec) {
  LODE_TRY_STATUS(check_range("num_experts", spec.num_experts, 1, kMaxExperts));
  LODE_TRY_STATUS(check_range("zero_expert_num", spec.num_zero_experts, 0, kMaxExperts));
  LODE_TRY_STATUS(check_range("num_experts_per_tok", spec.top_k, 1, spec.num_choices()));
  if (spec.weight_on_input) LODE_TRY_STATUS(check_range("num_experts_per_tok", spec.top_k, 1, 1));
  LODE_TRY_STATUS(check_groups(spec));
  LODE_TRY_STATUS(check_number("routed_scaling_factor", double{spec.scaling}, false));
  LODE_TRY_STATUS(check_number("moe_normalize_expert_weights", spec.norm_power, false));
  LODE_TRY_STATUS(check_number("norm_add", spec.norm_add, true));
  LODE_TRY_STATUS(check_number("moe_norm_min", spec.norm_floor, true));
  return check_sparse_mixer(spec);
}

}  // namespace lode::families
