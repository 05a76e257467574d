#include "lode/loader/tensor_uses.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace lode::loader {

TensorUses::TensorUses(const Binding& binding, const checkpoint::TensorIndex& index)
    : index_(index), order_(index.tensors().size()), uses_(index.tensors().size()) {
  std::iota(order_.begin(), order_.end(), 0U);
  std::sort(order_.begin(), order_.end(), [&index](std::uint32_t a, std::uint32_t b) {
    const checkpoint::TensorRecord& left = index.tensors()[a];
    const checkpoint::TensorRecord& right = index.tensors()[b];
    return std::tie(left.shard_id, left.file_offset, left.bytes) <
           std::tie(right.shard_id, right.file_offset, right.bytes);
  });
  mark(binding.model);
  for (const RoleSources& layer : binding.layers) mark(layer);
  for (const auto& experts : binding.experts) {
    for (const ExpertSource& expert : experts) mark(expert);
  }
}

std::optional<std::uint32_t> TensorUses::at(std::uint32_t shard, std::uint64_t offset_bytes) const {
  const auto begins_after = [&](std::uint32_t, std::uint32_t position) {
    const checkpoint::TensorRecord& tensor = index_.tensors()[position];
    return std::tie(shard, offset_bytes) < std::tie(tensor.shard_id, tensor.file_offset);
  };
  auto found = std::upper_bound(order_.begin(), order_.end(), 0U, begins_after);
  if (found == order_.begin()) return std::nullopt;
  --found;
  const checkpoint::TensorRecord& tensor = index_.tensors()[*found];
  if (tensor.shard_id != shard || offset_bytes - tensor.file_offset >= tensor.bytes) {
    return std::nullopt;
  }
  return *found;
}

void TensorUses::mark(std::uint32_t shard, std::uint64_t offset_bytes, TensorUseKind kind) {
  if (const auto position = at(shard, offset_bytes)) uses_[*position] = kind;
}

void TensorUses::mark(const MatrixSource& matrix) {
  if (!matrix.present) return;
  const formats::Encoding& encoding = matrix.encoding;
  mark(matrix.codes.shard, matrix.codes.offset_bytes, {NumberUse::kNumbers, encoding.element});
  if (encoding.has_scale) {
    const bool of_matrix =
        encoding.block_rows == formats::kWhole && encoding.block_k == formats::kWhole;
    mark(matrix.scales.shard, matrix.scales.offset_bytes,
         {of_matrix ? NumberUse::kMatrixScales : NumberUse::kBlockScales,
          matrix.stored_scale_format});
  }
  if (encoding.tensor_scale != formats::TensorScale::kNone) {
    mark(matrix.matrix_scale_shard, matrix.matrix_scale_offset_bytes,
         {NumberUse::kMatrixScales, formats::Format::kF32});
  }
  if (matrix.has_input_scale) {
    mark(matrix.input_scale_shard, matrix.input_scale_offset_bytes,
         {NumberUse::kInputScales, formats::Format::kF32});
  }
}

void TensorUses::mark(const VectorSource& vector) {
  if (vector.present) {
    mark(vector.shard, vector.offset_bytes, {NumberUse::kNumbers, vector.format});
  }
}

void TensorUses::mark(const RoleSources& sources) {
  for (const MatrixSource& matrix : sources.matrices) mark(matrix);
  for (const VectorSource& vector : sources.vectors) mark(vector);
}

void TensorUses::mark(const ExpertSource& expert) {
  for (const MatrixSource* matrix : {&expert.gate, &expert.up, &expert.down}) mark(*matrix);
  for (const VectorSource* vector : {&expert.gate_bias, &expert.up_bias, &expert.down_bias}) {
    mark(*vector);
  }
}

}  // namespace lode::loader
