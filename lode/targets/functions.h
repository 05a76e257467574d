#pragma once

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

/// A named transform of tensors, as an engine has it.
struct Function {
  std::string_view name;      // ours, in `lode layout apply`: "marlin-repack"
  std::string_view upstream;  // how a manifest calls it in "function"; several: one row each
  std::string_view meaning;   // one sentence
  std::string_view inputs;    // "w [K/8, N] I32; perm [K] I32 optional"
  std::string_view params;    // "size_k, size_n, num_bits (4 or 8), is_a_8bit"
  bool has_in_place = false;  // whether kInPlace is a way of its own
  /// Errors: kInvalidSource for tensors that are missing or misshapen, kUsage for params,
  ///         kUnsupported for sizes that the layout does not take.
  Result<std::vector<NamedTensor>> (*run)(const Request& request);
};

/// Every function, in the order of the documents.
std::span<const Function> function_table() noexcept;
/// By the name that a manifest or a user gives; null if it is not known.
const Function* function_by_name(std::string_view name) noexcept;

}  // namespace lode::targets
