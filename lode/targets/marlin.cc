#include "lode/targets/marlin.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/layout/nvfp4_reconcile.h"
#include "lode/targets/marlin_losses.h"

namespace lode::targets {
namespace {

using formats::Format;

constexpr std::array<Format, 2> kActivations{Format::kBf16, Format::kF16};

// A tensor of one of the two fused matrices.
enum class What : std::uint8_t { kWeights, kScales, kMatrixScale, kBias };
struct Made {
  bool down = false;
  What what = What::kWeights;

  friend bool operator==(const Made&, const Made&) = default;
};

class MarlinPreparer final : public Preparer {
 public:
  MarlinPreparer(const ExpertsShape& shape, const MarlinMatrix& gate_up, const MarlinMatrix& down)
      : shape_(shape), matrices_{gate_up, down} {
    for (const bool is_down : {false, true}) add({is_down, What::kWeights});
    for (const bool is_down : {false, true}) add({is_down, What::kScales});
    const bool nvfp4 = matrices_[0].rule() == MarlinScaleRule::kNvfp4;
    for (const bool is_down : {false, true}) {
      if (nvfp4) add({is_down, What::kMatrixScale});
    }
    for (const bool is_down : {false, true}) {
      if (shape_.bias) add({is_down, What::kBias});
    }
  }

  const std::vector<EngineTensor>& tensors() const noexcept override { return tensors_; }
  bool wants_largest_block_scales() const noexcept override {
    return matrices_[0].rule() == MarlinScaleRule::kNvfp4 &&
           matrices_[0].kernel().activations == Format::kBf16;
  }
  SourceWindow window_of(std::size_t tensor_idx, std::uint64_t first_unit,
                         std::uint64_t num_units) const noexcept override {
    const Made& made = made_[tensor_idx];
    if (made.what != What::kWeights) return {};
    const std::uint64_t tile_k = of(made.down).weights().shape().tile_k();
    return {.k = {first_unit * tile_k, (first_unit + num_units) * tile_k}};
  }
  void make(const MakeRequest& request, std::span<std::byte> out) const noexcept override;

  bool may_lose(std::size_t tensor_idx) const noexcept override {
    return made_[tensor_idx].what == What::kScales;
  }
  void count_losses(const LossRequest& request, LossCounts& losses) const override;

  formats::Encoding restored_encoding() const noexcept override {
    return matrices_[0].restored_encoding();
  }
  void restore_codes(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                     std::span<std::byte> out) const noexcept override;
  void restore_scales(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                      std::span<std::byte> out) const noexcept override;
  float restore_scale(Matrix matrix, const PreparedExpert& expert) const noexcept override;
  float restore_bias(Matrix matrix, std::uint64_t row,
                     const PreparedExpert& expert) const noexcept override;

 private:
  void add(const Made& made);
  std::string name_of(const Made& made) const;
  const MarlinMatrix& of(bool down) const noexcept { return matrices_[down ? 1 : 0]; }
  // The bytes of a tensor of an expert; none where there is no such tensor.
  std::span<const std::byte> part(const PreparedExpert& expert, const Made& made) const noexcept;
  layout::CommonScale common_scale(const LayerScalars& scalars,
                                   std::uint64_t expert_idx) const noexcept;
  float factor(bool down, const LayerScalars& scalars) const noexcept;
  // Scales of matrices that FP8 words are made of.
  static std::array<float, 2> word_scales(bool down, std::uint64_t expert_idx,
                                          const LayerScalars& scalars) noexcept;
  void make_scales(bool down, const MakeRequest& request, std::span<std::byte> out) const noexcept;
  void make_matrix_scale(bool down, std::uint64_t expert_idx, const LayerScalars& scalars,
                         std::span<std::byte> out) const noexcept;

