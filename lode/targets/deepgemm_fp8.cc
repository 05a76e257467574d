#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "lode/formats/dequantise.h"
#include "lode/formats/e4m3.h"
#include "lode/formats/e8m0.h"
#include "lode/formats/ue8m0_requantise.h"
#include "lode/kernels/kernel_table.h"
#include "lode/layout/row_shuffle.h"
#include "lode/targets/deepgemm.h"

namespace lode::targets {
namespace {

constexpr std::uint64_t kBlock = 128;
constexpr std::uint64_t kWord = layout::DeepgemmScales::kWordBytes;

enum TensorIndex : std::size_t { kW13, kW2, kW13Scale, kW2Scale };

/// w13 or w2 of one expert.
struct Part {
  const layout::MatrixRows& codes;
  const layout::MatrixRows& scales;
  const layout::RowOrder& order;
  const layout::DeepgemmScales& words;
};

class DeepgemmFp8 final : public Preparer {
 public:
  explicit DeepgemmFp8(const ExpertsShape& shape)
      : shape_(shape), layout_(deepgemm_layout(shape, formats::kFp8Block128)) {
    add_weight("w13_weight", layout_.gate_up.rows(), shape.hidden, true);
    add_weight("w2_weight", layout_.down.rows(), shape.intermediate, false);
    add_scales("w13_weight_scale_inv", layout_.gate_up_scales, true);
    add_scales("w2_weight_scale_inv", layout_.down_scales, false);
  }

  const std::vector<EngineTensor>& tensors() const noexcept override { return tensors_; }
  SourceWindow window_of(std::size_t tensor_idx, std::uint64_t first_unit,
                         std::uint64_t num_units) const noexcept override;
  void make(const MakeRequest& request, std::span<std::byte> out) const noexcept override;

  std::uint64_t kept_numbers() const noexcept override {
    return is_requantised() ? num_blocks(layout_.gate_up_scales) + num_blocks(layout_.down_scales)
                            : 0;
  }
  std::optional<std::size_t> kept_from(std::size_t tensor_idx) const noexcept override {
    if (!is_requantised() || !is_scales(tensor_idx)) return std::nullopt;
    return tensor_idx == kW13Scale ? kW13 : kW2;
  }

  bool may_lose(std::size_t tensor_idx) const noexcept override {
    return is_requantised() && !is_scales(tensor_idx);
  }
  void count_losses(const LossRequest& request, LossCounts& losses) const override;

  formats::Encoding restored_encoding() const noexcept override { return formats::kFp8Block128; }
  void restore_codes(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                     std::span<std::byte> out) const noexcept override;
  void restore_scales(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                      std::span<std::byte> out) const noexcept override;
  float restore_scale(Matrix, const PreparedExpert&) const noexcept override { return 1.0F; }
  float restore_bias(Matrix, std::uint64_t, const PreparedExpert&) const noexcept override {
    return 0.0F;  // experts with biases are refused
  }

 private:
  void add_weight(std::string_view name, std::uint64_t rows, std::uint64_t k, bool gate_up);
  void add_scales(std::string_view name, const layout::DeepgemmScales& words, bool gate_up);
  static bool is_scales(std::size_t tensor_idx) noexcept {
    return tensor_idx == kW13Scale || tensor_idx == kW2Scale;
  }
  // Of w13, before those of w2.
  static std::uint64_t num_blocks(const layout::DeepgemmScales& words) noexcept {
    return words.rows / kBlock * words.columns;
  }
  std::span<float> kept_of(std::size_t tensor_idx, std::span<float> kept) const noexcept {
    const bool down = tensor_idx == kW2 || tensor_idx == kW2Scale;
    return down ? kept.subspan(num_blocks(layout_.gate_up_scales))
                : kept.first(num_blocks(layout_.gate_up_scales));
  }
  bool is_requantised() const noexcept {
    return shape_.scale_format != formats::Format::kE8m0 && !shape_.scales_are_exponents;
  }

  Part part_of(std::size_t tensor_idx, const ExpertSource& source) const noexcept;
  formats::Fp8Strip strip_of(const Part& part, std::uint64_t strip_idx) const noexcept;
  void make_weights(const Part& part, std::uint64_t first_strip, std::span<float> kept,
                    std::span<std::byte> out) const noexcept;
  void make_scales(const Part& part, std::uint64_t first_word_row, std::span<const float> kept,
                   std::span<std::byte> out) const noexcept;

