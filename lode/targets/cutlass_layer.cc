#include "lode/targets/cutlass_layer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/layout/block_major.h"
#include "lode/targets/cutlass_losses.h"
#include "lode/targets/cutlass_scalars.h"

namespace lode::targets {
namespace {

using formats::Format;

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 48;

/// A matrix of two: gate and up together, or down.
struct Side {
  bool down = false;
  std::uint64_t rows = 0;         // of a half, as stored
  std::uint64_t padded_rows = 0;  // of a half
  std::uint64_t k = 0;
  std::uint64_t padded_k = 0;
};

std::string named(const Side& side, std::string_view rest) {
  return std::string(side.down ? "w2_" : "w13_") + std::string(rest);
}

bool blocks_of_rows(const formats::Encoding& encoding) noexcept {
  return encoding.has_scale && encoding.block_rows != formats::kWhole;
}

class LayerBuilder {
 public:
  LayerBuilder(const ExpertsShape& shape, const LayerForm& form) : shape_(shape), form_(form) {}

  std::vector<Part> build() {
    for (const Side& side : sides()) add(codes_part(side));
    if (blocks_of_rows(shape_.encoding)) {
      for (const Side& side : sides()) add(scales_part(side));
    }
    if (shape_.bias) {
      for (const Side& side : sides()) add(bias_part(side));
    }
    for (Part& scalar : scalar_parts(shape_, form_)) add(std::move(scalar));
    return std::move(parts_);
  }

  std::array<Side, 2> sides() const noexcept {
    return {{{false, shape_.intermediate, form_.intermediate, shape_.hidden, form_.hidden},
             {true, shape_.hidden, form_.hidden, shape_.intermediate, form_.intermediate}}};
  }

 private:
  std::uint32_t halves(const Side& side) const noexcept {
    return side.down ? 1 : shape_.num_halves();
  }
  layout::RowOrder order(const Side& side) const noexcept {
    return {halves(side), side.padded_rows, form_.order, form_.shuffle};
  }
  /// Fills in what follows from the rest, and the share of padding.
  void add(Part part) {
    part.tensor.expert_bytes = part_bytes(part);
    part.tensor.unit_bytes = part_unit_bytes(part);
    part.tensor.padding_bytes = part.tensor.expert_bytes - part.tensor.padding_bytes;
    parts_.push_back(std::move(part));
  }
  Part codes_part(const Side& side) const;
  tensor::Shape codes_shape(const Side& side, const Part& part) const;
  Part scales_part(const Side& side) const;
  tensor::Shape scales_shape(const Part& part) const;
  Part bias_part(const Side& side) const;

