#include "lode/targets/functions_flashinfer_layer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"

namespace lode::targets {
namespace {

using formats::Format;

std::vector<Format> code_dtypes(const formats::Encoding& encoding) {
  if (encoding.element == Format::kE2m1) return {Format::kU8};
  if (encoding.element == Format::kE4m3) return {Format::kE4m3};
  return {Format::kBf16, Format::kF16};
}

std::vector<Format> scale_dtypes(const formats::Encoding& encoding) {
  if (encoding.scale == Format::kE4m3) return {Format::kE4m3};
  if (encoding.scale == Format::kE8m0) return {Format::kU8, Format::kE8m0};
  return {Format::kF32, Format::kBf16, Format::kF16};
}

/// F32 numbers of a tensor.
std::vector<float> floats_of(const NamedTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

class LayerReader {
 public:
  LayerReader(std::span<const NamedTensor> inputs, const LayerWants& wants)
      : inputs_(inputs), wants_(wants) {}

  Result<NamedLayer> read() {
    LODE_TRY_STATUS(read_codes());
    if (wants_.encoding.has_scale && wants_.encoding.block_rows != formats::kWhole) {
      LODE_TRY_STATUS(read_block_scales());
    }
    if (find(inputs_, "w13_bias") != nullptr) LODE_TRY_STATUS(read_biases());
    LODE_TRY_STATUS(read_scalars());
    if (wants_.input_scales) LODE_TRY_STATUS(read_input_scales());
    return std::move(layer_);
  }

 private:
  Status read_codes();
  Status read_block_scales();
  Status read_biases();
  Status read_scalars();
  Status read_input_scales();
  ExpertsShape& shape() { return layer_.shape; }
  std::uint64_t halves() const { return wants_.gated ? 2 : 1; }

  std::span<const NamedTensor> inputs_;
  LayerWants wants_;
  NamedLayer layer_;
};

Status LayerReader::read_codes() {
  const auto dtypes = code_dtypes(wants_.encoding);
  const std::array<std::uint64_t, 3> any{kAnyExtent, kAnyExtent, kAnyExtent};
  LODE_TRY(const NamedTensor* const w13, want(inputs_, "w13", dtypes, any));
  if (w13->bytes.empty() || w13->shape[1] % halves() != 0) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "tensor w13",
                 .wanted = w13->bytes.empty() ? "experts with rows and columns"
                                              : "an even number of rows, gate's and up's",
                 .found = describe(*w13)};
  }
  const bool fp4 = wants_.encoding.element == Format::kE2m1;
  shape().encoding = wants_.encoding;
  if (!wants_.encoding.has_scale) shape().encoding.element = w13->dtype;
  shape().num_experts = w13->shape[0];
  shape().hidden = w13->shape[2] * (fp4 ? 2 : 1);
  shape().intermediate = w13->shape[1] / halves();
  shape().gated = wants_.gated;
  shape().rows_in_turn = wants_.rows_in_turn;
  const std::array<std::uint64_t, 3> down{shape().num_experts, shape().hidden,
                                          fp4 ? shape().intermediate / 2 : shape().intermediate};
  LODE_TRY(const NamedTensor* const w2, want(inputs_, "w2", std::array{w13->dtype}, down));
  if (fp4 && shape().intermediate % 2 != 0) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "tensor w13",
                 .wanted = "an even intermediate size: two codes a byte",
                 .found = describe(*w13)};
  }
  layer_.tensors[LayerPart::kGateUp] = w13->bytes;
  layer_.tensors[LayerPart::kDown] = w2->bytes;
  return {};
}

Status LayerReader::read_block_scales() {
  const formats::Encoding& encoding = wants_.encoding;
  const auto dtypes = scale_dtypes(encoding);
  const std::array<std::uint64_t, 3> up{
      shape().num_experts, halves() * formats::scale_rows(encoding, shape().intermediate),
      formats::scale_columns(encoding, shape().hidden)};
  const std::array<std::uint64_t, 3> down{shape().num_experts,
                                          formats::scale_rows(encoding, shape().hidden),
                                          formats::scale_columns(encoding, shape().intermediate)};
  LODE_TRY(const NamedTensor* const w13, want(inputs_, "w13_scale", dtypes, up));
  LODE_TRY(const NamedTensor* const w2, want(inputs_, "w2_scale", std::array{w13->dtype}, down));
  shape().scale_format = encoding.scale == Format::kE8m0 ? Format::kE8m0 : w13->dtype;
  layer_.tensors[LayerPart::kGateUpScales] = w13->bytes;
  layer_.tensors[LayerPart::kDownScales] = w2->bytes;
  return {};
}

