#include "lode/checkpoint/linear_storage.h"

#include <algorithm>
#include <array>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/linear_parts.h"
#include "lode/checkpoint/storage_rules.h"

namespace lode::checkpoint {
namespace {

using formats::Format;

constexpr std::array<std::string_view, 8> kKindNames = {
    "dense",      "mxfp4",       "mxfp8",    "nvfp4-modelopt", "nvfp4-compressed-tensors",
    "fp8-tensor", "fp8-channel", "fp8-block"};

Error unsupported(std::string_view module, std::string_view found) {
  return {.code = Code::kUnsupported,
          .thing = fmt::format("linear {}", printable(module)),
          .wanted = "BF16, F16, F32, MXFP4, NVFP4 or FP8",
          .found = std::string(found)};
}

// Exactly one of the three ways to name the values.
Result<Part> part_of_values(const TensorIndex& index, std::string_view module,
                            const LinearParts& parts) {
  const TensorRecord* first = nullptr;
  Part found = Part::kWeight;
  for (const Part part : {Part::kWeight, Part::kPacked, Part::kBlocks}) {
    const TensorRecord* const tensor = parts.get(part);
    if (tensor == nullptr) continue;
    if (first != nullptr) {
      return Error{.code = Code::kInvalidSource,
                   .thing = fmt::format("tensor {}", printable(tensor->name)),
                   .wanted = "one kind of weight for a linear",
                   .found = fmt::format("{} too", printable(first->name))};
    }
    first = tensor;
    found = part;
  }
  if (first == nullptr) {
    const std::string nearest = index.nearest_name(fmt::format("{}.weight", module));
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("linear {}", printable(module)),
                 .wanted = "a weight",
                 .found = "no tensor for it",
                 .hint = nearest.empty() ? "" : fmt::format("nearest is {}", printable(nearest))};
  }
  return found;
}

bool is_fp8(Format format) { return format == Format::kE4m3 || format == Format::kE5m2; }

// Which rule reads the values, by their dtype and the tensors beside them.
Result<LinearStorage> by_dtype(const StorageCase& given) {
  const Format format = *given.values->format;
  const TensorRecord* const scale = given.parts.get(Part::kScale);
  switch (format) {
    case Format::kBf16:
    case Format::kF16:
    case Format::kF32:
      return dense_storage(given);
    case Format::kE2m1:
    case Format::kU8:
    case Format::kI8:
      if (format == Format::kI8 && scale != nullptr && !scale->is(Format::kE8m0)) {
        return unsupported(given.module, "int8 weights");
      }
      if (format == Format::kI8 && scale == nullptr) {
        return unsupported(given.module, "int8 weights");
      }
      return fp4_storage(given);
    case Format::kI32:
      return unsupported(given.module, "pack-quantized int4 or int8 weights");
    default:
      if (is_fp8(format)) return fp8_storage(given);
      return unsupported(given.module, fmt::format("weights of dtype {}", given.values->dtype));
  }
}

// A bias belongs to the outputs: rows, or columns where the stack is transposed.
Status check_bias(const LinearStorage& storage) {
  const TensorRecord* const bias = storage.bias;
  if (bias == nullptr) return {};
  const bool stacked = storage.experts != 0;
  const std::uint64_t width = bias->dims.empty() ? 0 : bias->dims.back();
  const bool width_fits = (storage.in_axis != InAxis::kMiddle && width == storage.rows) ||
                          (storage.in_axis != InAxis::kLast && width == storage.columns);
  const bool rank_fits = bias->dims.size() == (stacked ? 2U : 1U);
  if (rank_fits && width_fits && (!stacked || bias->dims[0] == storage.experts)) return {};
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("tensor {}", printable(bias->name)),
               .wanted = fmt::format("a bias for {}", describe(*storage.values)),
               .found = describe(*bias)};
}

Result<LinearStorage> detect(const TensorIndex& index, std::string_view module,
                             const QuantConfig& quant, bool fused) {
  LODE_TRY(const LinearParts parts, gather_parts(index, module, fused));
  if (parts.get(Part::kForeign) != nullptr) return unsupported(module, parts.foreign);
  LODE_TRY(const Part part, part_of_values(index, module, parts));
  for (const TensorRecord* tensor : parts.tensor) {
    if (tensor != nullptr && !tensor->format) {
      return Error{.code = Code::kUnsupported,
                   .thing = fmt::format("tensor {}", printable(tensor->name)),
                   .wanted = "a dtype that lode knows",
                   .found = printable(tensor->dtype)};
    }
  }
  const StorageCase given{.module = module,
                          .parts = parts,
                          .values = parts.get(part),
                          .part = part,
                          .fused = fused,
                          .quant = quant};
  LODE_TRY(LinearStorage storage, by_dtype(given));
  storage.values = given.values;
  storage.input_scale = parts.get(Part::kInputScale);
  storage.bias = parts.get(Part::kBias);
  LODE_TRY_STATUS(check_bias(storage));
  return storage;
}

bool has_values(const TensorIndex& index, std::string_view module, bool fused) {
  const Result<LinearParts> parts = gather_parts(index, module, fused);
  if (!parts) return true;  // there, though faulty
  return std::ranges::any_of(
      std::array{Part::kWeight, Part::kPacked, Part::kBlocks, Part::kForeign},
      [&](Part part) { return parts->get(part) != nullptr; });
}

}  // namespace

std::string_view name(StorageKind kind) noexcept {
  return kKindNames[static_cast<std::size_t>(kind)];
}

std::vector<const TensorRecord*> LinearStorage::tensors() const {
  std::vector<const TensorRecord*> all = {values, scale, tensor_scale, input_scale, bias};
  std::erase(all, nullptr);
  return all;
}

Result<LinearStorage> detect_linear(const TensorIndex& index, std::string_view module,
                                    const QuantConfig& quant) {
  return detect(index, module, quant, false);
}

Result<LinearStorage> detect_fused(const TensorIndex& index, std::string_view module,
                                   const QuantConfig& quant) {
  return detect(index, module, quant, true);
}

bool has_linear(const TensorIndex& index, std::string_view module) noexcept {
  return has_values(index, module, false);
}

bool has_fused(const TensorIndex& index, std::string_view module) noexcept {
  return has_values(index, module, true);
}

std::optional<std::string> contradiction(const LinearStorage& storage, std::string_view module,
                                         const QuantConfig& quant) {
  const bool quantised = storage.kind != StorageKind::kDense;
  const bool excluded = quant.dialect == Dialect::kNone || quant.is_excluded(module);
  if (quantised && excluded) {
    return fmt::format("{} is stored as {}, the settings say that it is not quantised",
                       printable(module), name(storage.kind));
  }
  if (!quantised && !excluded && (quant.rules.empty() || quant.rule_of(module) != nullptr)) {
    return fmt::format("{} is stored as {}, the settings say that it is quantised",
                       printable(module), storage.values->dtype);
  }
  return std::nullopt;
}

}  // namespace lode::checkpoint