  const ExpertsShape& shape_;
  const LayerForm& form_;
  std::vector<Part> parts_;
};

// While a part is built, padding_bytes holds the bytes that are none.
Part LayerBuilder::codes_part(const Side& side) const {
  const Format element = shape_.encoding.element;
  Part part;
  part.rows = side.down ? &ExpertSource::down : &ExpertSource::gate_up;
  part.order = order(side);
  part.row_bytes = formats::row_bytes(shape_.encoding, side.padded_k);
  part.tile = form_.codes;
  part.sm90 = form_.sm90;
  part.numbers = side.down ? PartNumbers::kKept : form_.code_numbers;
  part.tensor.name = named(side, "weight");
  part.tensor.dtype = element == Format::kE2m1 ? Format::kU8 : element;
  part.tensor.shape = codes_shape(side, part);
  part.tensor.padding_bytes =
      halves(side) * side.rows * formats::row_bytes(shape_.encoding, side.k);
  part.tensor.needs.gate_up = !side.down;
  part.tensor.needs.down = side.down;
  return part;
}

tensor::Shape LayerBuilder::codes_shape(const Side& side, const Part& part) const {
  const bool fp4 = shape_.encoding.element == Format::kE2m1;
  const std::uint64_t columns = fp4 ? side.padded_k / 2 : side.padded_k;
  const std::uint64_t rows = part.order.rows();
  if (part.tile != PartTile::kBlockMajor || form_.flat_blocks) {
    return {shape_.num_experts, rows, columns};
  }
  const std::uint64_t blocks = part.row_bytes / layout::kBlockMajorBytes;
  return {shape_.num_experts, blocks, rows, columns / blocks};
}

Part LayerBuilder::scales_part(const Side& side) const {
  const formats::Encoding& encoding = shape_.encoding;
  const std::uint64_t columns = formats::scale_columns(encoding, side.padded_k);
  Part part;
  part.rows = side.down ? &ExpertSource::down_scales : &ExpertSource::gate_up_scales;
  part.order = {halves(side), formats::scale_rows(encoding, side.padded_rows), form_.order,
                encoding.block_rows == 1 ? form_.shuffle : layout::RowShuffle::kNone};
  part.tile = form_.scales;
  part.scale_tile = form_.scale_tile;
  if (form_.codes == PartTile::kSm90Codes) {
    part.scale_tile = layout::sm90_scale_tile(form_.sm90, part.order.rows());
  }
  const bool bytes = encoding.scale == Format::kE4m3 || encoding.scale == Format::kE8m0;
  part.row_bytes = part.tile == PartTile::kScaleTiles ? align_up(columns, layout::kScaleTileColumns)
                   : bytes                            ? columns
                                                      : columns * sizeof(float);
  part.padding = form_.scale_padding;
  part.numbers = form_.scale_numbers;
  if (part.numbers == PartNumbers::kOneNvfp4Scale && side.down) part.numbers = PartNumbers::kKept;
  part.stored = shape_.scale_format;
  part.tensor.name = named(side, encoding.block_rows > 1 ? "weight_scale_inv" : "weight_scale");
  part.tensor.dtype = bytes ? form_.scale_dtype : Format::kF32;
  part.tensor.shape = scales_shape(part);
  part.tensor.padding_bytes = halves(side) * formats::scale_rows(encoding, side.rows) *
                              formats::scale_columns(encoding, side.k) * (bytes ? 1 : 4);
  part.tensor.needs.gate_up_scales = !side.down;
  part.tensor.needs.down_scales = side.down;
  return part;
}

tensor::Shape LayerBuilder::scales_shape(const Part& part) const {
  const std::uint64_t experts = shape_.num_experts;
  const std::uint64_t rows = part.order.rows();
  const std::uint64_t columns = part.row_bytes;
  if (part.tile != PartTile::kScaleTiles) {
    const bool bytes = part.tensor.dtype != Format::kF32;
    return {experts, rows, bytes ? columns : columns / sizeof(float)};
  }
  if (form_.codes != PartTile::kSm90Codes) {
    return {experts, align_up(rows, part.scale_tile.rows), columns};
  }
  if (form_.sm90 == layout::Sm90Version::kFlashinfer0616) return {experts, columns / 4, rows * 4};
  return {experts, rows / 64, columns / 4, 256};
}

Part LayerBuilder::bias_part(const Side& side) const {
  const PartNumbers numbers = side.down ? form_.down_bias : form_.gate_up_bias;
  const Format dtype = numbers == PartNumbers::kToF32    ? Format::kF32
                       : numbers == PartNumbers::kToBf16 ? Format::kBf16
                                                         : shape_.bias_format;
  Part part;
  part.rows = side.down ? &ExpertSource::down_bias : &ExpertSource::gate_up_bias;
  part.order = order(side);
  part.row_bytes = formats::info(dtype).bits / 8;
  part.numbers = numbers;
  part.stored = shape_.bias_format;
  part.tensor.name = named(side, "bias");
  part.tensor.dtype = dtype;
  part.tensor.shape = {shape_.num_experts, part.order.rows()};
  part.tensor.padding_bytes = halves(side) * side.rows * part.row_bytes;
  part.tensor.needs.gate_up_bias = !side.down;
  part.tensor.needs.down_bias = side.down;
  return part;
}

class LayerPreparer final : public Preparer {
 public:
  LayerPreparer(const ExpertsShape& shape, std::vector<Part> parts)
      : shape_(shape), parts_(std::move(parts)) {
    for (const Part& part : parts_) tensors_.push_back(part.tensor);
  }

  const std::vector<EngineTensor>& tensors() const noexcept override { return tensors_; }
  bool wants_input_scales() const noexcept override { return find("w13_input_scale").has_value(); }

