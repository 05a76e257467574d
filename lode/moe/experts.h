#pragma once

#include <cstdint>
#include <span>

#include "lode/layout/expert_record.h"
#include "lode/moe/activation.h"
#include "lode/ops/linear.h"

namespace lode::moe {

/// One MLP: down(activation(gate x, up x)), biases where the model has them; where the activation
/// is not gated there is no up, and its first matrix is called gate. A view.
struct GatedMlp {
  ops::GateUp gate_up;
  ops::Matrix down;
  std::span<const float> gate_bias;  // [I] or empty, as the next two
  std::span<const float> up_bias;    // [I]
  std::span<const float> down_bias;  // [H]
};
GatedMlp gated_mlp(const layout::ExpertViews& views);

/// An expert that somebody chose, and its pairs: positions [first, first + count) of the order.
struct ActiveExpert {
  GatedMlp mlp;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// What the experts of a layer have to do. Position p of the order is the pair of row row_of[p]
/// with the expert whose stretch p lies in.
///
/// Shapes: experts by rising id; row_of, weight_of [positions].
struct ExpertWork {
  std::span<const ActiveExpert> experts;
  std::span<const std::uint32_t> row_of;
  std::span<const float> weight_of;
  GatedActivation activation;
};

/// The forms that experts of such records read of the layer's input.
ops::Forms input_forms(const ops::Compute& compute, const layout::ExpertRecord& record) noexcept;

/// First half: inner[p] = activation(gate x + bias, up x + bias) for every position p, and its int8
/// forms. Tasks are (expert, panels). Weights are never expanded beyond a thread's tile.
///
/// Shapes: x [rows][H], in the forms that the experts read; inner [positions][I].
void run_gate_up(const ops::Compute& compute, const ExpertWork& work, const ops::Rows& x,
                 const ops::Rows& inner) noexcept;

/// Second half: sums[row_of[p]] += weight_of[p] * (down inner[p] + bias). A task owns some columns
/// of all rows and takes the experts by rising id, so each number has one fixed order of sums for
/// any number of threads and any company, and no partial sums are kept.
///
/// Shapes: inner [positions][I]; sums [rows][H].
void run_down(const ops::Compute& compute, const ExpertWork& work, const ops::Rows& inner,
              const ops::Rows& sums) noexcept;

}  // namespace lode::moe
