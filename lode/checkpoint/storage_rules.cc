#include "lode/checkpoint/storage_rules.h"

#include <string>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::checkpoint {
namespace {

using formats::Encoding;
using formats::Format;
using formats::kWhole;

constexpr std::uint64_t kMxGroup = 32;
constexpr std::uint64_t kNvGroup = 16;

bool is_float(const TensorRecord& tensor) {
  return tensor.is(Format::kF32) || tensor.is(Format::kBf16) || tensor.is(Format::kF16);
}
bool is_e8m0(const TensorRecord& tensor) {
  return tensor.is(Format::kE8m0) || tensor.is(Format::kU8);
}

Error misshaped(const TensorRecord& tensor, std::string wanted) {
  return {.code = Code::kInvalidSource,
          .thing = fmt::format("tensor {}", printable(tensor.name)),
          .wanted = std::move(wanted),
          .found = describe(tensor)};
}

Error lacking(const StorageCase& given, std::string_view what) {
  return {.code = Code::kInvalidSource,
          .thing = fmt::format("tensor {}", printable(given.values->name)),
          .wanted = fmt::format("{} beside it", what),
          .found = fmt::format("none for {}", describe(*given.values)),
          .hint = "the checkpoint is incomplete"};
}

// The matrix, or stack of matrices, that the dims describe; nothing packed yet.
Result<LinearStorage> matrix_of(const StorageCase& given, std::span<const std::uint64_t> dims) {
  LinearStorage storage;
  const std::size_t rank = given.fused ? 3 : 2;
  if (dims.size() != rank) {
    return misshaped(*given.values,
                     fmt::format("{} dimensions", rank + given.values->dims.size() - dims.size()));
  }
  for (const std::uint64_t dim : dims) {
    if (dim == 0) return misshaped(*given.values, "dimensions from 1");
  }
  if (given.fused) storage.experts = dims[0];
  storage.rows = dims[rank - 2];
  storage.columns = dims[rank - 1];
  return storage;
}

// Dims of a scale tensor without the axis of experts, or none if that axis does not fit.
std::optional<std::span<const std::uint64_t>> inner_dims(const LinearStorage& storage,
                                                         const TensorRecord& scale) {
  if (storage.experts == 0) return scale.dims;
  if (scale.dims.empty() || scale.dims[0] != storage.experts) return std::nullopt;
  return scale.dims.subspan(1);
}

// Whether the scales lie one a `group` along the last axis or, in a stack, along the middle one.
// `storage` has the unpacked axis sizes for that choice already.
bool fits_groups(const LinearStorage& storage, const TensorRecord& scale, std::uint64_t group,
                 InAxis axis) {
  const auto dims = inner_dims(storage, scale);
  if (!dims || dims->size() != 2) return false;
  const bool last = axis == InAxis::kLast;
  const std::uint64_t in = last ? storage.columns : storage.rows;
  return in % group == 0 && (*dims)[last ? 1 : 0] == in / group &&
         (*dims)[last ? 0 : 1] == (last ? storage.rows : storage.columns);
}

// Unpacks the axis that holds two numbers a byte, so that the scales fit groups of one of the
// sizes; tells the group, or 0 where none fits.
std::uint64_t unpack(LinearStorage& storage, const TensorRecord& scale, std::uint64_t factor,
                     std::initializer_list<std::uint64_t> groups) {
  for (const InAxis axis : {InAxis::kLast, InAxis::kMiddle}) {
    if (axis == InAxis::kMiddle && storage.experts == 0) break;
    LinearStorage unpacked = storage;
    (axis == InAxis::kLast ? unpacked.columns : unpacked.rows) *= factor;
    unpacked.in_axis = axis;
    for (const std::uint64_t group : groups) {
      if (!fits_groups(unpacked, scale, group, axis)) continue;
      storage = unpacked;
      return group;
    }
  }
  return 0;
}

// One number for the matrix; in a stack also one an expert, or two (gate and up).
bool is_second_level(const LinearStorage& storage, const TensorRecord& scale) {
  if (!is_float(scale)) return false;
  const std::uint64_t count = num_elements(scale);
  if (count == 1) return true;
  return storage.experts != 0 && scale.dims[0] == storage.experts &&
         (count == storage.experts || count == 2 * storage.experts);
}

// gpt-oss: blocks [E, rows, groups, 16] are rows of groups of 32.
Result<LinearStorage> blocks_storage(const StorageCase& given, const TensorRecord& scale) {
  const auto dims = given.values->dims;
  if (dims.empty() || dims.back() != kMxGroup / 2) {
    return misshaped(*given.values, "16 bytes in the last dimension");
  }
  LODE_TRY(LinearStorage storage, matrix_of(given, dims.first(dims.size() - 1)));
  storage.columns *= kMxGroup;
  if (!is_e8m0(scale) || !fits_groups(storage, scale, kMxGroup, InAxis::kLast)) {
    return misshaped(scale, fmt::format("U8 {}", dims_text(dims.first(dims.size() - 1))));
  }
  storage.kind = StorageKind::kMxfp4;
  storage.encoding = formats::kMxfp4;
  storage.scale = &scale;
  return storage;
}

Result<LinearStorage> mxfp4_storage(LinearStorage storage, const TensorRecord& scale,
                                    std::uint64_t factor) {
  if (unpack(storage, scale, factor, {kMxGroup}) == 0) {
    return misshaped(scale, fmt::format("one E8M0 for 32 of {}", describe(*storage.values)));
  }
  storage.kind = StorageKind::kMxfp4;
  storage.encoding = formats::kMxfp4;
  storage.scale = &scale;
  return storage;
}

Result<LinearStorage> nvfp4_storage(const StorageCase& given, LinearStorage storage,
                                    const TensorRecord& scale, std::uint64_t factor) {
  const TensorRecord* const multiplier = given.parts.get(Part::kScale2);
  const TensorRecord* const divisor = given.parts.get(Part::kGlobalScale);
  if (multiplier == nullptr && divisor == nullptr) {
    return lacking(given, given.part == Part::kPacked ? "weight_global_scale" : "weight_scale_2");
  }
  if (multiplier != nullptr && divisor != nullptr) {
    return misshaped(*divisor, fmt::format("no second tensor scale beside {}", multiplier->name));
  }
  const std::uint64_t group = unpack(storage, scale, factor, {kNvGroup, kMxGroup});
  if (group == 0) {
    return misshaped(scale, fmt::format("one E4M3 for 16 or 32 of {}", describe(*given.values)));
  }
  storage.tensor_scale = multiplier != nullptr ? multiplier : divisor;
  if (!is_second_level(storage, *storage.tensor_scale)) {
    return misshaped(*storage.tensor_scale, "one number, or one or two an expert");
  }
  storage.kind =
      multiplier != nullptr ? StorageKind::kNvfp4ModelOpt : StorageKind::kNvfp4CompressedTensors;
  storage.encoding = multiplier != nullptr ? formats::kNvfp4 : formats::kNvfp4Divisor;
  storage.encoding.block_k = static_cast<std::uint32_t>(group);
  storage.scale = &scale;
  return storage;
}

// One scale a matrix: 0-d or [1]; for a stack one for all or [E], [E, 1], [E, 1, 1].
bool is_tensor_scale(const LinearStorage& storage, const TensorRecord& scale) {
  const std::uint64_t count = num_elements(scale);
  if (count == 1) return true;
  return storage.experts != 0 && count == storage.experts && scale.dims[0] == count;
}

// One scale a row: [out] or [out, 1]; a transposed stack has [E, 1, out].
std::optional<InAxis> channel_axis(const LinearStorage& storage, const TensorRecord& scale) {
  const auto dims = inner_dims(storage, scale);
  if (!dims || dims->empty() || dims->size() > 2) return std::nullopt;
  const bool column = dims->size() == 1 || (*dims)[1] == 1;
  if (column && (*dims)[0] == storage.rows) return InAxis::kLast;
  const bool row = dims->size() == 2 && (*dims)[0] == 1;
  if (storage.experts != 0 && row && (*dims)[1] == storage.columns) return InAxis::kMiddle;
  return std::nullopt;
}

// One scale a block, edge blocks partial: [row blocks, column blocks], or with ModelOpt's ones.
bool is_block_scale(const LinearStorage& storage, const TensorRecord& scale,
                    const QuantConfig& quant) {
  const auto dims = inner_dims(storage, scale);
  if (!dims || (dims->size() != 2 && dims->size() != 4)) return false;
  const std::size_t step = dims->size() / 2;
  if (step == 2 && ((*dims)[1] != 1 || (*dims)[3] != 1)) return false;
  return (*dims)[0] == ceil_div<std::uint64_t>(storage.rows, quant.block[0]) &&
         (*dims)[step] == ceil_div<std::uint64_t>(storage.columns, quant.block[1]);
}

Encoding fp8_encoding(const TensorRecord& values, std::uint32_t rows, std::uint32_t columns) {
  return {.element = *values.format,
          .scale = Format::kF32,
          .block_rows = rows,
          .block_k = columns,
          .has_scale = true,
          .tensor_scale = formats::TensorScale::kNone};
}

bool says_inverse(const TensorRecord& scale) {
  return scale.name.ends_with("scale_inv") || scale.name.ends_with("scales_inv");
}

// By the shape of the scale alone; false where none fits. A single number is a block only where
// its name or the settings speak of blocks.
bool choose_fp8(const StorageCase& given, const TensorRecord& scale, LinearStorage& storage) {
  const TensorRecord& values = *given.values;
  const bool blocks = is_block_scale(storage, scale, given.quant);
  const bool one = is_tensor_scale(storage, scale);
  if (is_e8m0(scale) && fits_groups(storage, scale, kMxGroup, InAxis::kLast)) {
    storage.kind = StorageKind::kMxfp8;
    storage.encoding = formats::kMxfp8;
    storage.encoding.element = *values.format;
    return true;
  }
  if (scale.is(Format::kU8)) return false;
  if (blocks && (!one || says_inverse(scale) || given.quant.block_stated)) {
    storage.kind = StorageKind::kFp8Block;
    storage.encoding = fp8_encoding(values, given.quant.block[0], given.quant.block[1]);
    storage.in_axis = given.fused ? InAxis::kUnknown : InAxis::kLast;
    return true;
  }
  if (one) {
    storage.kind = StorageKind::kFp8Tensor;
    storage.encoding = fp8_encoding(values, kWhole, kWhole);
    storage.in_axis = given.fused ? InAxis::kUnknown : InAxis::kLast;
    return true;
  }
  const auto axis = channel_axis(storage, scale);
  if (!axis) return false;
  storage.kind = StorageKind::kFp8Channel;
  storage.encoding = fp8_encoding(values, 1, kWhole);
  storage.in_axis = *axis;
  return true;
}

}  // namespace

