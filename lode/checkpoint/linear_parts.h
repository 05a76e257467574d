#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lode/base/result.h"
#include "lode/checkpoint/tensor_index.h"

namespace lode::checkpoint {

/// What a tensor beside or inside a module is for, by its name alone.
enum class Part : std::uint8_t {
  kWeight,       // weight, or the fused name itself
  kPacked,       // weight_packed
  kBlocks,       // _blocks
  kScale,        // weight_scale, weight_scale_inv, _scales, ...
  kScale2,       // weight_scale_2: a multiplier
  kGlobalScale,  // weight_global_scale: a divisor
  kInputScale,
  kBias,
  kForeign,  // of a storage that we do not read: zero points, AWQ, GPTQ, bitsandbytes
};
inline constexpr std::size_t kNumParts = 9;

/// The tensors of one module, at most one a part.
struct LinearParts {
  const TensorRecord* tensor[kNumParts] = {};
  std::string_view foreign;  // name of the storage that kForeign belongs to

  const TensorRecord* get(Part part) const noexcept {
    return tensor[static_cast<std::size_t>(part)];
  }
};

/// Gathers `module.<suffix>`; with `fused` also `module` itself and `module_<suffix>`.
///
/// Errors: kInvalidSource where two tensors claim one part.
Result<LinearParts> gather_parts(const TensorIndex& index, std::string_view module, bool fused);

}  // namespace lode::checkpoint
