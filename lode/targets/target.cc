#include "lode/targets/target.h"

#include <algorithm>
#include <array>
#include <vector>

#include "lode/base/fmt.h"
#include "lode/targets/online.h"
#include "lode/targets/routes.h"

namespace lode::targets {
namespace {

constexpr std::array<TargetInfo, 7> kTargets{{
    {Target::kCpu, "cpu", "panels of 16 rows, which Lode runs"},
    {Target::kMarlin, "marlin", "16-bit activations on any NVIDIA GPU since Ampere"},
    {Target::kFlashinferCutlass, "flashinfer-cutlass", "FlashInfer's CUTLASS experts"},
    {Target::kFlashinferTrtllm, "flashinfer-trtllm", "TensorRT-LLM's experts by FlashInfer"},
    {Target::kFlashinferB12x, "flashinfer-b12x", "FlashInfer's experts for SM12x"},
    {Target::kVllmCutlass, "vllm-cutlass", "vLLM's own CUTLASS experts"},
    {Target::kDeepgemm, "deepgemm", "DeepGEMM's grouped kernels"},
}};

std::vector<Route> all_routes() {
  std::vector<Route> routes;
  for (const auto group : {marlin_routes(), cutlass_routes(), trtllm_routes(), deepgemm_routes()}) {
    routes.insert(routes.end(), group.begin(), group.end());
  }
  return routes;
}

std::string names_of_routes(std::optional<Target> target, const formats::Encoding* encoding) {
  std::string names;
  for (const Route& route : route_table()) {
    if (target && route.target != *target) continue;
    if (encoding != nullptr && !route.takes(*encoding)) continue;
    if (!names.empty()) names += ", ";
    names += encoding != nullptr ? name(route.target) : route.from;
  }
  return names.empty() ? "none" : names;
}

Error no_use(const Route& found, std::string option, bool RouteUses::*use) {
  std::string with;
  for (const Route& route : route_table()) {
    if (!(route.uses.*use)) continue;
    with += fmt::format("{}{} from {}", with.empty() ? "" : ", ", name(route.target), route.from);
  }
  return Error{.code = Code::kUsage,
               .thing = std::move(option),
               .wanted = fmt::format("a target that has a use for it: {}", with),
               .found = fmt::format("{} from {}", name(found.target), found.from)};
}

Status check_uses(const Route& route, const Options& options) {
  if (options.fp8_activations && !route.uses.fp8_activations) {
    return no_use(route, "--fp8-activations", &RouteUses::fp8_activations);
  }
  if (options.flashinfer == Options{}.flashinfer) return {};
  std::string option = fmt::format("--flashinfer {}", options.flashinfer);
  if (!route.uses.flashinfer) return no_use(route, std::move(option), &RouteUses::flashinfer);
  if (!options.fp8_activations) return {};
  return Error{.code = Code::kUsage,
               .thing = std::move(option),
               .wanted = "kernels of 16-bit activations, whose SM90 layout it chooses",
               .found = "--fp8-activations"};
}

// Where such experts can go instead, or what would have them go to this target.
std::string ways_out(Target target, const ExpertsShape& shape) {
  std::string names;
  for (const std::string_view scheme : online_schemes_to(target, shape)) {
    names += std::string(names.empty() ? "" : ", ") + std::string(scheme);
  }
  const std::string others = "it can go to: " + names_of_routes(std::nullopt, &shape.encoding);
  return names.empty() ? others
                       : "quantise on the way, --online with one of " + names + "; " + others;
}

}  // namespace

std::span<const TargetInfo> target_table() noexcept { return kTargets; }

std::string_view name(Target target) noexcept {
  return kTargets[static_cast<std::size_t>(target)].name;
}

std::optional<Target> target_by_name(std::string_view name) noexcept {
  for (const TargetInfo& info : kTargets) {
    if (info.name == name) return info.target;
  }
  return std::nullopt;
}

std::span<const Route> route_table() noexcept {
  static const std::vector<Route> routes = all_routes();
  return routes;
}

std::string encodings_to(Target target) { return names_of_routes(target, nullptr); }

bool takes(Target target, const formats::Encoding& encoding) noexcept {
  return std::ranges::any_of(route_table(), [&](const Route& route) {
    return route.target == target && route.takes(encoding);
  });
}

Result<std::unique_ptr<Preparer>> make_preparer(Target target, const ExpertsShape& shape,
                                                const Options& options) {
  if (!options.online.empty()) return make_online_preparer(target, shape, options);
  for (const Route& route : route_table()) {
    if (route.target != target || !route.takes(shape.encoding)) continue;
    LODE_TRY_STATUS(check_uses(route, options));
    return route.make(shape, options);
  }
  return Error{.code = Code::kUnsupported,
               .thing = std::string("experts in ") + std::string(formats::name(shape.encoding)),
               .wanted = "one of " + names_of_routes(target, nullptr) + " for target " +
                         std::string(name(target)),
               .found = std::string(formats::name(shape.encoding)),
               .hint = ways_out(target, shape)};
}

}  // namespace lode::targets