Status LayerReader::read_biases() {
  const std::array dtypes{Format::kBf16, Format::kF16, Format::kF32};
  const std::array<std::uint64_t, 2> up{shape().num_experts, halves() * shape().intermediate};
  const std::array<std::uint64_t, 2> down{shape().num_experts, shape().hidden};
  LODE_TRY(const NamedTensor* const w13, want(inputs_, "w13_bias", dtypes, up));
  LODE_TRY(const NamedTensor* const w2, want(inputs_, "w2_bias", std::array{w13->dtype}, down));
  shape().bias = true;
  shape().bias_format = w13->dtype;
  layer_.tensors[LayerPart::kGateUpBias] = w13->bytes;
  layer_.tensors[LayerPart::kDownBias] = w2->bytes;
  return {};
}

Status LayerReader::read_scalars() {
  const bool fp8_tensor = wants_.encoding == formats::kFp8Tensor;
  if (!fp8_tensor && wants_.encoding.tensor_scale == formats::TensorScale::kNone) return {};
  const std::array<std::uint64_t, 1> each{shape().num_experts};
  LODE_TRY(const NamedTensor* const w13,
           want(inputs_, fp8_tensor ? "w13_scale" : "w13_scale_2", std::array{Format::kF32}, each));
  LODE_TRY(const NamedTensor* const w2,
           want(inputs_, fp8_tensor ? "w2_scale" : "w2_scale_2", std::array{Format::kF32}, each));
  layer_.scalars.gate_scale = floats_of(*w13);
  if (wants_.gated) layer_.scalars.up_scale = layer_.scalars.gate_scale;
  layer_.scalars.down_scale = floats_of(*w2);
  layer_.scalars.one_scale = true;
  return {};
}

Status LayerReader::read_input_scales() {
  const std::array<std::uint64_t, 2> up{shape().num_experts, halves()};
  const std::array<std::uint64_t, 1> down{shape().num_experts};
  LODE_TRY(const NamedTensor* const a13, want(inputs_, "a13_scale", std::array{Format::kF32}, up));
  LODE_TRY(const NamedTensor* const a2, want(inputs_, "a2_scale", std::array{Format::kF32}, down));
  LayerScalars& scalars = layer_.scalars;
  const std::vector<float> both = floats_of(*a13);
  for (std::size_t at = 0; at < both.size(); at += halves()) {
    scalars.gate_input_scale.push_back(both[at]);
    if (wants_.gated) scalars.up_input_scale.push_back(both[at + 1]);
  }
  scalars.down_input_scale = floats_of(*a2);
  scalars.largest_gate_up_input_scale = *std::ranges::max_element(both);
  scalars.largest_down_input_scale = *std::ranges::max_element(scalars.down_input_scale);
  shape().input_scales = true;
  return {};
}

}  // namespace

Result<bool> gated_of(const Request& request) {
  const NamedTensor* const w13 = find(request.inputs, "w13");
  const NamedTensor* const w2 = find(request.inputs, "w2");
  bool gated = true;
  if (w13 != nullptr && w2 != nullptr && w13->shape.size() == 3 && w2->shape.size() == 3) {
    const std::uint64_t codes = w13->dtype == Format::kU8 ? 2 : 1;
    gated = w13->shape[1] != codes * w2->shape[2];
  }
  return Params(request.params).flag("gated", gated);
}

Result<NamedLayer> read_layer(const Request& request, const LayerWants& wants) {
  LODE_TRY(NamedLayer layer, LayerReader(request.inputs, wants).read());
  LODE_TRY_STATUS(
      check_layer_facts(Params(request.params),
                        {layer.shape.num_experts, layer.shape.hidden, layer.shape.intermediate}));
  return layer;
}

Result<std::vector<NamedTensor>> run_layer(const NamedLayer& layer, const LayerForm& form, Way way,
                                           std::span<const OutputName> names) {
  LODE_TRY(const std::unique_ptr<Preparer> preparer, make_layer_preparer(layer.shape, form));
  LODE_TRY(std::vector<NamedTensor> made,
           prepare_layer(*preparer, layer.shape, layer.tensors, layer.scalars, {.way = way}));
  std::vector<NamedTensor> outputs;
  for (NamedTensor& tensor : made) {
    const auto found = std::ranges::find(names, tensor.name, &OutputName::engine);
    if (found == names.end()) continue;
    tensor.name = found->output;
    outputs.push_back(std::move(tensor));
  }
  return outputs;
}

void add_right_names(std::vector<NamedTensor>& outputs) {
  for (const std::string_view name : {"w13", "w13_scale", "w2", "w2_scale"}) {
    if (const NamedTensor* const tensor = find(outputs, name)) {
      NamedTensor right = *tensor;
      right.name = "right_" + std::string(name);
      outputs.push_back(std::move(right));
    }
  }
}

Status take_padded_sizes(const Params& params, LayerForm& form) {
  LODE_TRY(form.hidden, params.count("hidden_out", form.hidden));
  LODE_TRY(form.intermediate, params.count("intermediate_out", form.intermediate));
  return {};
}

}  // namespace lode::targets
