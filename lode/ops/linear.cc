#include "lode/ops/linear.h"

#include <algorithm>
#include <cstring>

#include "lode/base/bytes.h"
#include "lode/base/check.h"

namespace lode::ops {
namespace {

constexpr std::size_t kPanelRows = kernels::kPanelRows;

kernels::PanelShape shape_of(const tensor::TensorView& view) {
  const auto shape = kernels::panel_shape(view.meta().encoding);
  LODE_CHECK(shape.has_value(), "panels of an encoding that panels do not hold");
  return *shape;
}

float scale_at(const tensor::TensorView& view, std::size_t offset_bytes, std::size_t index) {
  float value = 1.0F;
  if (view.meta().encoding.tensor_scale == formats::TensorScale::kNone) return value;
  LODE_CHECK(offset_bytes + (index + 1) * sizeof value <= view.bytes().size(),
             "a matrix without its line of matrix scales");
  std::memcpy(&value, view.data() + offset_bytes + index * sizeof value, sizeof value);
  return value;
}

struct Groups {
  std::size_t panels = 0;  // a task
  std::size_t tasks = 0;
};

Groups groups_of(const Compute& compute, const Matrix& weight) noexcept {
  const std::size_t panels = panels_per_task(
      weight.num_panels(), weight.shape.panel_bytes(weight.k), compute.pool->num_threads());
  return {panels, ceil_div(weight.num_panels(), panels)};
}

/// Columns [first, first + width) of one row of a job, from the tile.
void finish(const LinearJob& job, std::size_t first, std::span<const float> tile,
            float* y) noexcept {
  const float* bias = job.bias.empty() ? nullptr : job.bias.data() + first;
  for (std::size_t column = 0; column < tile.size(); ++column) {
    const float value = bias == nullptr ? tile[column] : tile[column] + bias[column];
    y[column] = job.add ? y[column] + value : value;
  }
}

void run_task(const Compute& compute, const Rows& x, std::size_t num_rows, const LinearJob& job,
              PanelCall call, std::span<float> tile) noexcept {
  const std::size_t first = call.first_panel * kPanelRows;
  const std::size_t stride = call.num_panels * kPanelRows;
  const std::size_t width = std::min(stride, job.weight->rows - first);
  for (std::size_t row = 0; row < num_rows; row += kRowBlock) {
    call.first_row = row;
    call.num_rows = std::min(kRowBlock, num_rows - row);
    multiply(compute, *job.weight, x, call, tile, stride);
    for (std::size_t r = 0; r < call.num_rows; ++r) {
      finish(job, first, tile.subspan(r * stride, width),
             job.y.data() + (row + r) * job.y_stride + first);
    }
  }
}

}  // namespace

Matrix matrix(const tensor::TensorView& view) {
  LODE_CHECK(view.meta().layout == tensor::Layout::kPanels && view.shape().rank() == 2,
             "a matrix in panels was wanted");
  Matrix result;
  result.shape = shape_of(view);
  result.rows = view.shape()[0];
  result.k = view.shape()[1];
  result.panels = view.data();
  result.panel_stride_bytes = result.shape.panel_bytes(result.k);
  const std::size_t panels_bytes = result.num_panels() * result.panel_stride_bytes;
  LODE_CHECK(panels_bytes <= view.bytes().size(), "a matrix shorter than its panels");
  result.scale = {scale_at(view, panels_bytes, 0), view.meta().encoding.tensor_scale};
  return result;
}

GateUp gate_up(const tensor::TensorView& view) {
  LODE_CHECK(view.meta().layout == tensor::Layout::kGateUpPanels && view.shape().rank() == 3 &&
                 view.shape()[0] == 2,
             "gate and up panels were wanted");
  Matrix gate;
  gate.shape = shape_of(view);
  gate.rows = view.shape()[1];
  gate.k = view.shape()[2];
  gate.panels = view.data();
  const std::size_t panel_bytes = gate.shape.panel_bytes(gate.k);
  gate.panel_stride_bytes = 2 * panel_bytes;
  const std::size_t panels_bytes = gate.num_panels() * gate.panel_stride_bytes;
  LODE_CHECK(panels_bytes <= view.bytes().size(), "gate and up shorter than their panels");
  Matrix up = gate;
  up.panels = gate.panels + panel_bytes;
  gate.scale = {scale_at(view, panels_bytes, 0), view.meta().encoding.tensor_scale};
  up.scale = {scale_at(view, panels_bytes, 1), view.meta().encoding.tensor_scale};
  return {gate, up};
}

void multiply(const Compute& compute, const Matrix& weight, const Rows& x, const PanelCall& call,
              std::span<float> y, std::size_t y_stride) noexcept {
  const kernels::ActivationForm form = compute.form(weight.shape.kind);
  kernels::PanelDot dot;
  dot.shape = weight.shape;
  dot.scale = weight.scale;
  dot.panels = weight.panels + call.first_panel * weight.panel_stride_bytes;
  dot.panel_stride_bytes = weight.panel_stride_bytes;
  dot.num_panels = call.num_panels;
  dot.k = weight.k;
  dot.x_stride_bytes = x.stride_bytes(form);
  dot.x = x.data(form) + call.first_row * dot.x_stride_bytes;
  dot.rows = call.row_ids;
  dot.num_tokens = call.num_rows;
  dot.y = y.data();
  dot.y_stride = y_stride;
  compute.dot(weight.shape.kind)(dot);
}

void multiply_pairs(const Compute& compute, const GateUp& pair, const Rows& x,
                    const PanelCall& call, std::span<float> y, std::size_t y_stride) noexcept {
  PanelCall part = call;
  if (pair.gate.scale.value == pair.up.scale.value && pair.gate.scale.rule == pair.up.scale.rule) {
    Matrix both = pair.gate;  // one matrix of twice the panels
    both.panel_stride_bytes /= 2;
    part.first_panel = 2 * call.first_panel;
    part.num_panels = 2 * call.num_panels;
    multiply(compute, both, x, part, y, y_stride);
    return;
  }
  part.num_panels = 1;
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    part.first_panel = call.first_panel + panel;
    const std::size_t column = 2 * panel * kPanelRows;
    multiply(compute, pair.gate, x, part, y.subspan(column), y_stride);
    multiply(compute, pair.up, x, part, y.subspan(column + kPanelRows), y_stride);
  }
}

Forms forms_of(const Compute& compute, const Matrix& weight) noexcept {
  Forms forms;
  forms.add(compute.form(weight.shape.kind));
  return forms;
}

void linear(const Compute& compute, const Rows& x, std::size_t num_rows,
            std::span<const LinearJob> jobs) noexcept {
  std::size_t tasks = 0;
  for (const LinearJob& job : jobs) tasks += groups_of(compute, *job.weight).tasks;
  for_each(compute, tasks, [&](std::size_t task, std::size_t thread) noexcept {
    std::size_t index = 0;
    Groups groups = groups_of(compute, *jobs[0].weight);
    while (task >= groups.tasks) {
      task -= groups.tasks;
      groups = groups_of(compute, *jobs[++index].weight);
    }
    PanelCall call;
    call.first_panel = task * groups.panels;
    call.num_panels = std::min(groups.panels, jobs[index].weight->num_panels() - call.first_panel);
    run_task(compute, x, num_rows, jobs[index], call, compute.tile(thread));
  });
}

}  // namespace lode::ops
