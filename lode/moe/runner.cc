#include "lode/moe/runner.h"

#include <algorithm>
#include <numeric>

namespace lode::moe {
namespace {

/// The rows of one chunk of an input, as positions of a pass.
struct Chunk {
  std::size_t first_row = 0;
  std::size_t num_rows = 0;
};

/// The experts that somebody in the chunk chose, and what each position of the order means.
ExpertWork collect(const MoeLayer& layer, const Chunk& chunk, const MoeScratch& scratch) noexcept {
  const std::size_t top_k = layer.router.top_k;
  const std::size_t total = scratch.order.total();
  for (std::size_t position = 0; position < total; ++position) {
    const std::size_t pair = chunk.first_row * top_k + scratch.order.order[position];
    scratch.row_of[position] = static_cast<std::uint32_t>(pair / top_k);
    scratch.weight_of[position] = scratch.weights[pair];
  }
  const auto active =
      list_active(layer, scratch.order, scratch.active, [](std::size_t expert) { return expert; });
  return {active, scratch.row_of.first(total), scratch.weight_of.first(total), layer.activation};
}

/// scaled[p] = weight_of[p] * x[row_of[p]], in the forms that the experts read; from then on the
/// weights are 1. Gives the same work on these rows, whose list takes the place of the order.
ExpertWork scale_input(const ops::Compute& compute, const MoeLayer& layer, const ExpertWork& work,
                       const ops::Rows& x, const MoeScratch& scratch) noexcept {
  const std::size_t total = work.row_of.size();
  ops::for_each(compute, total, [&](std::size_t position, std::size_t) noexcept {
    const std::span<const float> from = x.row(work.row_of[position]);
    const std::span<float> to = scratch.scaled.row(position);
    const float weight = scratch.weight_of[position];
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = weight * from[i];
    scratch.order.order[position] = static_cast<std::uint32_t>(position);
  });
  std::fill_n(scratch.weight_of.begin(), total, 1.0F);
  ops::pack_rows(compute, scratch.scaled, total, input_forms(compute, layer.record));
  ExpertWork scaled = work;
  scaled.row_of = scratch.order.order.first(total);
  return scaled;
}

void run_chunk(const ops::Compute& compute, const MoeLayer& layer, const ops::Rows& x,
               const Chunk& chunk, const MoeScratch& scratch, const ops::Rows& sums) noexcept {
  const std::size_t top_k = layer.router.top_k;
  order_by_expert(scratch.ids.subspan(chunk.first_row * top_k, chunk.num_rows * top_k),
                  scratch.order);
  const ExpertWork work = collect(layer, chunk, scratch);
  if (layer.router.weight_on_input) {
    run_gate_up(compute, scale_input(compute, layer, work, x, scratch), scratch.scaled,
                scratch.inner);
  } else {
    run_gate_up(compute, work, x, scratch.inner);
  }
  run_down(compute, work, scratch.inner, sums);
}

}  // namespace

void run_routed(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                const MoeScratch& scratch, const ops::Rows& sums) noexcept {
  for (std::size_t done = 0; done < input.num_rows; done += scratch.chunk_rows) {
    const Chunk chunk{input.first_row + done, std::min(scratch.chunk_rows, input.num_rows - done)};
    run_chunk(compute, layer, input.x, chunk, scratch, sums);
  }
}

void run_moe(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
             const MoeScratch& scratch, const ops::Rows& sums) noexcept {
  route_rows(compute, layer, input, scratch);
  run_routed(compute, layer, input, scratch, sums);
  run_unrouted(compute, layer, input, scratch, sums);
}

void run_moe(const ops::Compute& compute, const MoeLayer& layer, const ops::Rows& x,
             std::size_t num_rows, const MoeScratch& scratch, const ops::Rows& sums) noexcept {
  run_moe(compute, layer, {x, num_rows, {}}, scratch, sums);
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
