#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lode/base/range.h"
#include "lode/formats/format.h"
#include "lode/layout/matrix_rows.h"

namespace lode::targets {

/// What the experts of one layer are, as the checkpoint has them. E = num_experts, H = hidden,
/// I = intermediate, in elements.
struct ExpertsShape {
  std::uint64_t num_experts = 0;  // that are prepared: those of this rank
  std::uint64_t hidden = 0;
  std::uint64_t intermediate = 0;
  bool gated = true;          // gate and up; else up alone, which stands where gate stands
  bool rows_in_turn = false;  // the checkpoint's own w13 has gate's rows and up's in turn (gpt-oss)
  bool bias = false;
  bool input_scales = false;                              // prescribed scales of the activations
  formats::Encoding encoding;                             // of all three matrices
  formats::Format scale_format{};                         // of the rows of block scales
  bool scales_are_exponents = false;                      // stored as E8M0, widened since
  formats::Format bias_format = formats::Format::kBf16;   // as stored
  formats::Format model_format = formats::Format::kBf16;  // of the model's activations: BF16 or F16

  std::uint32_t num_halves() const noexcept { return gated ? 2 : 1; }
};

/// A part of gate and up, or of down: rows of each half, and numbers of each row.
struct SourceWindow {
  std::array<Range, 2> rows{};
  Range k{};

  bool is_all() const noexcept { return *this == SourceWindow{}; }
  friend bool operator==(const SourceWindow&, const SourceWindow&) = default;
};

/// One expert as its checkpoint has it. What a tensor does not need (Needs) may be empty; codes may
/// be those of a window alone.
///
/// Shapes: gate_up halves [I, row bytes of H], down [H, row bytes of I]; scales the same with rows
///         of blocks; biases [I] and [H] as rows of one number.
struct ExpertSource {
  layout::MatrixRows gate_up;
  layout::MatrixRows down;
  layout::MatrixRows gate_up_scales;
  layout::MatrixRows down_scales;
  layout::MatrixRows gate_up_bias;
  layout::MatrixRows down_bias;
};

/// Single numbers of a layer's experts; known before its first tensor is made.
///
/// Shapes: each [E], or empty where the checkpoint has none. Scales of matrices are multipliers,
///         whatever the checkpoint wrote; of a layer that is not gated `gate` is up's, `up` empty.
struct LayerScalars {
  std::vector<float> gate_scale;
  std::vector<float> up_scale;
  std::vector<float> down_scale;
  bool one_scale = false;  // gate and up were quantised together, with one scale
  std::vector<float> gate_input_scale;
  std::vector<float> up_input_scale;
  std::vector<float> down_input_scale;
  // Over all experts of the layer, those of other ranks too; 0 where there are none.
  float largest_gate_up_input_scale = 0.0F;
  float largest_down_input_scale = 0.0F;
  // The largest block scale of the experts that are prepared, where the preparer asks for it; NaN
  // never wins.
  float largest_gate_up_block_scale = 0.0F;
  float largest_down_block_scale = 0.0F;
  // The largest magnitudes, gate's and up's as one, of experts whose weights are quantised on the
  // way and must be known before.
  std::vector<float> gate_up_amax{};
  std::vector<float> down_amax{};
};

}  // namespace lode::targets