  SourceWindow window_of(std::size_t tensor_idx, std::uint64_t first_unit,
                         std::uint64_t num_units) const noexcept override {
    return part_window(parts_[tensor_idx], formats::info(shape_.encoding.element).bits, first_unit,
                       num_units);
  }
  void make(const MakeRequest& request, std::span<std::byte> out) const noexcept override {
    make_part(parts_[request.tensor_idx],
              {shape_, request.source, request.scalars, request.expert_idx}, request.first_unit,
              out);
  }

  bool may_lose(std::size_t tensor_idx) const noexcept override {
    return part_may_lose(parts_[tensor_idx]);
  }
  void count_losses(const LossRequest& request, LossCounts& losses) const override {
    count_part_losses(parts_[request.tensor_idx], shape_, request, losses);
  }

  formats::Encoding restored_encoding() const noexcept override {
    formats::Encoding encoding = shape_.encoding;
    if (encoding.tensor_scale != formats::TensorScale::kNone) {
      encoding.tensor_scale = formats::TensorScale::kMultiplier;
    }
    return encoding;
  }
  void restore_codes(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                     std::span<std::byte> out) const noexcept override {
    restore_row(matrix, "weight", row, expert, out);
  }
  void restore_scales(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                      std::span<std::byte> out) const noexcept override {
    const bool one = shape_.encoding.block_rows == formats::kWhole;
    const bool inverse = shape_.encoding.block_rows > 1;
    if (one) {
      const float scale = number(matrix, "weight_scale", expert);
      std::memcpy(out.data(), &scale, sizeof scale);
      return;
    }
    restore_row(matrix, inverse ? "weight_scale_inv" : "weight_scale", row, expert, out);
  }
  float restore_scale(Matrix matrix, const PreparedExpert& expert) const noexcept override {
    if (shape_.encoding.tensor_scale == formats::TensorScale::kNone) return 1.0F;
    return number(matrix, "weight_scale_2", expert);
  }
  float restore_bias(Matrix matrix, std::uint64_t row,
                     const PreparedExpert& expert) const noexcept override {
    if (!shape_.bias) return 0.0F;
    std::array<std::byte, sizeof(float)> bytes{};
    const std::size_t idx = index(matrix, "bias");
    const auto number = std::span(bytes).first(parts_[idx].row_bytes);
    restore_part_row(parts_[idx], {half(matrix), row}, expert[idx], number);
    return formats::number_at(tensors_[idx].dtype, number, 0);
  }

 private:
  static std::uint32_t half(Matrix matrix) noexcept { return matrix == Matrix::kUp ? 1 : 0; }
  std::optional<std::size_t> find(std::string_view name) const noexcept {
    for (std::size_t idx = 0; idx < tensors_.size(); ++idx) {
      if (tensors_[idx].name == name) return idx;
    }
    return std::nullopt;
  }
  std::size_t index(Matrix matrix, std::string_view rest) const noexcept {
    const std::string_view begin = matrix == Matrix::kDown ? "w2_" : "w13_";
    for (std::size_t idx = 0; idx < tensors_.size(); ++idx) {
      const std::string_view name = tensors_[idx].name;
      if (name.starts_with(begin) && name.substr(begin.size()) == rest) return idx;
    }
    LODE_CHECK(false, "a tensor that the encoding must have");
    return 0;
  }
  void restore_row(Matrix matrix, std::string_view rest, std::uint64_t row,
                   const PreparedExpert& expert, std::span<std::byte> out) const noexcept {
    const std::size_t idx = index(matrix, rest);
    restore_part_row(parts_[idx], {half(matrix), row}, expert[idx], out);
  }
  float number(Matrix matrix, std::string_view rest, const PreparedExpert& expert) const noexcept {
    float value = 0.0F;
    std::memcpy(&value, expert[index(matrix, rest)].data(), sizeof value);
    return value;
  }

