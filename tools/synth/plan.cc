#include "tools/synth/plan.h"

#include <algorithm>

#include "lode/formats/dequantise.h"
#include "tools/synth/plan_experts.h"

namespace lode::synth {
namespace {

bool once_a_layer(const TensorRow& row) { return row.name.find("{L}") != row.name.npos; }

MatrixId matrix_of(const ModelShape& shape, const TensorRow& row, std::uint64_t layer) {
  return {row.role,
          layer,
          0,
          row.kind,
          extent(shape, row.rows),
          extent(shape, row.columns),
          filled(row.name, layer)};
}

void add_dense_tensor(const Recipe& recipe, const TensorRow& row, std::uint64_t layer, Plan& plan) {
  MatrixId matrix = matrix_of(recipe.shape, row, layer);
  const bool quantised = recipe.dense_fp8 && (row.kind == Kind::kDense || row.kind == Kind::kHead);
  Stored stored{.name = prefixed(recipe, matrix.name)};
  if (quantised) stored.encoding = formats::kFp8Block128;
  stored.dims = {matrix.rows};
  if (row.columns != Extent::kOne) stored.dims.push_back(matrix.columns);
  const Place codes = add_codes(stored, plan);
  std::optional<Place> scales;
  std::optional<formats::Rule> rule;
  if (quantised) {
    stored.name += "_scale_inv";
    scales = add_scales(stored, plan);
    rule = formats::Rule::kTransformersFp8Block;
  }
  // In slices of whole blocks, so that the largest matrix needs no more memory than a small one.
  constexpr std::uint64_t kSliceNumbers = std::uint64_t{1} << 21;
  const std::uint64_t slice =
      std::max<std::uint64_t>(1, kSliceNumbers / matrix.columns / 128) * 128;
  for (std::uint64_t first = 0; first < matrix.rows; first += slice) {
    Job job{.matrices = {matrix}, .first_row = first};
    job.rows = std::min(slice, matrix.rows - first);
    job.encoding = stored.encoding;
    job.rule = rule;
    job.codes = {codes.tensor,
                 codes.offset + first * formats::row_bytes(stored.encoding, matrix.columns)};
    if (scales) {
      job.scales = {scales->tensor, formats::scales_bytes(stored.encoding, first, matrix.columns)};
    }
    plan.jobs.push_back(std::move(job));
  }
}

void place_in_shards(const Recipe& recipe, Plan& plan) {
  std::uint64_t total = 0;
  for (const PlannedTensor& tensor : plan.tensors) total += tensor.bytes;
  std::vector<std::uint64_t> filled_bytes(recipe.shards);
  std::uint64_t before = 0;
  for (PlannedTensor& tensor : plan.tensors) {
    // In floating point, for the product of two large numbers may not fit.
    const double share = static_cast<double>(before) / static_cast<double>(total);
    const auto shard = static_cast<std::uint64_t>(share * static_cast<double>(recipe.shards));
    before += tensor.bytes;
    tensor.shard = std::min(shard, recipe.shards - 1);
    if (tensor.next_shard) tensor.shard = (tensor.shard + 1) % recipe.shards;
    tensor.offset = filled_bytes[tensor.shard];
    filled_bytes[tensor.shard] += tensor.bytes;
  }
}

}  // namespace

bool has_block_scales(const formats::Encoding& encoding) noexcept {
  const bool one = encoding.block_rows == formats::kWhole && encoding.block_k == formats::kWhole;
  return encoding.has_scale && !one;
}

bool has_matrix_scale(const formats::Encoding& encoding) noexcept {
  const bool one = encoding.has_scale && !has_block_scales(encoding);
  return one || encoding.tensor_scale != formats::TensorScale::kNone;
}

std::string_view module_of(std::string_view tensor) noexcept {
  constexpr std::string_view kSuffix = ".weight";
  if (tensor.ends_with(kSuffix)) tensor.remove_suffix(kSuffix.size());
  return tensor;
}

std::string prefixed(const Recipe& recipe, std::string_view name) {
  constexpr std::string_view kModel = "model.";
  if (!name.starts_with(kModel)) return std::string(name);
  return recipe.prefix + std::string(name.substr(kModel.size()));
}

Plan plan_checkpoint(const Recipe& recipe, const Resolved& resolved) {
  Plan plan;
  const auto rows = resolved.family->tensors;
  const auto first_layered = std::ranges::find_if(rows, once_a_layer);
  for (auto row = rows.begin(); row != first_layered; ++row) {
    add_dense_tensor(recipe, *row, 0, plan);
  }
  for (std::uint64_t layer = 0; layer < recipe.shape.layers; ++layer) {
    for (const TensorRow& row : rows) {
      if (once_a_layer(row)) add_dense_tensor(recipe, row, layer, plan);
    }
    add_experts(recipe, resolved, layer, plan);
  }
  for (auto row = first_layered; row != rows.end(); ++row) {
    const bool left_out = once_a_layer(*row) || (row->kind == Kind::kHead && recipe.shape.tied);
    if (!left_out) add_dense_tensor(recipe, *row, 0, plan);
  }
  place_in_shards(recipe, plan);
  return plan;
}

}  // namespace lode::synth
