#include "lode/moe/routing.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/moe/router.h"

namespace lode::moe {
namespace {

/// Experts of one router task: their rows of the router's weight stay in the cache over all tokens.
constexpr std::size_t kRouterExperts = 8;

/// The ids that the layer's table has for the token of a row; empty where it has none.
std::span<const std::int32_t> fixed_ids(const MoeLayer& layer, const MoeInput& input,
                                        std::size_t index) noexcept {
  const std::size_t top_k = layer.router.top_k;
  const std::size_t tokens = layer.expert_table.size() / top_k;
  if (index >= input.tokens.size()) return {};
  const auto token = static_cast<std::size_t>(input.tokens[index]);
  return token < tokens ? layer.expert_table.subspan(token * top_k, top_k)
                        : std::span<const std::int32_t>{};
}

/// What is chosen for one token, whatever the scratch held. A token that the layer's table does
/// not know gets no experts, and is not sure.
bool choose_row(const MoeLayer& layer, std::span<const std::int32_t> fixed,
                std::span<const float> logits, std::span<float> tile, RouteRow out) noexcept {
  if (!layer.expert_table.empty() && fixed.empty()) {
    route_padding(out);
    return false;
  }
  return route_row(layer.router, {logits, layer.selection_bias, layer.expert_scale, fixed}, tile,
                   out);
}

}  // namespace

std::size_t router_tile_floats(const families::RouterSpec& spec) {
  return route_scratch_floats(spec);
}

void router_logits(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                   const MoeScratch& scratch) noexcept {
  const std::size_t choices = layer.router.num_choices();
  const std::size_t expert_blocks = ceil_div(choices, kRouterExperts);
  const std::size_t row_blocks = ceil_div(input.num_rows, ops::kRowBlock);
  const std::size_t end = input.first_row + input.num_rows;
  const std::size_t k = input.x.k;
  ops::for_each(compute, expert_blocks * row_blocks, [&](std::size_t task, std::size_t) noexcept {
    const std::size_t first_row = input.first_row + task / expert_blocks * ops::kRowBlock;
    const std::size_t last_row = std::min(end, first_row + ops::kRowBlock);
    const std::size_t first = task % expert_blocks * kRouterExperts;
    const std::size_t last = std::min(choices, first + kRouterExperts);
    for (std::size_t row = first_row; row < last_row; ++row) {
      for (std::size_t expert = first; expert < last; ++expert) {
        const float* weight = layer.router_weight.data() + expert * k;
        const float logit = compute.table->dot(input.x.row(row).data(), weight, k);
        const float bias = layer.router_bias.empty() ? 0.0F : layer.router_bias[expert];
        scratch.logits[row * choices + expert] = logit + bias;
      }
    }
  });
}

void choose_experts(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                    const MoeScratch& scratch) noexcept {
  const std::size_t choices = layer.router.num_choices();
  const std::size_t top_k = layer.router.top_k;
  ops::for_each(compute, input.num_rows, [&](std::size_t index, std::size_t thread) noexcept {
    const std::size_t row = input.first_row + index;
    const RouteRow out{scratch.ids.subspan(row * top_k, top_k),
                       scratch.weights.subspan(row * top_k, top_k)};
    bool sure = true;
    if (input.is_padding(index)) {
      route_padding(out);
    } else {
      const std::span<const float> logits = scratch.logits.subspan(row * choices, choices);
      sure = choose_row(layer, fixed_ids(layer, input, index), logits, compute.tile(thread), out);
    }
    scratch.unsure[row] = sure ? 0 : 1;
    if (layer.router.num_zero_experts == 0) return;
    scratch.zero_weights[row] = take_zero_experts(layer.router.num_experts, out);
  });
}

void route_rows(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                const MoeScratch& scratch) noexcept {
  router_logits(compute, layer, input, scratch);
  choose_experts(compute, layer, input, scratch);
}

void route_rows(const ops::Compute& compute, const MoeLayer& layer, const ops::Rows& x,
                std::size_t num_rows, const MoeScratch& scratch) noexcept {
  route_rows(compute, layer, {x, num_rows, {}}, scratch);
}

}  // namespace lode::moe
