#include "lode/targets/cutlass_scalars.h"

#include <functional>
#include <string_view>

namespace lode::targets {
namespace {

template <InputScales kWhose, auto kNumber>
float number_of(const ExpertsShape& shape, const LayerScalars& scalars,
                std::uint64_t expert_idx) noexcept {
  return std::invoke(kNumber, nvfp4_scalars(shape, scalars, kWhose, expert_idx));
}

float one(const ExpertsShape&, const LayerScalars&, std::uint64_t) noexcept { return 1.0F; }

float nvfp4_scale_c(const ExpertsShape& shape, const LayerScalars& scalars,
                    std::uint64_t expert_idx) noexcept {
  return nvfp4_scalars(shape, scalars, InputScales::kLargestOfAll, expert_idx)
      .g1_scale_c(shape.gated);
}
float fp8_scale_c(const ExpertsShape& shape, const LayerScalars& scalars,
                  std::uint64_t expert_idx) noexcept {
  return nvfp4_scalars(shape, scalars, InputScales::kLargestOfAll, expert_idx)
      .fp8_g1_scale_c(shape.gated);
}

class ScalarParts {
 public:
  explicit ScalarParts(std::uint64_t num_experts) : num_experts_(num_experts) {}

  void add(std::string_view name, ScalarFn scalar) {
    Part part;
    part.scalar = scalar;
    part.tensor.name = name;
    part.tensor.dtype = formats::Format::kF32;
    part.tensor.shape = {num_experts_};
    part.tensor.padding_bytes = sizeof(float);
    parts_.push_back(std::move(part));
  }
  template <InputScales kWhose>
  void add_input_scales() {
    add("w13_input_scale", number_of<kWhose, &Nvfp4Scalars::gate_up_input_scale>);
    add("w2_input_scale", number_of<kWhose, &Nvfp4Scalars::down_input_scale>);
  }
  template <InputScales kWhose>
  void add_alphas() {
    add("g1_alphas", number_of<kWhose, &Nvfp4Scalars::g1_alpha>);
    add("g2_alphas", number_of<kWhose, &Nvfp4Scalars::g2_alpha>);
  }
  template <InputScales kWhose>
  void add_nvfp4(bool folded) {
    add_input_scales<kWhose>();
    if (!folded) add_alphas<kWhose>();
    add("a1_gscale", number_of<kWhose, &Nvfp4Scalars::a1_gscale>);
    add("a2_gscale", folded ? one : number_of<kWhose, &Nvfp4Scalars::a2_gscale>);
  }
  std::vector<Part> take() { return std::move(parts_); }

 private:
  std::uint64_t num_experts_;
  std::vector<Part> parts_;
};

constexpr auto kAll = InputScales::kLargestOfAll;

void add_scales(ScalarParts& parts, const LayerForm& form, bool fp8) {
  const bool folded = form.scalars == ScalarSet::kNvfp4Folded;
  parts.add(fp8 ? "w13_weight_scale" : "w13_weight_scale_2",
            folded ? one : number_of<kAll, &Nvfp4Scalars::gate_up_scale>);
  parts.add(fp8 ? "w2_weight_scale" : "w2_weight_scale_2",
            folded ? one : number_of<kAll, &Nvfp4Scalars::down_scale>);
}

}  // namespace

std::vector<Part> scalar_parts(const ExpertsShape& shape, const LayerForm& form) {
  ScalarParts parts(shape.num_experts);
  const ScalarSet set = form.scalars;
  if (set == ScalarSet::kNone) return {};
  const bool fp8 = set == ScalarSet::kFp8Tensor || set == ScalarSet::kFp8TensorTrtllm;
  add_scales(parts, form, fp8);
  if (!shape.input_scales) return parts.take();
  if (fp8) {
    parts.add_input_scales<kAll>();
    parts.add_alphas<kAll>();
  } else if (form.input_scales == InputScales::kOfEachExpert) {
    parts.add_nvfp4<InputScales::kOfEachExpert>(set == ScalarSet::kNvfp4Folded);
  } else {
    parts.add_nvfp4<kAll>(set == ScalarSet::kNvfp4Folded);
  }
  if (set == ScalarSet::kNvfp4Trtllm) parts.add("g1_scale_c", nvfp4_scale_c);
  if (set == ScalarSet::kFp8TensorTrtllm) parts.add("g1_scale_c", fp8_scale_c);
  return parts.take();
}

}  // namespace lode::targets
