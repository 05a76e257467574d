#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "lode/moe/runner.h"
#include "lode/ops/test_weights.h"

// For tests only: whole MoE layers with random weights in any encoding, their weights as numbers,
// scratch with its memory, and a run of some rows.

namespace lode::moe::test {

struct LayerShape {
  formats::Encoding encoding = formats::kPlainBf16;
  bool bias = false;
  GatedActivation activation;
  std::size_t hidden = 96;
  std::size_t inner = 72;
  families::RouterSpec router{families::Score::kSoftmax, 6, 2, false, true};
  std::size_t shared = 0;                            // width; 0: none
  std::optional<formats::Encoding> shared_encoding;  // else as the experts
  bool shared_gate = false;
};

/// The shape of most tests; with biases the activation is that of gpt-oss.
inline LayerShape plain_shape(const formats::Encoding& encoding, bool bias) {
  LayerShape shape;
  shape.encoding = encoding;
  shape.bias = bias;
  if (bias) shape.activation.kind = families::Activation::kSwigluOai;
  return shape;
}

/// Every row of a test comes from here.
inline constexpr std::size_t kTokens = 70;

/// The numbers of one MLP.
struct MlpNumbers {
  std::vector<float> gate, up, down, gate_bias, up_bias, down_bias;
};

class Layer {
 public:
  explicit Layer(const LayerShape& shape) : shape_(shape) {
    const bool gated = is_gated(shape.activation.kind);
    layer_.record = *layout::make_expert_record(shape.hidden, shape.inner, shape.encoding,
                                                shape.encoding, shape.bias, gated);
    layer_.router = shape.router;
    layer_.activation = shape.activation;
    bytes_ = kernels::Lines(shape.router.num_experts * layer_.record.record_bytes);
    for (std::uint32_t expert = 0; expert < shape.router.num_experts; ++expert) add_expert(expert);
    layer_.experts = {bytes_.data(), shape.router.num_experts * layer_.record.record_bytes};
    router_ = vector(shape.router.num_choices() * shape.hidden, 5, 0.1F);
    layer_.router_weight = router_;
    if (shape.shared != 0) add_shared();
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  const MoeLayer& operator*() const { return layer_; }
  MoeLayer& layer() { return layer_; }
  const LayerShape& shape() const { return shape_; }
  const MlpNumbers& expert(std::size_t index) const { return numbers_[index]; }
  const MlpNumbers& shared() const { return shared_numbers_; }

 private:
  static std::vector<float> vector(std::size_t count, std::uint32_t seed, float size) {
    return ops::TestWeights(formats::kPlainF32, 1, count, seed, size).values();
  }

  /// A second-level scale of up that differs from gate's, as files may have it.
  static ops::TestWeights up_weights(const formats::Encoding& encoding, std::size_t inner,
                                     std::size_t hidden, std::uint32_t seed) {
    ops::TestWeights up(encoding, inner, hidden, seed);
    if (encoding.tensor_scale != formats::TensorScale::kNone) up.matrix_scale() = 0.5F;
    return up;
  }

  void add_expert(std::uint32_t index) {
    const layout::ExpertRecord& shape = layer_.record;
    const ops::TestWeights gate(shape_.encoding, shape_.inner, shape_.hidden, 10 * index + 1);
    const ops::TestWeights up =
        up_weights(shape_.encoding, shape_.inner, shape_.hidden, 10 * index + 2);
    const ops::TestWeights down(shape_.encoding, shape_.hidden, shape_.inner, 10 * index + 3);
    const std::span<std::byte> record(bytes_.data() + index * shape.record_bytes,
                                      shape.record_bytes);
    const auto first = *layout::PanelLayout::make(shape_.encoding, shape_.inner, shape_.hidden,
                                                  shape.gated ? 2 : 1);
    const auto second = *layout::PanelLayout::make(shape_.encoding, shape_.hidden, shape_.inner);
    gate.pack(first, 0, record.first(shape.gate_up_bytes));
    if (shape.gated) up.pack(first, 1, record.first(shape.gate_up_bytes));
    down.pack(second, 0, record.subspan(shape.down_offset_bytes, shape.down_bytes));
    numbers_.push_back({gate.values(), up.values(), down.values(), {}, {}, {}});
    if (shape.bias) add_biases(index, record);
  }

  void add_biases(std::uint32_t index, std::span<std::byte> record) {
    const layout::ExpertRecord& shape = layer_.record;
    MlpNumbers& numbers = numbers_.back();
    const auto put = [&](std::uint64_t offset, const std::vector<float>& values) {
      std::memcpy(record.data() + offset, values.data(), values.size() * sizeof(float));
    };
    numbers.gate_bias = vector(shape_.inner, 100 + index, 0.5F);
    numbers.up_bias = vector(shape_.inner, 200 + index, 0.5F);
    numbers.down_bias = vector(shape_.hidden, 300 + index, 0.5F);
    put(shape.gate_bias_offset_bytes, numbers.gate_bias);
    if (shape.gated) put(shape.up_bias_offset_bytes, numbers.up_bias);
    put(shape.down_bias_offset_bytes, numbers.down_bias);
  }

  void add_shared() {
    const formats::Encoding encoding = shape_.shared_encoding.value_or(shape_.encoding);
    const ops::TestWeights gate(encoding, shape_.shared, shape_.hidden, 901);
    const ops::TestWeights up = up_weights(encoding, shape_.shared, shape_.hidden, 902);
    const ops::TestWeights down(encoding, shape_.hidden, shape_.shared, 903);
    shared_numbers_ = {gate.values(), up.values(), down.values(), {}, {}, {}};
    layer_.shared.activation = shape_.activation;
    if (is_gated(shape_.activation.kind)) {
      shared_first_.emplace(gate, up);
      layer_.shared.mlp.gate_up = ops::gate_up(shared_first_->view());
    } else {
      shared_first_.emplace(gate);
      layer_.shared.mlp.gate_up.gate = ops::matrix(shared_first_->view());
    }
    shared_down_.emplace(down);
    layer_.shared.mlp.down = ops::matrix(shared_down_->view());
    if (!shape_.shared_gate) return;
    shared_gate_ = vector(shape_.hidden, 904, 0.1F);
    layer_.shared.gate = shared_gate_;
  }

  LayerShape shape_;
  MoeLayer layer_;
  std::vector<float> router_, shared_gate_;
  kernels::Lines bytes_{0};
  std::vector<MlpNumbers> numbers_;
  MlpNumbers shared_numbers_;
  std::optional<ops::TestPanels> shared_first_, shared_down_;
};

/// Scratch with its memory, filled with what would show: ids that are none, NaN.
class Scratch {
 public:
  Scratch(const LayerShape& shape, ops::Mode mode, std::size_t chunk_rows = 0)
      : widths_{shape.inner, std::max(shape.inner, shape.shared), shape.shared, shape.hidden,
                chunk_rows} {
    memory::Carver size;
    carve_moe(size, shape.router, widths_, kTokens, mode);
    bytes_ = kernels::Lines(size.bytes());
    std::memset(bytes_.data(), 0xff, size.bytes());
    num_bytes_ = size.bytes();
    memory::Carver carver(std::span(bytes_.data(), size.bytes()));
    scratch_ = carve_moe(carver, shape.router, widths_, kTokens, mode);
  }
  const MoeScratch& operator*() const { return scratch_; }
  const MoeScratch* operator->() const { return &scratch_; }
  std::size_t bytes() const { return num_bytes_; }

