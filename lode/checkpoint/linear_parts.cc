#include "lode/checkpoint/linear_parts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "lode/base/fmt.h"

namespace lode::checkpoint {
namespace {

struct Suffix {
  std::string_view text;
  Part part;
  std::string_view foreign = "";
};

// After "module.".
constexpr std::array kNested = {
    Suffix{"weight", Part::kWeight},
    Suffix{"weight_packed", Part::kPacked},
    Suffix{"weight_scale", Part::kScale},
    Suffix{"weight_scale_inv", Part::kScale},
    Suffix{"weight_scales_inv", Part::kScale},
    Suffix{"scale", Part::kScale},
    Suffix{"qscale_weight", Part::kScale},
    Suffix{"weight_scale_2", Part::kScale2},
    Suffix{"weight_global_scale", Part::kGlobalScale},
    Suffix{"input_scale", Part::kInputScale},
    Suffix{"act_scale", Part::kInputScale},
    Suffix{"qscale_act", Part::kInputScale},
    Suffix{"input_global_scale", Part::kInputScale},
    Suffix{"bias", Part::kBias},
    Suffix{"pre_quant_scale", Part::kForeign, "AWQ (pre_quant_scale)"},
    Suffix{"weight_shape", Part::kForeign, "pack-quantized integers"},
    Suffix{"weight_zero_point", Part::kForeign, "integers with zero points"},
    Suffix{"weight_g_idx", Part::kForeign, "pack-quantized integers with g_idx"},
    Suffix{"qweight", Part::kForeign, "GPTQ or AWQ (qweight)"},
    Suffix{"qzeros", Part::kForeign, "GPTQ or AWQ (qzeros)"},
    Suffix{"weight.absmax", Part::kForeign, "bitsandbytes (absmax)"},
    Suffix{"SCB", Part::kForeign, "bitsandbytes (SCB)"},
};

// After "module_", and "module" itself.
constexpr std::array kGlued = {
    Suffix{"", Part::kWeight},
    Suffix{"_blocks", Part::kBlocks},
    Suffix{"_packed", Part::kPacked},
    Suffix{"_weight_packed", Part::kPacked},
    Suffix{"_scales", Part::kScale},
    Suffix{"_scale", Part::kScale},
    Suffix{"_scale_inv", Part::kScale},
    Suffix{"_scales_inv", Part::kScale},
    Suffix{"_weight_scale", Part::kScale},
    Suffix{"_weight_scale_inv", Part::kScale},
    Suffix{"_weight_scale_2", Part::kScale2},
    Suffix{"_global_scale", Part::kGlobalScale},
    Suffix{"_weight_global_scale", Part::kGlobalScale},
    Suffix{"_input_scale", Part::kInputScale},
    Suffix{"_input_global_scale", Part::kInputScale},
    Suffix{"_bias", Part::kBias},
    Suffix{"_pre_quant_scale", Part::kForeign, "AWQ (pre_quant_scale)"},
    Suffix{"_weight_shape", Part::kForeign, "pack-quantized integers"},
    Suffix{"_zero_point", Part::kForeign, "integers with zero points"},
    Suffix{"_weight_zero_point", Part::kForeign, "integers with zero points"},
};

Status assign(LinearParts& parts, const Suffix& suffix, const TensorRecord& tensor) {
  const TensorRecord*& place = parts.tensor[static_cast<std::size_t>(suffix.part)];
  if (suffix.part == Part::kForeign) {
    if (place == nullptr) parts.foreign = suffix.foreign;
  } else if (place != nullptr) {
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("tensor {}", printable(tensor.name)),
                 .wanted = "only one tensor for one part of a matrix",
                 .found = fmt::format("{} too", printable(place->name))};
  }
  place = &tensor;
  return {};
}

// `rest` is what follows the module's name, its dot included.
const Suffix* known_suffix(std::string_view rest, bool fused) {
  if (rest.starts_with('.')) {
    const auto nested = std::ranges::find(kNested, rest.substr(1), &Suffix::text);
    return nested == kNested.end() ? nullptr : &*nested;
  }
  const auto glued = std::ranges::find(kGlued, rest, &Suffix::text);
  return fused && glued != kGlued.end() ? &*glued : nullptr;
}

}  // namespace

Result<LinearParts> gather_parts(const TensorIndex& index, std::string_view module, bool fused) {
  LinearParts parts;
  const std::string prefix = fused ? std::string(module) : fmt::format("{}.", module);
  for (const TensorRecord& tensor : index.with_prefix(prefix)) {
    const Suffix* const suffix = known_suffix(tensor.name.substr(module.size()), fused);
    if (suffix != nullptr) LODE_TRY_STATUS(assign(parts, *suffix, tensor));
  }
  return parts;
}

}  // namespace lode::checkpoint
