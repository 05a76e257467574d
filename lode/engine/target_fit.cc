#include "lode/engine/target_fit.h"

#include <optional>
#include <tuple>

#include "lode/base/fmt.h"
#include "lode/loader/expert_reader.h"
#include "lode/targets/online.h"

namespace lode::engine {
namespace {

using targets::ExpertsShape;

// A shape as its first layer has it.
struct Layer {
  std::size_t idx = 0;
  ExpertsShape shape;
};

bool alike(const ExpertsShape& a, const ExpertsShape& b) {
  const auto of = [](const ExpertsShape& shape) {
    return std::tie(shape.num_experts, shape.hidden, shape.intermediate, shape.gated,
                    shape.rows_in_turn, shape.bias, shape.input_scales, shape.encoding,
                    shape.scale_format, shape.scales_are_exponents, shape.bias_format,
                    shape.model_format);
  };
  return of(a) == of(b);
}

std::string text_of(std::size_t layer, Error error) {
  return to_string(at(fmt::format("layer {}", layer), std::move(error)));
}

// The distinct shapes of the layers, or what is wrong with one of them for every engine.
struct Layers {
  std::vector<Layer> distinct;
  std::string fault;
};

Layers layers_of(const loader::Binding& binding) {
  Layers layers;
  for (std::size_t i = 0; i < binding.experts.size(); ++i) {
    if (binding.experts[i].empty()) continue;
    auto shape = loader::experts_shape(binding.experts[i]);
    if (!shape) {
      layers.fault = text_of(i, std::move(shape).error());
      return layers;
    }
    bool known = false;
    for (const Layer& layer : layers.distinct) known = known || alike(layer.shape, *shape);
    if (!known) layers.distinct.push_back({i, *std::move(shape)});
  }
  if (layers.distinct.empty()) layers.fault = "no layer of this model has experts";
  return layers;
}

void say_why_not(TargetFit& fit, const Layer& layer, Error error) {
  for (const std::string_view scheme : targets::online_schemes_to(fit.target, layer.shape)) {
    fit.online += fmt::format("{}{}", fit.online.empty() ? "" : ", ", scheme);
  }
  if (targets::takes(fit.target, layer.shape.encoding)) {
    fit.brief = fmt::format("layer {}, {}: wants {}", layer.idx, error.thing, error.wanted);
  } else {
    fit.brief = "wants " + targets::encodings_to(fit.target);
  }
  fit.reason = text_of(layer.idx, std::move(error));
}

}  // namespace

std::vector<TargetFit> target_fits(const loader::Binding& binding) {
  const Layers layers = layers_of(binding);
  std::vector<TargetFit> fits;
  for (const targets::TargetInfo& info : targets::target_table()) {
    TargetFit fit{.target = info.target};
    if (info.target != targets::Target::kCpu) fit.reason = fit.brief = layers.fault;
    for (const Layer& layer : layers.distinct) {
      if (info.target == targets::Target::kCpu || !fit.possible()) continue;
      auto preparer = targets::make_preparer(info.target, layer.shape);
      if (!preparer) say_why_not(fit, layer, std::move(preparer).error());
    }
    fits.push_back(std::move(fit));
  }
  return fits;
}

}  // namespace lode::engine
