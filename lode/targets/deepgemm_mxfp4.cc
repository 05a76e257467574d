#include <algorithm>
#include <utility>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/formats/dequantise.h"
#include "lode/layout/row_shuffle.h"
#include "lode/targets/deepgemm.h"

namespace lode::targets {
namespace {

// Whole tiles of the kernels; the engine allocates zeros of these sizes before it loads.
constexpr std::uint64_t kTile = 128;

enum TensorIndex : std::size_t { kW13, kW2, kW13Scale, kW2Scale, kW13Bias, kW2Bias };

class DeepgemmMxfp4 final : public Preparer {
 public:
  explicit DeepgemmMxfp4(const ExpertsShape& shape) : shape_(shape), padded_(shape) {
    padded_.hidden = align_up(shape.hidden, kTile);
    padded_.intermediate = align_up(shape.intermediate, kTile);
    layout_ = deepgemm_layout(padded_, formats::kMxfp4);
    add_weights();
    add_scales();
    if (shape.bias) add_biases();
  }

  const std::vector<EngineTensor>& tensors() const noexcept override { return tensors_; }
  SourceWindow window_of(std::size_t tensor_idx, std::uint64_t first_unit,
                         std::uint64_t num_units) const noexcept override {
    if (tensor_idx != kW13 && tensor_idx != kW2) return {};
    const layout::RowOrder& order = tensor_idx == kW13 ? layout_.gate_up : layout_.down;
    return {.rows = layout::rows_within(order, first_unit, first_unit + num_units)};
  }
  void make(const MakeRequest& request, std::span<std::byte> out) const noexcept override;

  formats::Encoding restored_encoding() const noexcept override { return formats::kMxfp4; }
  void restore_codes(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                     std::span<std::byte> out) const noexcept override {
    const bool down = matrix == Matrix::kDown;
    const std::uint64_t step = tensors_[down ? kW2 : kW13].unit_bytes;
    const auto bytes = expert[down ? kW2 : kW13];
    std::ranges::copy(bytes.subspan(position_of(layout_, matrix, row) * step, out.size()),
                      out.begin());
  }
  void restore_scales(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                      std::span<std::byte> out) const noexcept override {
    const bool down = matrix == Matrix::kDown;
    const layout::DeepgemmScales& words = down ? layout_.down_scales : layout_.gate_up_scales;
    const auto bytes = expert[down ? kW2Scale : kW13Scale];
    const std::uint64_t position = position_of(layout_, matrix, row);
    for (std::uint64_t column = 0; column < out.size(); ++column) {
      out[column] = bytes[words.offset(position, column)];
    }
  }
  float restore_scale(Matrix, const PreparedExpert&) const noexcept override { return 1.0F; }
  float restore_bias(Matrix matrix, std::uint64_t row,
                     const PreparedExpert& expert) const noexcept override {
    if (!shape_.bias) return 0.0F;
    return formats::number_at(shape_.bias_format,
                              expert[matrix == Matrix::kDown ? kW2Bias : kW13Bias],
                              position_of(layout_, matrix, row));
  }

 private:
  void add(EngineTensor tensor, std::uint64_t real_bytes) {
    tensor.padding_bytes = tensor.expert_bytes - real_bytes;
    tensors_.push_back(std::move(tensor));
  }
  void add_weights();
  void add_scales();
  void add_biases();

  ExpertsShape shape_;
  ExpertsShape padded_;
  DeepgemmLayout layout_;
  std::vector<EngineTensor> tensors_;
};

void DeepgemmMxfp4::add_weights() {
  const std::uint64_t halves = shape_.num_halves();
  const auto one = [&](std::string_view name, std::uint64_t rows, std::uint64_t k, Needs needs) {
    return EngineTensor{.name = std::string(name),
                        .dtype = formats::Format::kU8,
                        .shape = {shape_.num_experts, rows, k / 2},
                        .expert_bytes = rows * k / 2,
                        .unit_bytes = k / 2,
                        .needs = needs};
  };
  add(one("w13_weight", layout_.gate_up.rows(), padded_.hidden, {.gate_up = true}),
      halves * shape_.intermediate * shape_.hidden / 2);
  add(one("w2_weight", layout_.down.rows(), padded_.intermediate, {.down = true}),
      shape_.hidden * shape_.intermediate / 2);
}

void DeepgemmMxfp4::add_scales() {
  const auto one = [&](std::string_view name, const layout::DeepgemmScales& words, Needs needs) {
    return EngineTensor{.name = std::string(name),
                        .dtype = formats::Format::kI32,
                        .shape = {shape_.num_experts, words.word_rows(), words.aligned_rows()},
                        .expert_bytes = words.bytes(),
                        .unit_bytes = words.word_row_bytes(),
                        .needs = needs};
  };
  const std::uint64_t blocks = shape_.hidden * shape_.intermediate / 32;
  add(one("w13_weight_scale", layout_.gate_up_scales, {.gate_up_scales = true}),
      shape_.num_halves() * blocks);
  add(one("w2_weight_scale", layout_.down_scales, {.down_scales = true}), blocks);
}

void DeepgemmMxfp4::add_biases() {
  const std::uint64_t bytes = formats::info(shape_.bias_format).bits / 8;
  const auto one = [&](std::string_view name, std::uint64_t rows, Needs needs) {
    return EngineTensor{.name = std::string(name),
                        .dtype = shape_.bias_format,
                        .shape = {shape_.num_experts, rows},
                        .expert_bytes = rows * bytes,
                        .unit_bytes = rows * bytes,
                        .needs = needs};
  };
  add(one("w13_bias", layout_.gate_up.rows(), {.gate_up_bias = true}),
      shape_.num_halves() * shape_.intermediate * bytes);
  add(one("w2_bias", layout_.down.rows(), {.down_bias = true}), shape_.hidden * bytes);
}

void DeepgemmMxfp4::make(const MakeRequest& request, std::span<std::byte> out) const noexcept {
  const ExpertSource& source = request.source;
  const std::uint64_t first_unit = request.first_unit;
  const std::uint64_t unit_bytes = tensors_[request.tensor_idx].unit_bytes;
  const std::uint64_t bias_bytes = formats::info(shape_.bias_format).bits / 8;
  switch (request.tensor_idx) {
    case kW13:
      return layout::ordered_rows_into({source.gate_up, layout_.gate_up, unit_bytes}, first_unit,
                                       out);
    case kW2:
      return layout::ordered_rows_into({source.down, layout_.down, unit_bytes}, first_unit, out);
    case kW13Scale:
      return layout::deepgemm_scales_into(layout_.gate_up_scales, layout_.gate_up,
                                          source.gate_up_scales, first_unit, out);
    case kW2Scale:
      return layout::deepgemm_scales_into(layout_.down_scales, layout_.down, source.down_scales,
                                          first_unit, out);
    case kW13Bias:
      return layout::ordered_rows_into({source.gate_up_bias, layout_.gate_up, bias_bytes}, 0, out);
    default:
      return layout::ordered_rows_into({source.down_bias, layout_.down, bias_bytes}, 0, out);
  }
}

}  // namespace

Result<std::unique_ptr<Preparer>> make_deepgemm_mxfp4(const ExpertsShape& shape, const Options&) {
  LODE_TRY_STATUS(check_deepgemm_sizes(shape, formats::kMxfp4.block_k));
  return std::unique_ptr<Preparer>(std::make_unique<DeepgemmMxfp4>(shape));
}

}  // namespace lode::targets
