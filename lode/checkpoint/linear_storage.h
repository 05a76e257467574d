#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/quant_config.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/formats/format.h"

namespace lode::checkpoint {

/// The ways in which producers keep a matrix in a checkpoint.
enum class StorageKind : std::uint8_t {
  kDense,                   // BF16, F16 or F32
  kMxfp4,                   // E2M1 pairs in U8, one E8M0 for 32
  kMxfp8,                   // E4M3, one E8M0 for 32
  kNvfp4ModelOpt,           // E2M1 pairs, one E4M3 for a group, times weight_scale_2
  kNvfp4CompressedTensors,  // E2M1 pairs, one E4M3 for a group, divided by weight_global_scale
  kFp8Tensor,               // FP8, one scale a matrix
  kFp8Channel,              // FP8, one scale a row
  kFp8Block,                // FP8, one scale for a block of rows and columns
};

/// "mxfp4", "nvfp4-modelopt", ...: in messages and JSON.
std::string_view name(StorageKind kind) noexcept;

/// Which axis of a stack of matrices holds the pairs and groups, hence the `in` features. Dense and
/// tensor-scaled stacks do not betray it; then the family knows.
enum class InAxis : std::uint8_t { kUnknown, kLast, kMiddle };

/// How one linear's matrix, or the stack of all experts' matrices, lies in the checkpoint. The
/// pointers are into the index that was asked.
///
/// `rows` and `columns` are the matrix as the file orders its axes, packing undone: [out, in] for
/// a linear; for a stack of experts whatever the last two axes are ([in, out] when in_axis is
/// kMiddle, as in gpt-oss ModelOpt files).
struct LinearStorage {
  StorageKind kind = StorageKind::kDense;
  /// What the numbers mean, scales of FP8 seen as F32 (their own dtype is scale->format), blocks
  /// along the in axis in block_k.
  formats::Encoding encoding;
  std::uint64_t experts = 0;  // 0: one matrix, no stack
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  InAxis in_axis = InAxis::kLast;

  const TensorRecord* values = nullptr;        // never null in a result
  const TensorRecord* scale = nullptr;         // block, channel or tensor scales
  const TensorRecord* tensor_scale = nullptr;  // weight_scale_2, weight_global_scale
  const TensorRecord* input_scale = nullptr;   // of activations; not needed
  const TensorRecord* bias = nullptr;

  /// All tensors that this matrix accounts for, present ones only.
  std::vector<const TensorRecord*> tensors() const;
};

/// How the linear `module` ("model.layers.0.self_attn.q_proj", "….experts.3.gate_proj") is stored,
/// decided by its tensors: dtypes and shapes of `module.weight` or `module.weight_packed` and of
/// their scales. `quant` gives the block size of block FP8 only.
///
/// Errors: kInvalidSource naming the tensor: no weight at all (with the nearest name), two kinds
/// of weight, a missing scale, a scale whose shape does not fit; kUnsupported naming a storage
/// that we know of and cannot use (int4, int8, AWQ, ...) or an unknown dtype.
Result<LinearStorage> detect_linear(const TensorIndex& index, std::string_view module,
                                    const QuantConfig& quant);

/// The same for a stack of experts under a fused name ("….mlp.experts.gate_up_proj"): plain, with
/// suffixes glued on by `_` (_blocks and _scales, _scale_inv, _weight_scale, _packed, ...), or
/// nested (.weight, .weight_packed). Values have three axes, [E, …, …].
///
/// Errors: as detect_linear.
Result<LinearStorage> detect_fused(const TensorIndex& index, std::string_view module,
                                   const QuantConfig& quant);

/// Whether any tensor belongs to a linear, or a fused stack, of that name.
bool has_linear(const TensorIndex& index, std::string_view module) noexcept;
bool has_fused(const TensorIndex& index, std::string_view module) noexcept;

/// Where tensors and settings disagree about this module, in a sentence; tensors win.
std::optional<std::string> contradiction(const LinearStorage& storage, std::string_view module,
                                         const QuantConfig& quant);

}  // namespace lode::checkpoint