 private:
  MoeWidths widths_;
  kernels::Lines bytes_{0};
  std::size_t num_bytes_ = 0;
  MoeScratch scratch_;
};

/// Rows [first, first + count) of the test, on so many threads. `tokens` empty: none is padding.
struct Input {
  std::size_t threads = 1, first = 0, count = kTokens;
  std::vector<std::int32_t> tokens;
};

/// Row `token` of x, and of what the sums begin with.
inline std::vector<float> input_row(std::size_t hidden, std::size_t token, std::uint32_t seed) {
  const ops::TestRows all(kTokens, hidden, ops::Mode::kExact, seed);
  return {all->row(token).begin(), all->row(token).end()};
}
inline constexpr std::uint32_t kInputSeed = 1, kStartSeed = 2;

inline std::vector<float> run(const Layer& layer, ops::Mode mode, const Input& input,
                              const Scratch& scratch) {
  const std::size_t hidden = layer.shape().hidden;
  const ops::TestCompute compute(input.threads, mode);
  const ops::TestRows all(kTokens, hidden, ops::Mode::kExact, kInputSeed);
  const ops::TestRows start(kTokens, hidden, ops::Mode::kExact, kStartSeed);
  const ops::TestRows x(input.count, hidden, mode, 3);
  const ops::TestRows sums(input.count, hidden, ops::Mode::kExact, 3);
  for (std::size_t row = 0; row < input.count; ++row) {
    std::copy_n(all->row(input.first + row).begin(), hidden, x->row(row).begin());
    std::copy_n(start->row(input.first + row).begin(), hidden, sums->row(row).begin());
  }
  ops::pack_rows(*compute, *x, input.count, input_forms(*compute, *layer));
  run_moe(*compute, *layer, {*x, input.count, input.tokens}, *scratch, *sums);
  return sums.numbers();
}

}  // namespace lode::moe::test
