#pragma once

#include <string_view>

#include "lode/base/result.h"
#include "lode/checkpoint/linear_parts.h"
#include "lode/checkpoint/linear_storage.h"

namespace lode::checkpoint {

/// One linear, or stack of them, whose tensors have been gathered: what the rules below decide on.
struct StorageCase {
  std::string_view module;
  const LinearParts& parts;
  const TensorRecord* values;  // of a known dtype
  Part part;                   // as which of the three kinds of weight they are named
  bool fused;
  const QuantConfig& quant;
};

/// BF16, F16 or F32; no scale may lie beside it.
///
/// Errors: kInvalidSource naming the tensor whose shape does not fit, or the scale.
Result<LinearStorage> dense_storage(const StorageCase& given);

/// E2M1 pairs in bytes (or F4): MXFP4 by an E8M0 scale, NVFP4 by an E4M3 scale and a second level.
///
/// Errors: kInvalidSource naming the tensor: no scale, no second level, shapes that do not fit.
Result<LinearStorage> fp4_storage(const StorageCase& given);

/// FP8: scales for the matrix, a row, a block, or 32 along the in axis, decided by their shape.
///
/// Errors: kInvalidSource naming the tensor: no scale, or a shape that fits none of these.
Result<LinearStorage> fp8_storage(const StorageCase& given);

}  // namespace lode::checkpoint
