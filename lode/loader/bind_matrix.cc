#include "lode/loader/bind_matrix.h"

#include <optional>
#include <string>

#include "lode/base/bytes.h"
#include "lode/kernels/panel.h"
#include "lode/loader/bind_missing.h"

namespace lode::loader {
namespace {

using checkpoint::LinearStorage;
using checkpoint::StorageKind;
using checkpoint::TensorRecord;
using formats::Encoding;
using formats::Format;

// The encoding once prepared: scales of FP8 become f32, whatever the file has.
Encoding prepared_encoding(const LinearStorage& storage) {
  Encoding encoding = storage.encoding;
  if (encoding.has_scale && encoding.element == Format::kE4m3) encoding.scale = Format::kF32;
  return encoding;
}

// Files keep E8M0 in U8, too.
Format stored_scale_format(const TensorRecord& scale) {
  const Format format = scale.format.value_or(Format::kU8);
  return format == Format::kU8 ? Format::kE8m0 : format;
}

struct Grid {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t size() const { return rows * columns; }
};

Grid scale_grid(const StoredMatrix& matrix) {
  const Encoding& encoding = matrix.storage.encoding;
  return {formats::scale_rows(encoding, matrix.rows), formats::scale_columns(encoding, matrix.k)};
}

// Codes in a file are packed along k: a unit is one code, or two of E2M1.
std::uint64_t codes_in_unit(const Encoding& encoding) {
  return encoding.element == Format::kE2m1 ? 2 : 1;
}
std::uint64_t unit_bytes(const Encoding& encoding) {
  return encoding.element == Format::kE2m1 ? 1 : number_bytes(encoding.element);
}

std::uint64_t members(const LinearStorage& storage) {
  return storage.experts == 0 ? 1 : storage.experts;
}

// One scale may serve all members, one a member, or one a part of a member (gate and up).
bool fits_whole_scales(const StoredMatrix& matrix, const TensorRecord& scale) {
  const std::uint64_t elements = checkpoint::num_elements(scale);
  const std::uint64_t count = members(matrix.storage);
  return elements == 1 || elements == count || elements == matrix.parts * count;
}
std::uint64_t scale_index(std::uint64_t elements, std::uint64_t count, std::uint64_t member,
                          std::uint64_t part) {
  if (elements == count) return member;
  if (elements == 2 * count) return 2 * member + part;
  return 0;
}

Region codes_region(const StoredMatrix& matrix, std::uint64_t member, const RowPick& pick) {
  const Encoding& encoding = matrix.storage.encoding;
  const std::uint64_t units = matrix.k / codes_in_unit(encoding);
  const std::uint64_t width = unit_bytes(encoding);
  Region region{.shard = matrix.storage.values->shard_id};
  region.offset_bytes = matrix.storage.values->file_offset + member * matrix.rows * units * width;
  if (matrix.transposed) {
    region.order = Order::kKFirst;
    region.offset_bytes += pick.origin * width;
    region.outer_stride_bytes = matrix.rows * width;
    region.inner_step_bytes = pick.step * width;
  } else {
    region.offset_bytes += pick.origin * units * width;
    region.outer_stride_bytes = pick.step * units * width;
  }
  return region;
}

Region scales_region(const StoredMatrix& matrix, std::uint64_t member, const RowPick& pick) {
  const TensorRecord& scale = *matrix.storage.scale;
  const std::uint64_t width = number_bytes(stored_scale_format(scale));
  const Grid grid = scale_grid(matrix);
  Region region{.shard = scale.shard_id, .offset_bytes = scale.file_offset};
  if (matrix.storage.kind == StorageKind::kFp8Tensor) {
    region.offset_bytes += width * scale_index(checkpoint::num_elements(scale),
                                               members(matrix.storage), member, pick.part);
  } else {
    region.offset_bytes += width * member * grid.size();
  }
  if (matrix.transposed) {
    region.order = Order::kKFirst;
    region.outer_stride_bytes = grid.rows * width;
    region.inner_step_bytes = width;
  } else {
    region.outer_stride_bytes = grid.columns * width;
  }
  return region;
}

// One that has not the shape of a scale is left aside with a note, like all of them on the CPU.
void add_input_scale(const StoredMatrix& matrix, std::uint64_t member, const RowPick& pick,
                     MatrixSource& source) {
  const TensorRecord* const scale = matrix.storage.input_scale;
  if (scale == nullptr || !scale->is(Format::kF32) || !fits_whole_scales(matrix, *scale)) return;
  source.input_scale_shard = scale->shard_id;
  source.input_scale_offset_bytes =
      scale->file_offset +
      number_bytes(Format::kF32) *
          scale_index(checkpoint::num_elements(*scale), members(matrix.storage), member, pick.part);
  source.input_scale_is_divisor = scale->name.ends_with("input_global_scale");
  source.has_input_scale = true;
}

std::string shape_text(const StoredMatrix& matrix) {
  const std::uint64_t first = matrix.transposed ? matrix.k : matrix.rows;
  const std::uint64_t second = matrix.transposed ? matrix.rows : matrix.k;
  std::string text = "[";
  if (matrix.storage.experts != 0) text += std::to_string(matrix.storage.experts) + ", ";
  return text + std::to_string(first) + ", " + std::to_string(second) + "]";
}

Status check_codes(const BindContext& context, const StoredMatrix& matrix) {
  const Encoding& encoding = matrix.storage.encoding;
  const bool whole_units = matrix.k % codes_in_unit(encoding) == 0;
  const auto numbers = checked_mul(matrix.rows, matrix.k / codes_in_unit(encoding));
  const auto all = numbers ? checked_mul(*numbers, members(matrix.storage)) : std::nullopt;
  const auto bytes = all ? checked_mul(*all, unit_bytes(encoding)) : std::nullopt;
  if (!whole_units || bytes != matrix.storage.values->bytes) {
    return misfit(context.index, *matrix.storage.values, "a matrix " + shape_text(matrix));
  }
  return {};
}

Status check_scales(const BindContext& context, const StoredMatrix& matrix) {
  const TensorRecord* const scale = matrix.storage.scale;
  if (scale == nullptr) {
    return misfit(context.index, *matrix.storage.values, "scales beside the codes");
  }
  const std::uint64_t elements = checkpoint::num_elements(*scale);
  const std::uint64_t count = members(matrix.storage);
  const bool one_each = matrix.storage.kind == StorageKind::kFp8Tensor;
  const bool fits = one_each ? elements == 1 || elements == count || elements == 2 * count
                             : elements == count * scale_grid(matrix).size();
  if (!fits) {
    return misfit(context.index, *scale,
                  std::to_string(count * scale_grid(matrix).size()) + " scales for a matrix " +
                      shape_text(matrix));
  }
  return {};
}

Status check_tensor_scale(const BindContext& context, const StoredMatrix& matrix) {
  const TensorRecord* const scale = matrix.storage.tensor_scale;
  if (scale == nullptr) {
    return misfit(context.index, *matrix.storage.values, "a second-level scale beside the codes");
  }
  if (!fits_whole_scales(matrix, *scale) || !scale->is(Format::kF32)) {
    return misfit(context.index, *scale, "F32, one number for all or one a matrix");
  }
  return {};
}

}  // namespace

std::uint64_t number_bytes(Format format) noexcept { return formats::info(format).bits / 8; }

bool is_plain_float(const TensorRecord& tensor) noexcept {
  return tensor.is(Format::kF32) || tensor.is(Format::kF16) || tensor.is(Format::kBf16);
}

MatrixSource source_of(const StoredMatrix& matrix, std::uint64_t member, const RowPick& pick) {
  MatrixSource source{.encoding = prepared_encoding(matrix.storage),
                      .rows = pick.rows,
                      .k = matrix.k,
                      .codes = codes_region(matrix, member, pick),
                      .row_origin = pick.origin,
                      .row_step = pick.step,
                      .present = true};
  if (source.encoding.has_scale) {
    source.scales = scales_region(matrix, member, pick);
    source.stored_scale_format = stored_scale_format(*matrix.storage.scale);
  }
  if (source.encoding.tensor_scale != formats::TensorScale::kNone) {
    const TensorRecord& scale = *matrix.storage.tensor_scale;
    source.matrix_scale_shard = scale.shard_id;
    source.matrix_scale_offset_bytes =
        scale.file_offset +
        number_bytes(Format::kF32) * scale_index(checkpoint::num_elements(scale),
                                                 members(matrix.storage), member, pick.part);
  }
  add_input_scale(matrix, member, pick, source);
  return source;
}

Status check_stored(const BindContext& context, const StoredMatrix& matrix) {
  const Encoding encoding = prepared_encoding(matrix.storage);
  if (!kernels::panel_shape(encoding)) {
    Error error = misfit(context.index, *matrix.storage.values, "numbers that panels hold");
    error.code = Code::kUnsupported;
    error.hint = std::string(checkpoint::name(matrix.storage.kind)) + " of " +
                 std::string(formats::info(encoding.element).name) + " with " +
                 std::to_string(encoding.block_k) + " of k to a scale cannot be prepared";
    return error;
  }
  LODE_TRY_STATUS(check_codes(context, matrix));
  if (encoding.has_scale) {
    LODE_TRY_STATUS(check_scales(context, matrix));
  }
  if (encoding.tensor_scale != formats::TensorScale::kNone) {
    LODE_TRY_STATUS(check_tensor_scale(context, matrix));
  }
  return {};
}

Status take_matrix(BindContext& context, const LinearStorage& storage, std::string_view module) {
  for (const TensorRecord* tensor : {storage.values, storage.scale, storage.tensor_scale}) {
    if (tensor == nullptr) continue;
    LODE_TRY_STATUS(context.use.take(*tensor));
  }
  // an embedding is no linear: settings that quantise linears do not mean it
  if (module == module_name(context, families::Role::kTokenEmbedding)) return {};
  auto remark = checkpoint::contradiction(storage, module, context.quant);
  if (remark) context.notes.add(*std::move(remark));
  return {};
}

Result<MatrixSource> bind_linear(BindContext& context, std::string_view module,
                                 const families::RoleExtents& extents) {
  StoredMatrix matrix{.storage = {}, .rows = extents.rows, .k = extents.k};
  auto detected = checkpoint::detect_linear(context.index, module, context.quant);
  if (!detected && !checkpoint::has_linear(context.index, module)) {
    return missing(context, std::string(module) + ".weight", "a matrix " + shape_text(matrix));
  }
  if (!detected) return with_file(context.index, std::move(detected).error());
  const LinearStorage& storage = matrix.storage = *std::move(detected);
  if (storage.rows != extents.rows || storage.columns != extents.k) {
    return misfit(context.index, *storage.values, "a matrix " + shape_text(matrix));
  }
  LODE_TRY_STATUS(check_stored(context, matrix));
  LODE_TRY_STATUS(take_matrix(context, storage, module));
  return source_of(matrix, 0, {.rows = extents.rows});
}

Result<VectorSource> bind_vector(BindContext& context, std::string_view tensor,
                                 std::uint64_t count) {
  auto wanted = context.index.want(tensor);
  if (!wanted && context.index.find(tensor) == nullptr) {
    return missing(context, std::string(tensor),
                   "BF16, F16 or F32 [" + std::to_string(count) + "]");
  }
  if (!wanted) return with_file(context.index, std::move(wanted).error());
  const TensorRecord* const record = *wanted;
  if (!is_plain_float(*record) || record->dims.size() != 1 || record->dims[0] != count) {
    return misfit(context.index, *record, "BF16, F16 or F32 [" + std::to_string(count) + "]");
  }
  LODE_TRY_STATUS(context.use.take(*record));
  return VectorSource{.format = *record->format,
                      .count = count,
                      .shard = record->shard_id,
                      .offset_bytes = record->file_offset,
                      .step_bytes = number_bytes(*record->format),
                      .present = true};
}

}  // namespace lode::loader
