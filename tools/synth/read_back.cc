#include "tools/synth/read_back.h"

#include <algorithm>
#include <cstring>

#include "lode/formats/dequantise.h"
#include "tools/synth/plan.h"
#include "tools/synth/source.h"

namespace lode::synth {
namespace {

/// Rows of codes and scales of the experts' matrices, transposition undone.
struct Rows {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  float tensor_scale = 1.0F;
};

/// [columns, rows] of `unit` bytes as [rows, columns].
std::vector<std::byte> turned(std::span<const std::byte> bytes, std::uint64_t rows,
                              std::uint64_t unit) {
  std::vector<std::byte> out(bytes.size());
  const std::uint64_t columns = bytes.size() / rows / unit;
  for (std::uint64_t i = 0; i < rows * columns; ++i) {
    const std::uint64_t to = (i % rows) * columns + i / rows;
    std::memcpy(out.data() + to * unit, bytes.data() + i * unit, unit);
  }
  return out;
}

std::span<const std::byte> part(std::span<const std::byte> bytes, std::uint64_t which,
                                std::uint64_t parts) {
  const std::uint64_t each = bytes.size() / parts;
  return bytes.subspan(which * each, each);
}

/// Every second row of `bytes` from `first` on, or the half with that number.
std::vector<std::byte> half(std::span<const std::byte> bytes, std::uint64_t first,
                            std::uint64_t rows, bool interleaved) {
  const std::uint64_t stride = bytes.size() / rows;
  std::vector<std::byte> out;
  for (std::uint64_t row = 0; row < rows / 2; ++row) {
    const auto from =
        bytes.subspan((interleaved ? 2 * row + first : first * rows / 2 + row) * stride, stride);
    out.insert(out.end(), from.begin(), from.end());
  }
  return out;
}

Result<Rows> read_rows(const checkpoint::TensorIndex& index,
                       const checkpoint::LinearStorage& storage, std::uint64_t expert) {
  const std::uint64_t experts = std::max<std::uint64_t>(1, storage.experts);
  Rows rows;
  LODE_TRY(const auto codes, checkpoint::read_tensor(index, *storage.values));
  const auto own = part(codes, expert, experts);
  rows.codes.assign(own.begin(), own.end());
  if (storage.scale != nullptr) {
    LODE_TRY(const auto scales, checkpoint::read_tensor(index, *storage.scale));
    const auto own_scales = part(scales, expert, experts);
    rows.scales.assign(own_scales.begin(), own_scales.end());
  }
  if (storage.tensor_scale != nullptr) {
    LODE_TRY(const auto scales, checkpoint::read_tensor(index, *storage.tensor_scale));
    rows.tensor_scale =
        formats::number_at(formats::Format::kF32, scales, scales.size() == 4 ? 0 : expert);
  }
  return rows;
}

struct Extents {
  std::uint64_t rows, columns;
};
Extents extents_of(const ModelShape& shape, ExpertRole role) {
  if (role == ExpertRole::kDown) return {shape.hidden, shape.intermediate};
  return {shape.intermediate, shape.hidden};
}

Result<std::vector<float>> dequantised(const formats::EncodedMatrix& matrix) {
  LODE_TRY_STATUS(formats::check_matrix(matrix));
  std::vector<float> out(matrix.rows * matrix.k);
  for (std::uint64_t row = 0; row < matrix.rows; ++row) {
    formats::dequantise_row(matrix, row, std::span(out).subspan(row * matrix.k, matrix.k));
  }
  return out;
}

std::string_view module_pattern(const ExpertNames& names, ExpertRole role) {
  if (role == ExpertRole::kGate) return names.gate;
  return role == ExpertRole::kUp ? names.up : names.down;
}

}  // namespace

Result<Reader> Reader::open(const std::filesystem::path& folder, const Recipe& recipe) {
  LODE_TRY(const Resolved resolved, resolve(recipe));
  LODE_TRY(checkpoint::TensorIndex index, checkpoint::open_index(folder));
  return Reader(std::move(index), recipe, resolved);
}

Result<std::vector<float>> Reader::expert(std::uint64_t layer, std::uint64_t expert,
                                          ExpertRole role) const {
  const ExpertNames& names = resolved_.family->experts;
  const auto [rows, columns] = extents_of(recipe_.shape, role);
  if (resolved_.storage == Storage::kPerExpert) {
    const std::string module =
        prefixed(recipe_, filled(module_pattern(names, role), layer, expert));
    LODE_TRY(const auto storage, checkpoint::detect_linear(index_, module, {}));
    LODE_TRY(const Rows read, read_rows(index_, storage, 0));
    return dequantised(
        {storage.encoding, rows, columns, read.codes, read.scales, read.tensor_scale});
  }
  const bool down = role == ExpertRole::kDown;
  const std::string stack =
      prefixed(recipe_, filled(down ? names.down_stack : names.gate_up_stack, layer));
  LODE_TRY(const auto storage, checkpoint::detect_fused(index_, stack, {}));
  LODE_TRY(Rows read, read_rows(index_, storage, expert));
  const std::uint64_t all_rows = down ? rows : 2 * rows;
  const bool mxfp4 = recipe_.format == WeightFormat::kMxfp4;
  const bool interleaved = resolved_.storage == Storage::kInterleaved;
  if (resolved_.storage == Storage::kTransposed || (interleaved && !mxfp4)) {
    const bool bf16 = recipe_.format == WeightFormat::kBf16;
    read.codes = turned(read.codes, all_rows, bf16 ? 2 : 1);
    if (!read.scales.empty()) read.scales = turned(read.scales, all_rows, 1);
  }
  if (!down) {
    const std::uint64_t which = role == ExpertRole::kUp ? 1 : 0;
    read.codes = half(read.codes, which, all_rows, interleaved);
    const bool blocks = storage.encoding.block_rows > 1;
    const std::uint64_t scale_rows = blocks ? all_rows / storage.encoding.block_rows : all_rows;
    if (has_block_scales(storage.encoding))
      read.scales = half(read.scales, which, scale_rows, interleaved);
  }
  return dequantised({storage.encoding, rows, columns, read.codes, read.scales, read.tensor_scale});
}

namespace {

MatrixId matrix_of(const Recipe& recipe, std::uint64_t layer, std::uint64_t expert,
                   ExpertRole role) {
  constexpr std::string_view kRoles[] = {"expert_gate", "expert_up", "expert_down"};
  const auto [rows, columns] = extents_of(recipe.shape, role);
  return {kRoles[static_cast<std::size_t>(role)], layer, expert, Kind::kExpert, rows, columns, ""};
}

Result<std::vector<float>> floats_of(const Recipe& recipe, const MatrixId& matrix) {
  std::vector<float> values(matrix.rows * matrix.columns);
  LODE_TRY_STATUS(HashSource(recipe.seed).rows(matrix, 0, values));
  return values;
}

/// Largest magnitude of everything that shares the scale of the matrix.
Result<float> shared_amax(const Recipe& recipe, ScaleOver over, const MatrixId& matrix,
                          ExpertRole role) {
  float amax = 0.0F;
  const bool all = over == ScaleOver::kLayer;
  for (std::uint64_t expert = 0; expert < recipe.shape.experts; ++expert) {
    if (!all && expert != matrix.expert) continue;
    for (const ExpertRole other : {ExpertRole::kGate, ExpertRole::kUp, ExpertRole::kDown}) {
      const bool same_kind = (other == ExpertRole::kDown) == (role == ExpertRole::kDown);
      const bool shares = over == ScaleOver::kMatrix ? other == role : same_kind;
      if (!shares) continue;
      LODE_TRY(const auto values,
               floats_of(recipe, matrix_of(recipe, matrix.layer, expert, other)));
      amax = std::max(amax, formats::largest_magnitude(values));
    }
  }
  return amax;
}

}  // namespace

Result<std::vector<float>> expected_expert(const Recipe& recipe, std::uint64_t layer,
                                           std::uint64_t expert, ExpertRole role) {
  LODE_TRY(const Resolved resolved, resolve(recipe));
  const MatrixId matrix = matrix_of(recipe, layer, expert, role);
  LODE_TRY(std::vector<float> values, floats_of(recipe, matrix));
  if (!resolved.rule) return values;
  LODE_TRY(const float amax, shared_amax(recipe, resolved.scale_over, matrix, role));
  LODE_TRY(const formats::Quantised made,
           formats::quantise({*resolved.rule, values, matrix.rows, matrix.columns,
                              formats::Format::kBf16, amax}));
  return dequantised(
      {made.encoding, matrix.rows, matrix.columns, made.codes, made.scales, made.tensor_scale});
}

}  // namespace lode::synth
