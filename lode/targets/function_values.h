#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/targets/functions.h"

// What the functions of `lode layout` share: params out of JSON, tensors out of files. All of it
// comes from outside and is checked here.

namespace lode::targets {

/// The params of a request by name. A member that is null is as one that is not there; what a
/// function has no row for is check_params' to refuse.
class Params {
 public:
  explicit Params(const json::Value& object) : object_(object) {}

  bool has(std::string_view name) const noexcept { return member(name) != nullptr; }
  /// A whole number, not negative.
  ///
  /// Errors: kUsage naming the param where it is not there (and has no fallback) or something else.
  Result<std::uint64_t> count(std::string_view name,
                              std::optional<std::uint64_t> fallback = std::nullopt) const;
  /// Errors: as count.
  Result<bool> flag(std::string_view name, std::optional<bool> fallback = std::nullopt) const;
  /// Errors: as count.
  Result<std::string> word(std::string_view name,
                           std::optional<std::string_view> fallback = std::nullopt) const;
  /// Any number.
  ///
  /// Errors: as count.
  Result<double> number(std::string_view name, std::optional<double> fallback = std::nullopt) const;
  /// A list of whole numbers, not negative; empty where it is not there.
  ///
  /// Errors: kUsage naming the param where it is something else.
  Result<std::vector<std::uint64_t>> counts(std::string_view name) const;

  /// Refuses a fact that is not `has`, which the tensors say; nothing where it is not given.
  ///
  /// Errors: kUsage naming the param, what the tensors have, and what was found.
  Status agree(std::string_view name, const json::Value& has) const;

 private:
  const json::Value* member(std::string_view name) const noexcept;
  const json::Value& object_;
};

/// What manifests say of every layer of experts, for lists of params.
inline constexpr std::array<ParamRow, 3> kLayerFacts{
    {{"E", "experts", ParamUse::kFact, ""},
     {"K", "hidden size", ParamUse::kFact, ""},
     {"N", "intermediate size", ParamUse::kFact, ""}}};
struct LayerSizes {
  std::uint64_t experts = 0;
  std::uint64_t hidden = 0;
  std::uint64_t intermediate = 0;
};
/// Errors: as Params::agree.
Status check_layer_facts(const Params& params, const LayerSizes& has);

/// Two lists of rows as one.
template <class Row, std::size_t A, std::size_t B>
constexpr std::array<Row, A + B> joined(const std::array<Row, A>& first,
                                        const std::array<Row, B>& second) {
  std::array<Row, A + B> all{};
  std::copy(first.begin(), first.end(), all.begin());
  std::copy(second.begin(), second.end(), all.begin() + A);
  return all;
}

/// An extent that may be anything, in `want`.
inline constexpr std::uint64_t kAnyExtent = ~std::uint64_t{0};

/// The tensor of this name with one of the dtypes and these extents.
///
/// Errors: kInvalidSource naming the tensor: not there, of another dtype or shape.
Result<const NamedTensor*> want(std::span<const NamedTensor> tensors, std::string_view name,
                                std::span<const formats::Format> dtypes,
                                std::span<const std::uint64_t> extents);
/// The same for lists that are written out.
///
/// Errors: the same.
Result<const NamedTensor*> want(std::span<const NamedTensor> tensors, std::string_view name,
                                std::initializer_list<formats::Format> dtypes,
                                std::initializer_list<std::uint64_t> extents);

/// Bytes of a tensor; two E2M1 codes a byte.
///
/// Errors: kUnsupported naming `thing` where 64 bits do not hold them.
Result<std::uint64_t> bytes_of(std::string_view thing, formats::Format dtype,
                               std::span<const std::uint64_t> shape);

/// A tensor of zeros, to be filled.
///
/// Errors: as bytes_of, and where it were larger than kMaxTensorBytes.
Result<NamedTensor> make_tensor(std::string_view name, formats::Format dtype,
                                std::vector<std::uint64_t> shape);

/// No tensor of `lode layout` is larger: what it computes is held in memory.
inline constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 36;

/// "BF16 [96, 128]": for messages.
std::string describe(const NamedTensor& tensor);
/// "[96, 128]", kAnyExtent as "any".
std::string shape_text(std::span<const std::uint64_t> shape);

}  // namespace lode::targets