  ExpertsShape shape_;
  DeepgemmLayout layout_;
  std::vector<EngineTensor> tensors_;
};

void DeepgemmFp8::add_weight(std::string_view name, std::uint64_t rows, std::uint64_t k,
                             bool gate_up) {
  const bool scales = is_requantised();
  tensors_.push_back({.name = std::string(name),
                      .dtype = formats::Format::kE4m3,
                      .shape = {shape_.num_experts, rows, k},
                      .expert_bytes = rows * k,
                      .unit_bytes = kBlock * k,
                      .needs = {.gate_up = gate_up,
                                .down = !gate_up,
                                .gate_up_scales = gate_up && scales,
                                .down_scales = !gate_up && scales}});
}

/// The scale of a block follows from the largest of its codes as they were: where the weights are
/// made it is known, and kept.
void DeepgemmFp8::add_scales(std::string_view name, const layout::DeepgemmScales& words,
                             bool gate_up) {
  const bool is_read = !is_requantised();
  tensors_.push_back(
      {.name = std::string(name),
       .dtype = formats::Format::kI32,
       .shape = {shape_.num_experts, words.word_rows(), words.aligned_rows()},
       .expert_bytes = words.bytes(),
       .unit_bytes = words.word_row_bytes(),
       .padding_bytes = words.padding_bytes(),
       .needs = {.gate_up_scales = gate_up && is_read, .down_scales = !gate_up && is_read}});
}

Part DeepgemmFp8::part_of(std::size_t tensor_idx, const ExpertSource& source) const noexcept {
  if (tensor_idx == kW13 || tensor_idx == kW13Scale) {
    return {source.gate_up, source.gate_up_scales, layout_.gate_up, layout_.gate_up_scales};
  }
  return {source.down, source.down_scales, layout_.down, layout_.down_scales};
}

SourceWindow DeepgemmFp8::window_of(std::size_t tensor_idx, std::uint64_t first_unit,
                                    std::uint64_t num_units) const noexcept {
  if (is_scales(tensor_idx)) return {};
  const std::uint64_t end = first_unit + num_units;
  const layout::RowOrder& order = tensor_idx == kW13 ? layout_.gate_up : layout_.down;
  return {.rows = layout::rows_within(order, first_unit * kBlock, end * kBlock)};
}

void DeepgemmFp8::make(const MakeRequest& request, std::span<std::byte> out) const noexcept {
  const Part part = part_of(request.tensor_idx, request.source);
  const std::uint64_t first_unit = request.first_unit;
  const bool weights = !is_scales(request.tensor_idx);
  if (weights && !is_requantised()) {
    return layout::ordered_rows_into({part.codes, part.order, part.codes.row_bytes},
                                     first_unit * kBlock, out);
  }
  const std::span<float> kept =
      is_requantised() ? kept_of(request.tensor_idx, request.kept) : std::span<float>{};
  weights ? make_weights(part, first_unit, kept, out) : make_scales(part, first_unit, kept, out);
}

/// Halves are multiples of a block: no strip has rows of both. Without codes where only scales are
/// asked for.
formats::Fp8Strip DeepgemmFp8::strip_of(const Part& part, std::uint64_t strip_idx) const noexcept {
  const layout::HalfRow at = part.order.at(strip_idx * kBlock);
  return {.first = part.codes.row(at).data(),
          .step_bytes = part.codes.halves[at.half].step_bytes,
          .rows = kBlock,
          .k = part.words.columns * kBlock,
          .block_k = kBlock,
          .scales = part.scales.row({at.half, at.row / kBlock}),
          .scale_format = shape_.scale_format};
}

void DeepgemmFp8::make_weights(const Part& part, std::uint64_t first_strip, std::span<float> kept,
                               std::span<std::byte> out) const noexcept {
  const kernels::KernelTable& isa = kernels::active_or_plainest();
  const std::uint64_t strip_bytes = kBlock * part.codes.row_bytes;
  const std::uint64_t columns = part.words.columns;
  for (std::uint64_t i = 0; i < out.size() / strip_bytes; ++i) {
    requantise_strip(strip_of(part, first_strip + i), out.subspan(i * strip_bytes, strip_bytes),
                     part.codes.row_bytes, kept.subspan((first_strip + i) * columns, columns),
                     isa.map_codes);
  }
}

/// The exponents of four blocks of a strip. Scales that were exponents already are read as they
/// are, whatever format they have come to lie in; of others those that were kept are.
void DeepgemmFp8::make_scales(const Part& part, std::uint64_t first_word_row,
                              std::span<const float> kept,
                              std::span<std::byte> out) const noexcept {
  const std::uint64_t columns = part.words.columns;
  const auto word_of = [&](std::uint64_t strip_idx, std::uint64_t word_row) {
    std::array<std::byte, kWord> word{};
    for (std::uint64_t i = 0; i < kWord; ++i) {
      const std::uint64_t column = word_row * kWord + i;
      if (column >= columns) break;
      const float scale =
          kept.empty()
              ? formats::number_at(shape_.scale_format, strip_of(part, strip_idx).scales, column)
              : kept[strip_idx * columns + column];
      word[i] = std::byte{formats::exponent_byte(scale)};
    }
    return word;
  };
  for (std::uint64_t unit = 0; unit < out.size() / part.words.word_row_bytes(); ++unit) {
    std::byte* words = out.data() + unit * part.words.word_row_bytes();
    for (std::uint64_t strip_idx = 0; strip_idx < part.words.rows / kBlock; ++strip_idx) {
      const auto word = word_of(strip_idx, first_word_row + unit);
      for (std::uint64_t row = 0; row < kBlock; ++row, words += kWord) {
        std::memcpy(words, word.data(), kWord);
      }
    }
  }
}

/// What becomes of a block whose largest magnitude is `amax`; nothing where its numbers are only
/// rounded to another scale.
std::optional<Loss> fate_of_block(float amax) noexcept {
  if (!std::isfinite(amax)) return Loss::kNanBlocks;
  if (amax == 0.0F || amax >= formats::kUe8m0LeastAmax) return std::nullopt;
  const float scale = formats::ue8m0_scale_of(amax);
  const bool is_zero = formats::decode_e4m3(formats::encode_e4m3(amax / scale)) == 0.0F;
  return is_zero ? Loss::kFlushedScales : Loss::kRaisedScales;
}

void DeepgemmFp8::count_losses(const LossRequest& request, LossCounts& losses) const {
  if (!may_lose(request.tensor_idx)) return;
  const Part part = part_of(request.tensor_idx, request.source);
  std::vector<LossCounts> of_strips(part.words.rows / kBlock);
  const auto count_strip = [&](std::size_t strip_idx, std::size_t) {
    const layout::HalfRow at = part.order.at(strip_idx * kBlock);
    const Range here = part.codes.rows_here(at.half);
    if (at.row < here.begin || at.row >= here.end) return;
    const formats::Fp8Strip strip = strip_of(part, strip_idx);
    for (std::uint64_t column = 0; column < strip.columns(); ++column) {
      const auto lost = fate_of_block(formats::block_amax(strip, column));
      if (lost) of_strips[strip_idx].add(*lost, 1);
    }
  };
  if (request.pool != nullptr) {
    request.pool->run(of_strips.size(), count_strip);
  } else {
    for (std::size_t strip_idx = 0; strip_idx < of_strips.size(); ++strip_idx) {
      count_strip(strip_idx, 0);
    }
  }
  for (const LossCounts& counts : of_strips) losses += counts;
}

void DeepgemmFp8::restore_codes(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                                std::span<std::byte> out) const noexcept {
  const bool down = matrix == Matrix::kDown;
  const std::uint64_t row_bytes = down ? shape_.intermediate : shape_.hidden;
  const auto bytes = expert[down ? kW2 : kW13];
  std::ranges::copy(bytes.subspan(position_of(layout_, matrix, row) * row_bytes, out.size()),
                    out.begin());
}

void DeepgemmFp8::restore_scales(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                                 std::span<std::byte> out) const noexcept {
  const bool down = matrix == Matrix::kDown;
  const layout::DeepgemmScales& words = down ? layout_.down_scales : layout_.gate_up_scales;
  const auto bytes = expert[down ? kW2Scale : kW13Scale];
  const std::uint64_t position = position_of(layout_, matrix, row * kBlock);
  for (std::uint64_t column = 0; column < out.size() / sizeof(float); ++column) {
    const std::byte exponent = bytes[words.offset(position, column)];
    const float scale = formats::decode_e8m0(std::to_integer<std::uint8_t>(exponent));
    std::memcpy(out.data() + column * sizeof scale, &scale, sizeof scale);
  }
}

}  // namespace

Result<std::unique_ptr<Preparer>> make_deepgemm_fp8(const ExpertsShape& shape, const Options&) {
  LODE_TRY_STATUS(check_deepgemm_sizes(shape, kBlock));
  if (shape.rows_in_turn && shape.gated) {
    return Error{.code = Code::kUnsupported,
                 .thing = "rows of gate and up in FP8 blocks",
                 .wanted = "all of gate, then all of up",
                 .found = "gate and up in turn",
                 .where = "target deepgemm"};
  }
  if (shape.bias) {
    return Error{.code = Code::kUnsupported,
                 .thing = "experts in FP8 blocks",
                 .wanted = "none with biases: the engine has no tensors for them",
                 .found = "biases",
                 .where = "target deepgemm"};
  }
  return std::unique_ptr<Preparer>(std::make_unique<DeepgemmFp8>(shape));
}

}  // namespace lode::targets