  ExpertsShape shape_;
  std::array<MarlinMatrix, 2> matrices_;
  std::vector<EngineTensor> tensors_;
  std::vector<Made> made_;  // of each tensor
};

bool is_down(Matrix matrix) noexcept { return matrix == Matrix::kDown; }
layout::HalfRow half_row(Matrix matrix, std::uint64_t row) noexcept {
  return {matrix == Matrix::kUp ? 1U : 0U, row};
}
float number_of(const std::vector<float>& numbers, std::uint64_t idx) noexcept {
  return idx < numbers.size() ? numbers[idx] : 1.0F;
}

// As the engines name them; scales of FP8 blocks keep the name that they have in checkpoints.
std::string MarlinPreparer::name_of(const Made& made) const {
  const std::string_view matrix = made.down ? "w2" : "w13";
  const bool blocks =
      of(made.down).rule() == MarlinScaleRule::kFp8 && shape_.encoding.block_k != formats::kWhole;
  switch (made.what) {
    case What::kWeights:
      return fmt::format("{}_weight", matrix);
    case What::kScales:
      return fmt::format("{}_weight_scale{}", matrix, blocks ? "_inv" : "");
    case What::kMatrixScale:
      return fmt::format("{}_weight_scale_2", matrix);
    case What::kBias:
      return fmt::format("{}_bias", matrix);
  }
  return {};
}

void MarlinPreparer::add(const Made& made) {
  const MarlinMatrix& matrix = of(made.down);
  const layout::MarlinLayout& weights = matrix.weights();
  const std::uint64_t experts = shape_.num_experts, rows = matrix.rows().rows();
  EngineTensor tensor;
  tensor.name = name_of(made);
  switch (made.what) {
    case What::kWeights:
      tensor.dtype = Format::kI32;
      tensor.shape = {experts, weights.k() / 16, weights.total_bytes() / (weights.k() / 16) / 4};
      tensor.unit_bytes = weights.unit_bytes();
      tensor.expert_bytes = weights.total_bytes();
      tensor.padding_bytes = matrix.weight_padding_bytes();
      (made.down ? tensor.needs.down : tensor.needs.gate_up) = true;
      break;
    case What::kScales:
      tensor.dtype = matrix.scale_dtype();
      tensor.shape = {experts, matrix.groups(), rows};
      tensor.unit_bytes = matrix.scale_unit_bytes();
      tensor.expert_bytes = matrix.groups() * tensor.unit_bytes;
      tensor.padding_bytes = matrix.scale_padding_bytes();
      (made.down ? tensor.needs.down_scales : tensor.needs.gate_up_scales) =
          !matrix.scale_of_matrix();
      break;
    case What::kMatrixScale:
      tensor.dtype = Format::kF32;
      tensor.shape = {experts};
      tensor.unit_bytes = tensor.expert_bytes = sizeof(float);
      break;
    case What::kBias:
      tensor.dtype = matrix.kernel().activations;
      tensor.shape = {experts, rows};
      tensor.unit_bytes = tensor.expert_bytes = 2 * rows;
      tensor.padding_bytes = matrix.bias_padding_bytes();
      (made.down ? tensor.needs.down_bias : tensor.needs.gate_up_bias) = true;
      break;
  }
  tensors_.push_back(std::move(tensor));
  made_.push_back(made);
}

layout::CommonScale MarlinPreparer::common_scale(const LayerScalars& scalars,
                                                 std::uint64_t expert_idx) const noexcept {
  const float gate = number_of(scalars.gate_scale, expert_idx);
  return layout::common_scale(gate, shape_.gated ? number_of(scalars.up_scale, expert_idx) : gate);
}

float MarlinPreparer::factor(bool down, const LayerScalars& scalars) const noexcept {
  return layout::nvfp4_marlin_factor(
      down ? scalars.largest_down_block_scale : scalars.largest_gate_up_block_scale,
      of(down).kernel().activations);
}

void MarlinPreparer::make_matrix_scale(bool down, std::uint64_t expert_idx,
                                       const LayerScalars& scalars,
                                       std::span<std::byte> out) const noexcept {
  const float scale =
      down ? number_of(scalars.down_scale, expert_idx) : common_scale(scalars, expert_idx).scale;
  const float global =
      layout::nvfp4_marlin_global(scale, factor(down, scalars), of(down).kernel().activations);
  std::memcpy(out.data(), &global, std::min(sizeof(global), out.size()));
}

std::array<float, 2> MarlinPreparer::word_scales(bool down, std::uint64_t expert_idx,
                                                 const LayerScalars& scalars) noexcept {
  return {number_of(down ? scalars.down_scale : scalars.gate_scale, expert_idx),
          number_of(scalars.up_scale, expert_idx)};
}

void MarlinPreparer::make_scales(bool down, const MakeRequest& request,
                                 std::span<std::byte> out) const noexcept {
  const MarlinMatrix& matrix = of(down);
  const auto& [tensor_idx, expert_idx, first_unit, source, scalars, kept] = request;
  const Format activations = matrix.kernel().activations;
  const layout::MatrixRows& rows = down ? source.down_scales : source.gate_up_scales;
  if (matrix.rule() == MarlinScaleRule::kFp8) {
    return matrix.make_scale_words(rows, word_scales(down, expert_idx, scalars), first_unit, out);
  }
  MarlinMatrix::Tables tables{};
  if (matrix.rule() == MarlinScaleRule::kMx) {
    tables[0] = layout::mx_marlin_bytes(activations, matrix.kernel().narrow_activations);
    tables[1] = tables[0];
    return matrix.make_scale_bytes(rows, tables, first_unit, out);
  }
  const layout::ByteTable table = layout::nvfp4_marlin_bytes(factor(down, scalars), activations);
  const layout::CommonScale common =
      down ? layout::CommonScale{} : common_scale(scalars, expert_idx);
  for (std::uint32_t half = 0; half < matrix.rows().num_halves; ++half) {
    for (std::uint32_t code = 0; code < table.size(); ++code) {
      const auto stored = static_cast<std::uint8_t>(code);
      tables[half][code] = table[layout::rescaled_e4m3(stored, common.ratio(half))];
    }
  }
  matrix.make_scale_bytes(rows, tables, first_unit, out);
}

void MarlinPreparer::count_losses(const LossRequest& request, LossCounts& losses) const {
  const Made& made = made_[request.tensor_idx];
  if (made.what != What::kScales) return;
  const MarlinMatrix& matrix = of(made.down);
  const ExpertSource& source = request.source;
  const layout::MatrixRows& rows = made.down ? source.down_scales : source.gate_up_scales;
  if (matrix.rule() == MarlinScaleRule::kFp8) {
    return matrix.count_word_losses(
        rows, word_scales(made.down, request.expert_idx, request.scalars), losses);
  }
  const layout::CodeCounts codes = scale_codes_of(request, rows);
  const bool nvfp4 = matrix.rule() == MarlinScaleRule::kNvfp4;
  const layout::CommonScale common = made.down || !nvfp4
                                         ? layout::CommonScale{}
                                         : common_scale(request.scalars, request.expert_idx);
  for (std::uint32_t half = 0; half < matrix.rows().num_halves; ++half) {
    const Fates fates = nvfp4 ? fates_of_marlin_nvfp4(factor(made.down, request.scalars),
                                                      common.ratio(half), matrix.kernel())
                              : fates_of_marlin_mx(matrix.kernel());
    count_fates(fates, codes.of[half], losses);
  }
}

void MarlinPreparer::make(const MakeRequest& request, std::span<std::byte> out) const noexcept {
  const Made& made = made_[request.tensor_idx];
  const MarlinMatrix& matrix = of(made.down);
  const ExpertSource& source = request.source;
  switch (made.what) {
    case What::kWeights:
      return matrix.make_weights(made.down ? source.down : source.gate_up, request.first_unit, out);
    case What::kScales:
      return make_scales(made.down, request, out);
    case What::kMatrixScale:
      return make_matrix_scale(made.down, request.expert_idx, request.scalars, out);
    case What::kBias:
      return matrix.make_bias(made.down ? source.down_bias : source.gate_up_bias,
                              shape_.bias_format, out);
  }
}

std::span<const std::byte> MarlinPreparer::part(const PreparedExpert& expert,
                                                const Made& made) const noexcept {
  const auto found = std::ranges::find(made_, made);
  if (found == made_.end()) return {};
  return expert[static_cast<std::size_t>(found - made_.begin())];
}

void MarlinPreparer::restore_codes(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                                   std::span<std::byte> out) const noexcept {
  const bool down = is_down(matrix);
  layout::marlin_to_row(of(down).weights(), of(down).rows().position_of(half_row(matrix, row)),
                        part(expert, {down, What::kWeights}), out);
}

void MarlinPreparer::restore_scales(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                                    std::span<std::byte> out) const noexcept {
  const bool down = is_down(matrix);
  of(down).restore_scales(half_row(matrix, row), part(expert, {down, What::kScales}), out);
}

float MarlinPreparer::restore_scale(Matrix matrix, const PreparedExpert& expert) const noexcept {
  const bool down = is_down(matrix);
  const auto bytes = part(expert, {down, What::kMatrixScale});
  if (bytes.empty()) return 1.0F;
  float global = 0.0F;
  std::memcpy(&global, bytes.data(), sizeof(global));
  return layout::nvfp4_scale_of_global(global, of(down).kernel().activations);
}

float MarlinPreparer::restore_bias(Matrix matrix, std::uint64_t row,
                                   const PreparedExpert& expert) const noexcept {
  const bool down = is_down(matrix);
  const auto bytes = part(expert, {down, What::kBias});
  return bytes.empty() ? 0.0F : of(down).restore_bias(half_row(matrix, row), bytes);
}

}  // namespace

Result<std::unique_ptr<Preparer>> make_marlin_preparer(const MarlinExperts& experts) {
  const ExpertsShape& shape = experts.shape;
  if (std::ranges::find(kActivations, shape.model_format) == kActivations.end()) {
    return Error{.code = Code::kUnsupported,
                 .thing = "activations for Marlin kernels",
                 .wanted = "bf16 or f16",
                 .found = std::string(formats::info(shape.model_format).name)};
  }
  const MarlinKernel kernel{experts.narrow_activations, shape.model_format};
  auto gate_up =
      MarlinMatrix::make({shape.num_halves(), shape.gated && shape.rows_in_turn, shape.intermediate,
                          experts.padded_intermediate, shape.hidden, experts.padded_hidden},
                         shape.encoding, shape.scale_format, kernel);
  if (!gate_up) return at("gate and up (w13)", std::move(gate_up).error());
  auto down = MarlinMatrix::make({1, false, shape.hidden, experts.padded_hidden, shape.intermediate,
                                  experts.padded_intermediate},
                                 shape.encoding, shape.scale_format, kernel);
  if (!down) return at("down (w2)", std::move(down).error());
  return std::unique_ptr<Preparer>(std::make_unique<MarlinPreparer>(shape, *gate_up, *down));
}

}  // namespace lode::targets
