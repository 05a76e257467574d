#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lode/base/result.h"
#include "lode/targets/preparer.h"

namespace lode::targets {

/// A family of kernels that weights are prepared for.
enum class Target : std::uint8_t {
  kCpu,  // Lode's own panels; made by the loader, not here
  kMarlin,
  kFlashinferCutlass,
  kFlashinferTrtllm,
  kFlashinferB12x,
  kVllmCutlass,
  kDeepgemm,
};

struct TargetInfo {
  Target target;
  std::string_view name;     // "flashinfer-trtllm", as in flags and manifests
  std::string_view meaning;  // one sentence for the documents
};
/// Every target, in the order of the enum.
std::span<const TargetInfo> target_table() noexcept;
std::string_view name(Target target) noexcept;
std::optional<Target> target_by_name(std::string_view name) noexcept;

/// What the user may choose beside the target.
struct Options {
  bool fp8_activations = false;  // kernels that read FP8 or MXFP8 activations, where there are two
  std::string flashinfer = "0.7";  // whose SM90 mixed-input layout: "0.7" or "0.6.16"
  // What BF16 and F16 experts become on the way: "fp8-tensor", "fp8-channel", "fp8-block", "mxfp8",
  // "mxfp4", "nvfp4"; empty: what they are.
  std::string online;
};

/// Which of the options make a difference on a route; with others than the usual it is refused.
struct RouteUses {
  bool fp8_activations = false;
  bool flashinfer = false;  // unless activations are FP8
};

/// A way from an encoding to a target.
struct Route {
  Target target;
  std::string_view from;     // "nvfp4", "mxfp4", "fp8-block", ...
  std::string_view weights;  // what becomes of them, for the documents
  std::string_view scales;
  bool (*takes)(const formats::Encoding& encoding);
  /// Errors: kUnsupported naming sizes that the kernels do not take, with what they take.
  Result<std::unique_ptr<Preparer>> (*make)(const ExpertsShape& shape, const Options& options);
  RouteUses uses{};
};
/// Every route; what is not here is not valid.
std::span<const Route> route_table() noexcept;

/// Those that a target takes, in one line: "nvfp4, mxfp4".
std::string encodings_to(Target target);
bool takes(Target target, const formats::Encoding& encoding) noexcept;

/// The preparer of one layer.
///
/// Errors: kUnsupported naming the encoding and the targets that take it, or the target and the
///         encodings that it takes; kUsage naming an option that the route has no use for, and the
///         routes that have; those of the route.
Result<std::unique_ptr<Preparer>> make_preparer(Target target, const ExpertsShape& shape,
                                                const Options& options = {});

}  // namespace lode::targets
