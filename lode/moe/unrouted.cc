#include "lode/moe/unrouted.h"

#include <algorithm>

#include "lode/ops/exp.h"

namespace lode::moe {
namespace {

void add_zero_experts(const ops::Compute& compute, const MoeInput& input, const MoeScratch& scratch,
                      const ops::Rows& sums) noexcept {
  ops::for_each(compute, input.num_rows, [&](std::size_t index, std::size_t) noexcept {
    const std::size_t row = input.first_row + index;
    const float weight = scratch.zero_weights[row];
    if (weight == 0.0F) return;
    const std::span<const float> x = input.x.row(row);
    const std::span<float> sum = sums.row(row);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * x[i];
  });
}

/// The tokens among rows [first, last) of the input, each with the weight of its shared expert.
std::uint32_t collect(const ops::Compute& compute, const SharedExpert& shared,
                      const MoeInput& input, const MoeScratch& scratch, std::size_t first,
                      std::size_t last) noexcept {
  std::uint32_t count = 0;
  for (std::size_t index = first; index < last; ++index) {
    if (input.is_padding(index)) continue;
    scratch.row_of[count++] = static_cast<std::uint32_t>(input.first_row + index);
  }
  std::fill_n(scratch.weight_of.begin(), count, 1.0F);
  if (shared.gate.empty()) return count;
  ops::for_each(compute, count, [&](std::size_t position, std::size_t) noexcept {
    const float* x = input.x.row(scratch.row_of[position]).data();
    scratch.weight_of[position] =
        ops::sigmoid(compute.table->dot(x, shared.gate.data(), input.x.k));
  });
  return count;
}

void run_shared(const ops::Compute& compute, const SharedExpert& shared, const MoeInput& input,
                const MoeScratch& scratch, const ops::Rows& sums) noexcept {
  for (std::size_t first = 0; first < input.num_rows; first += scratch.chunk_rows) {
    const std::size_t last = std::min(input.num_rows, first + scratch.chunk_rows);
    const std::uint32_t count = collect(compute, shared, input, scratch, first, last);
    if (count == 0) continue;
    scratch.active[0] = {shared.mlp, 0, count};
    const ExpertWork work{scratch.active.first(1), scratch.row_of.first(count),
                          scratch.weight_of.first(count), shared.activation};
    run_gate_up(compute, work, input.x, scratch.shared_inner);
    run_down(compute, work, scratch.shared_inner, sums);
  }
}

}  // namespace

void run_unrouted(const ops::Compute& compute, const MoeLayer& layer, const MoeInput& input,
                  const MoeScratch& scratch, const ops::Rows& sums) noexcept {
  if (layer.router.num_zero_experts != 0) add_zero_experts(compute, input, scratch, sums);
  if (layer.shared.exists()) run_shared(compute, layer.shared, input, scratch, sums);
}

}  // namespace lode::moe
