#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/formats/format.h"
#include "lode/json/json.h"

namespace lode::targets {

/// A tensor with its name, in ordinary memory: for `lode layout` and tests, not for models.
struct NamedTensor {
  std::string name;  // "w13_scale"
  formats::Format dtype{};
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;
};

/// Null where there is none of that name.
const NamedTensor* find(std::span<const NamedTensor> tensors, std::string_view name) noexcept;
/// Errors: kInvalidSource naming the tensor and those that there are.
Result<const NamedTensor*> want(std::span<const NamedTensor> tensors, std::string_view name);

/// How the bytes are made. Whichever it is, they are the same.
enum class Way : std::uint8_t {
  kOutOfPlace,  // whole tensors into preallocated ones
  kInPlace,     // where bytes out are bytes in; else as kOutOfPlace
  kStreamed,    // expert by expert and unit by unit
};
/// "out of place": for people.
std::string_view name(Way way) noexcept;

struct Request {
  std::span<const NamedTensor> inputs;
  json::Value params;  // an object
  Way way = Way::kOutOfPlace;
};

/// A tensor that a function takes.
struct InputRow {
  std::string_view name;  // "w13"; kAnyName: whatever tensors are called
  std::string_view what;  // "U8 [E, 2N, K/2]"
  bool needed = true;
};
inline constexpr std::string_view kAnyName = "*";

enum class ParamUse : std::uint8_t {
  kNeeded,
  kOptional,
  kFact,  // what the tensors say by themselves: refused where they say something else
};

/// Something that a function can be told.
struct ParamRow {
  std::string_view name;  // "num_bits"
  std::string_view what;  // "4 or 8"
  ParamUse use = ParamUse::kOptional;
  std::string_view fallback;  // of an optional one: what it is where it is not given
};

/// A named transform of tensors, as an engine has it.
struct Function {
  std::string_view name;                     // ours, in `lode layout apply`: "marlin-repack"
  std::array<std::string_view, 2> upstream;  // how manifests call it in "function"; or ""
  std::string_view meaning;                  // one sentence
  std::span<const InputRow> inputs;
  std::span<const ParamRow> params;
  bool has_in_place = false;  // whether kInPlace is a way of its own
  /// What a function has no row for it does not look at: check_names first.
  ///
  /// Errors: kInvalidSource for tensors that are missing or misshapen, kUsage for params,
  ///         kUnsupported for sizes that the layout does not take.
  Result<std::vector<NamedTensor>> (*run)(const Request& request);
};

/// Whether the function has a use for a tensor of this name.
bool takes_input(const Function& function, std::string_view name) noexcept;
/// Whether the function has a row for this param.
bool takes_param(const Function& function, std::string_view name) noexcept;

/// Refuses names that the function has no row for.
///
/// Errors: kUsage naming the first param or tensor, those that there are and the nearest.
Status check_params(const Function& function, const json::Object& params);
/// The same of tensors.
///
/// Errors: the same.
Status check_inputs(const Function& function, std::span<const std::string> names);

/// Every function, in the order of the documents.
std::span<const Function> function_table() noexcept;
/// By the name that a manifest or a user gives; null if it is not known.
const Function* function_by_name(std::string_view name) noexcept;
/// The same where there must be one.
///
/// Errors: kUsage naming the nearest.
Result<const Function*> want_function(std::string_view name);

}  // namespace lode::targets
