#include "lode/moe/experts.h"

#include <algorithm>

#include "lode/base/bytes.h"

namespace lode::moe {
namespace {

constexpr std::size_t kPanelRows = kernels::kPanelRows;

/// tile[i] += bias[first + i].
void add_bias(std::span<const float> bias, std::size_t first, std::span<float> tile) noexcept {
  if (bias.empty()) return;
  for (std::size_t i = 0; i < tile.size(); ++i) tile[i] += bias[first + i];
}

struct GateUpTask {
  const ops::Compute* compute;
  const ExpertWork* work;
  const ops::Rows* x;
  const ops::Rows* inner;
  std::size_t matrices;  // 2: gate and up side by side; 1: a gate alone, of what is not gated

  void rows(const ActiveExpert& expert, ops::PanelCall call, std::uint32_t position,
            std::span<float> tile) const noexcept {
    const std::size_t stride = matrices * call.num_panels * kPanelRows;
    call.row_ids = work->row_of.data() + position;
    if (matrices == 2) {
      ops::multiply_pairs(*compute, expert.mlp.gate_up, *x, call, tile, stride);
    } else {
      ops::multiply(*compute, expert.mlp.gate_up.gate, *x, call, tile, stride);
    }
    for (std::size_t r = 0; r < call.num_rows; ++r) {
      finish(expert.mlp, call, tile.subspan(r * stride, stride), inner->row(position + r));
    }
  }

  /// Biases and activation of one row, panel after panel as they lie in the tile.
  void finish(const GatedMlp& mlp, const ops::PanelCall& call, std::span<float> pairs,
              std::span<float> out) const noexcept {
    for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
      const std::size_t first = (call.first_panel + panel) * kPanelRows;
      const std::size_t width = std::min(kPanelRows, mlp.gate_up.gate.rows - first);
      const std::span<float> gate = pairs.subspan(matrices * panel * kPanelRows, width);
      std::span<float> up;
      add_bias(mlp.gate_bias, first, gate);
      if (matrices == 2) {
        up = pairs.subspan((2 * panel + 1) * kPanelRows, width);
        add_bias(mlp.up_bias, first, up);
      }
      activate(work->activation, gate, up, out.subspan(first, width));
    }
  }
};

struct DownTask {
  const ops::Compute* compute;
  const ExpertWork* work;
  const ops::Rows* inner;
  const ops::Rows* sums;

  void rows(const ActiveExpert& expert, ops::PanelCall call, std::uint32_t position,
            std::span<float> tile) const noexcept {
    const std::size_t stride = call.num_panels * kPanelRows;
    const std::size_t first = call.first_panel * kPanelRows;
    const std::size_t width = std::min(stride, expert.mlp.down.rows - first);
    call.first_row = position;
    ops::multiply(*compute, expert.mlp.down, *inner, call, tile, stride);
    for (std::size_t r = 0; r < call.num_rows; ++r) {
      const std::span<float> product = tile.subspan(r * stride, width);
      add_bias(expert.mlp.down_bias, first, product);
      const float weight = work->weight_of[position + r];
      const std::span<float> sum = sums->row(work->row_of[position + r]).subspan(first, width);
      for (std::size_t i = 0; i < width; ++i) sum[i] += weight * product[i];
    }
  }
};

/// An expert's positions in blocks of rows.
template <class Task>
void in_row_blocks(const Task& task, const ActiveExpert& expert, ops::PanelCall call,
                   std::span<float> tile) noexcept {
  for (std::uint32_t done = 0; done < expert.count; done += ops::kRowBlock) {
    call.num_rows = std::min<std::size_t>(ops::kRowBlock, expert.count - done);
    task.rows(expert, call, expert.first + done, tile);
  }
}

}  // namespace

GatedMlp gated_mlp(const layout::ExpertViews& views) {
  const bool gated = views.gate_up.meta().layout == tensor::Layout::kGateUpPanels;
  const ops::GateUp gate_up =
      gated ? ops::gate_up(views.gate_up) : ops::GateUp{ops::matrix(views.gate_up), {}};
  return {gate_up, ops::matrix(views.down), tensor::floats(views.gate_bias),
          tensor::floats(views.up_bias), tensor::floats(views.down_bias)};
}

ops::Forms input_forms(const ops::Compute& compute, const layout::ExpertRecord& record) noexcept {
  ops::Forms forms;
  const auto shape = kernels::panel_shape(record.gate_up);
  if (shape) forms.add(compute.form(shape->kind));
  return forms;
}

void run_gate_up(const ops::Compute& compute, const ExpertWork& work, const ops::Rows& x,
                 const ops::Rows& inner) noexcept {
  if (work.experts.empty()) return;
  const ops::Matrix& gate = work.experts.front().mlp.gate_up.gate;
  const std::size_t pairs = gate.num_panels();
  const std::size_t pairs_a_task = std::max<std::size_t>(
      1, ops::panels_per_task(2 * pairs * work.experts.size(), gate.shape.panel_bytes(gate.k),
                              compute.pool->num_threads()) /
             2);
  const std::size_t groups = ceil_div(pairs, pairs_a_task);
  const std::size_t matrices = is_gated(work.activation.kind) ? 2 : 1;
  const GateUpTask body{&compute, &work, &x, &inner, matrices};
  ops::for_each(compute, work.experts.size() * groups,
                [&](std::size_t task, std::size_t thread) noexcept {
                  ops::PanelCall call;
                  call.first_panel = task % groups * pairs_a_task;
                  call.num_panels = std::min(pairs_a_task, pairs - call.first_panel);
                  in_row_blocks(body, work.experts[task / groups], call, compute.tile(thread));
                });
  ops::pack_rows(compute, inner, work.row_of.size(),
                 ops::forms_of(compute, work.experts.front().mlp.down));
}

void run_down(const ops::Compute& compute, const ExpertWork& work, const ops::Rows& inner,
              const ops::Rows& sums) noexcept {
  if (work.experts.empty()) return;
  const ops::Matrix& down = work.experts.front().mlp.down;
  const std::size_t panels = down.num_panels();
  const std::size_t panels_a_task = ops::panels_per_task(
      panels, down.shape.panel_bytes(down.k) * work.experts.size(), compute.pool->num_threads());
  const DownTask body{&compute, &work, &inner, &sums};
  ops::for_each(compute, ceil_div(panels, panels_a_task),
                [&](std::size_t task, std::size_t thread) noexcept {
                  ops::PanelCall call;
                  call.first_panel = task * panels_a_task;
                  call.num_panels = std::min(panels_a_task, panels - call.first_panel);
                  for (const ActiveExpert& expert : work.experts) {
                    in_row_blocks(body, expert, call, compute.tile(thread));
                  }
                });
}

}  // namespace lode::moe
