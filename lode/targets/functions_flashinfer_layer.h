#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lode/targets/cutlass_forms.h"
#include "lode/targets/function_values.h"
#include "lode/targets/prepare_layer.h"

// What the functions over the experts of a layer share; only functions_flashinfer*.cc include this.

namespace lode::targets {

/// What to expect of the tensors.
struct LayerWants {
  formats::Encoding encoding;
  bool gated = true;
  bool rows_in_turn = false;
  bool input_scales = false;  // a13_scale [E, halves], a2_scale [E]
};

/// A layer out of tensors w13, w2 and, where there are such, w13_scale, w2_scale, w13_scale_2,
/// w2_scale_2, w13_bias, w2_bias.
struct NamedLayer {
  ExpertsShape shape;
  LayerTensors tensors;
  LayerScalars scalars;
};
/// Param gated; where it is not given, whether w13 has twice the rows that w2 has columns.
///
/// Errors: kUsage for a param that is no flag.
Result<bool> gated_of(const Request& request);

/// Errors: kInvalidSource naming a tensor that is missing or misshapen; kUsage for sizes that are
///         given and are others.
Result<NamedLayer> read_layer(const Request& request, const LayerWants& wants);

/// An engine's name, and that of a function's output.
struct OutputName {
  std::string_view engine;
  std::string_view output;
};

/// The tensors of the layer in `form` that have a name in `names`.
///
/// Errors: those of make_layer_preparer and prepare_layer.
Result<std::vector<NamedTensor>> run_layer(const NamedLayer& layer, const LayerForm& form, Way way,
                                           std::span<const OutputName> names);

/// "w13_weight" is "w13", "w13_weight_scale" is "w13_scale", ...
inline constexpr OutputName kLayerNames[]{{"w13_weight", "w13"},
                                          {"w2_weight", "w2"},
                                          {"w13_weight_scale", "w13_scale"},
                                          {"w2_weight_scale", "w2_scale"},
                                          {"w13_weight_scale_inv", "w13_scale"},
                                          {"w2_weight_scale_inv", "w2_scale"},
                                          {"w13_weight_scale_2", "w13_scale_2"},
                                          {"w2_weight_scale_2", "w2_scale_2"},
                                          {"w13_input_scale", "a13_scale"},
                                          {"w2_input_scale", "a2_scale"},
                                          {"w13_bias", "w13_bias"},
                                          {"w2_bias", "w2_bias"}};

/// Where upstream pads behind both halves and so moves the border between them, the right tensors
/// stand under the names right_*, too.
void add_right_names(std::vector<NamedTensor>& outputs);

/// Sets the padded sizes to params hidden_out and intermediate_out, where there are such.
///
/// Errors: kUsage for params that are no sizes.
Status take_padded_sizes(const Params& params, LayerForm& form);

}  // namespace lode::targets