Result<LinearStorage> dense_storage(const StorageCase& given) {
  for (const Part part : {Part::kScale, Part::kScale2, Part::kGlobalScale}) {
    if (const TensorRecord* scale = given.parts.get(part)) {
      return misshaped(*scale, fmt::format("no scale beside {} {}", printable(given.values->name),
                                           describe(*given.values)));
    }
  }
  LODE_TRY(LinearStorage storage, matrix_of(given, given.values->dims));
  storage.kind = StorageKind::kDense;
  storage.encoding = Encoding{.element = *given.values->format};
  storage.in_axis = given.fused ? InAxis::kUnknown : InAxis::kLast;
  return storage;
}

Result<LinearStorage> fp4_storage(const StorageCase& given) {
  const TensorRecord* const scale = given.parts.get(Part::kScale);
  if (scale == nullptr) return lacking(given, "a block scale");
  if (given.part == Part::kBlocks) return blocks_storage(given, *scale);
  LODE_TRY(LinearStorage storage, matrix_of(given, given.values->dims));
  storage.values = given.values;
  const std::uint64_t factor = given.values->is(Format::kE2m1) ? 1 : 2;
  if (scale->is(Format::kE4m3)) return nvfp4_storage(given, storage, *scale, factor);
  for (const Part part : {Part::kScale2, Part::kGlobalScale}) {
    if (const TensorRecord* second = given.parts.get(part)) {
      return misshaped(*second, fmt::format("E4M3 block scales, not {}", describe(*scale)));
    }
  }
  if (is_e8m0(*scale)) return mxfp4_storage(storage, *scale, factor);
  return misshaped(*scale, "E4M3, E8M0 or U8 block scales");
}

Result<LinearStorage> fp8_storage(const StorageCase& given) {
  const TensorRecord* const scale = given.parts.get(Part::kScale);
  if (scale == nullptr) return lacking(given, "a scale");
  for (const Part part : {Part::kScale2, Part::kGlobalScale}) {
    if (const TensorRecord* second = given.parts.get(part)) {
      return misshaped(*second, "no second level of scales beside FP8");
    }
  }
  LODE_TRY(LinearStorage storage, matrix_of(given, given.values->dims));
  storage.scale = scale;
  const bool known_scale = is_float(*scale) || is_e8m0(*scale);
  if (known_scale && choose_fp8(given, *scale, storage)) return storage;
  return misshaped(
      *scale, fmt::format("one scale, one a row, or one for {} x {} of {}", given.quant.block[0],
                          given.quant.block[1], describe(*given.values)));
}

}  // namespace lode::checkpoint