  ExpertsShape shape_;
  std::vector<Part> parts_;
  std::vector<EngineTensor> tensors_;
};

Status multiple(std::string_view thing, std::uint64_t value, std::uint64_t unit) {
  if (value != 0 && unit != 0 && value % unit == 0) return {};
  return Error{.code = Code::kUnsupported,
               .thing = std::string(thing),
               .wanted = fmt::format("a multiple of {}", unit),
               .found = std::to_string(value)};
}

/// What the blocks of the checkpoint ask of a width, and the tiles of the padded one.
Status check_width(const ExpertsShape& shape, const LayerForm& form, std::string_view thing,
                   std::uint64_t stored, std::uint64_t padded) {
  const formats::Encoding& encoding = shape.encoding;
  const bool blocks = encoding.has_scale && encoding.block_rows == 1;
  if (blocks && encoding.block_k != formats::kWhole) {
    LODE_TRY_STATUS(multiple(thing, stored, encoding.block_k));
    LODE_TRY_STATUS(multiple(fmt::format("{}, padded", thing), padded, encoding.block_k));
  }
  LODE_TRY_STATUS(multiple(thing, stored, encoding.element == Format::kE2m1 ? 2 : 1));
  if (stored > padded || padded > kMostElements) {
    return Error{.code = Code::kUnsupported,
                 .thing = std::string(thing),
                 .wanted = fmt::format("at most {}", std::min(padded, kMostElements)),
                 .found = std::to_string(stored)};
  }
  const std::uint64_t row_bytes = formats::row_bytes(encoding, padded);
  const std::string of_row = fmt::format("bytes of a row of {} {}", padded, thing);
  if (form.codes == PartTile::kBlockMajor) {
    LODE_TRY_STATUS(multiple(of_row, row_bytes, layout::kBlockMajorBytes));
  }
  if (form.codes != PartTile::kSm90Codes) return {};
  return multiple(fmt::format("columns of {}, padded", thing), padded, 128);
}

Status check_rows(const LayerForm& form, std::string_view thing, std::uint64_t rows) {
  LODE_TRY_STATUS(multiple(thing, rows, layout::block_rows(form.shuffle)));
  if (form.codes != PartTile::kSm90Codes) return {};
  return multiple(thing, rows, 64);
}

Status check_bytes(std::uint64_t num_experts, const std::vector<Part>& parts) {
  std::uint64_t sum = 0;
  for (const Part& part : parts) {
    const auto bytes = checked_mul(num_experts, part.tensor.expert_bytes);
    const auto more = bytes ? checked_add(sum, *bytes) : std::nullopt;
    if (!more || *more > kMostElements) {
      return Error{.code = Code::kUnsupported,
                   .thing = part.tensor.name,
                   .wanted = "at most " + human_bytes(kMostElements) + " a layer",
                   .found = fmt::format("{} of {}", count_of(num_experts, "expert"),
                                        human_bytes(part.tensor.expert_bytes))};
    }
    sum = *more;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Preparer>> make_layer_preparer(const ExpertsShape& shape,
                                                      const LayerForm& form) {
  LODE_TRY_STATUS(multiple("experts", shape.num_experts, 1));
  LODE_TRY_STATUS(check_width(shape, form, "hidden size", shape.hidden, form.hidden));
  LODE_TRY_STATUS(
      check_width(shape, form, "intermediate size", shape.intermediate, form.intermediate));
  LODE_TRY_STATUS(check_rows(form, "rows of down, padded", form.hidden));
  LODE_TRY_STATUS(
      check_rows(form, "rows of gate and up, padded", shape.num_halves() * form.intermediate));
  if (shape.gated && form.order == layout::GateUpOrder::kUpGateBy64) {
    LODE_TRY_STATUS(multiple("intermediate size, padded", form.intermediate, 64));
  }
  if (std::max(form.hidden, form.intermediate) > kMostElements / 2 ||
      form.hidden > kMostElements / form.intermediate) {
    return Error{.code = Code::kUnsupported,
                 .thing = "experts",
                 .wanted = "matrices that can be counted",
                 .found = fmt::format("{} x {}", form.hidden, form.intermediate)};
  }
  std::vector<Part> parts = LayerBuilder(shape, form).build();
  LODE_TRY_STATUS(check_bytes(shape.num_experts, parts));
  return std::unique_ptr<Preparer>(std::make_unique<LayerPreparer>(shape, std::move(parts)));
}

}  // namespace lode::targets
