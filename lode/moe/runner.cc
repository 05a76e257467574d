#include "lode/moe/runner.h"

#include <algorithm>
#include <numeric>

#include "lode/base/bytes.h"

namespace lode::moe {
namespace {

/// Experts of one router task: their rows of the router's weight stay in the cache over all tokens.
constexpr std::size_t kRouterExperts = 8;

GatedMlp expert_mlp(const MoeLayer& layer, std::size_t expert) {
  const std::size_t bytes = layer.record.record_bytes;
  return gated_mlp(
      layout::expert_views(layer.record, layer.experts.subspan(expert * bytes, bytes)));
}

void choose_experts(const ops::Compute& compute, const MoeLayer& layer, std::size_t num_rows,
                    const MoeScratch& scratch) noexcept {
  const std::size_t experts = layer.router.num_experts;
  const std::size_t top_k = layer.router.top_k;
  ops::for_each(compute, num_rows, [&](std::size_t row, std::size_t thread) noexcept {
    const RouteRow out{scratch.ids.subspan(row * top_k, top_k),
                       scratch.weights.subspan(row * top_k, top_k)};
    const RouteInput input{
        scratch.logits.subspan(row * experts, experts), layer.selection_bias, {}, {}};
    const bool sure = route_row(layer.router, input, compute.tile(thread), out);
    scratch.unsure[row] = sure ? 0 : 1;
  });
}

/// The experts that somebody chose, and what each position of the order means.
ExpertWork collect(const MoeLayer& layer, const MoeScratch& scratch) noexcept {
  const std::size_t top_k = layer.router.top_k;
  const std::size_t total = scratch.order.total();
  for (std::size_t position = 0; position < total; ++position) {
    const std::uint32_t pair = scratch.order.order[position];
    scratch.row_of[position] = static_cast<std::uint32_t>(pair / top_k);
    scratch.weight_of[position] = scratch.weights[pair];
  }
  std::size_t active = 0;
  for (std::size_t expert = 0; expert < layer.router.num_experts; ++expert) {
    const std::uint32_t count = scratch.order.count(expert);
    if (count == 0) continue;
    scratch.active[active++] = {expert_mlp(layer, expert), scratch.order.first[expert], count};
  }
  return {scratch.active.first(active), scratch.row_of.first(total), scratch.weight_of.first(total),
          layer.activation};
}

}  // namespace

MoeScratch carve_moe(memory::Carver& carver, const families::RouterSpec& router,
                     const MoeWidths& widths, std::size_t rows, ops::Mode mode) {
  const std::size_t routed = widths.expert == 0 ? 0 : rows;
  const std::size_t pairs = routed * router.top_k;
  MoeScratch scratch;
  scratch.logits = carver.take<float>(routed * router.num_experts);
  scratch.ids = carver.take<std::int32_t>(pairs);
  scratch.weights = carver.take<float>(pairs);
  scratch.unsure = carver.take<std::uint8_t>(rows);
  scratch.order.first = carver.take<std::uint32_t>(std::size_t{router.num_experts} + 1);
  scratch.order.order = carver.take<std::uint32_t>(pairs);
  scratch.row_of = carver.take<std::uint32_t>(std::max(pairs, rows));
  scratch.weight_of = carver.take<float>(std::max(pairs, rows));
  scratch.active = carver.take<ActiveExpert>(std::max<std::size_t>(router.num_experts, 1));
  scratch.inner = ops::carve_rows(carver, pairs, widths.expert, mode);
  scratch.dense_inner = ops::carve_rows(carver, widths.dense == 0 ? 0 : rows, widths.dense, mode);
  return scratch;
}

std::size_t router_tile_floats(const families::RouterSpec& spec) {
  return route_scratch_floats(spec);
}

void router_logits(const ops::Compute& compute, const MoeLayer& layer, const ops::Rows& x,
                   std::size_t num_rows, const MoeScratch& scratch) noexcept {
  const std::size_t experts = layer.router.num_experts;
  const std::size_t expert_blocks = ceil_div(experts, kRouterExperts);
  const std::size_t row_blocks = ceil_div(num_rows, ops::kRowBlock);
  ops::for_each(compute, expert_blocks * row_blocks, [&](std::size_t task, std::size_t) noexcept {
    const std::size_t first_row = task / expert_blocks * ops::kRowBlock;
    const std::size_t last_row = std::min(num_rows, first_row + ops::kRowBlock);
    const std::size_t first = task % expert_blocks * kRouterExperts;
    const std::size_t last = std::min(experts, first + kRouterExperts);
    for (std::size_t row = first_row; row < last_row; ++row) {
      for (std::size_t expert = first; expert < last; ++expert) {
        const float* weight = layer.router_weight.data() + expert * x.k;
        const float logit = compute.table->dot(x.row(row).data(), weight, x.k);
        const float bias = layer.router_bias.empty() ? 0.0F : layer.router_bias[expert];
        scratch.logits[row * experts + expert] = logit + bias;
      }
    }
  });
}

void run_moe(const ops::Compute& compute, const MoeLayer& layer, const ops::Rows& x,
             std::size_t num_rows, const MoeScratch& scratch, const ops::Rows& sums) noexcept {
  router_logits(compute, layer, x, num_rows, scratch);
  choose_experts(compute, layer, num_rows, scratch);
  order_by_expert(scratch.ids.first(num_rows * layer.router.top_k), scratch.order);
  const ExpertWork work = collect(layer, scratch);
  run_gate_up(compute, work, x, scratch.inner);
  run_down(compute, work, scratch.inner, sums);
}

void run_dense(const ops::Compute& compute, const DenseLayer& layer, const ops::Rows& x,
               std::size_t num_rows, const MoeScratch& scratch, const ops::Rows& sums) noexcept {
  const ExpertWork work{scratch.active.first(1), scratch.row_of.first(num_rows),
                        scratch.weight_of.first(num_rows), layer.activation};
  std::iota(scratch.row_of.begin(), scratch.row_of.begin() + static_cast<std::ptrdiff_t>(num_rows),
            0U);
  std::fill_n(scratch.weight_of.begin(), num_rows, 1.0F);
  scratch.active[0] = {layer.mlp, 0, static_cast<std::uint32_t>(num_rows)};
  run_gate_up(compute, work, x, scratch.dense_inner);
  run_down(compute, work, scratch.dense_inner, sums);
}

}  // namespace lode::moe
