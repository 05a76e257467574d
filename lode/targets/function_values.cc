#include "lode/targets/function_values.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::targets {
namespace {

Error bad_param(std::string_view name, std::string_view wanted, const json::Value* found) {
  return Error{.code = Code::kUsage,
               .thing = fmt::format("param {}", name),
               .wanted = std::string(wanted),
               .found = found == nullptr ? "nothing" : json::dump(*found),
               .hint = found == nullptr ? fmt::format("give it with --set {}=...", name) : ""};
}

bool fits(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> wanted) {
  return std::ranges::equal(shape, wanted, [](std::uint64_t found, std::uint64_t extent) {
    return extent == kAnyExtent || found == extent;
  });
}

std::string names_of(std::span<const formats::Format> dtypes) {
  std::string names;
  for (const formats::Format dtype : dtypes) {
    names +=
        fmt::format("{}{}", names.empty() ? "" : " or ", formats::info(dtype).safetensors_name);
  }
  return names;
}

}  // namespace

const json::Value* Params::member(std::string_view name) const noexcept {
  const json::Value* const value = object_.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::uint64_t> Params::count(std::string_view name,
                                    std::optional<std::uint64_t> fallback) const {
  const json::Value* const value = member(name);
  if (value == nullptr && fallback) return *fallback;
  const std::int64_t* const number = value == nullptr ? nullptr : value->as_int();
  if (number == nullptr || *number < 0) return bad_param(name, "a whole number", value);
  return static_cast<std::uint64_t>(*number);
}

Result<bool> Params::flag(std::string_view name, std::optional<bool> fallback) const {
  const json::Value* const value = member(name);
  if (value == nullptr && fallback) return *fallback;
  const bool* const flag = value == nullptr ? nullptr : value->as_bool();
  if (flag == nullptr) return bad_param(name, "true or false", value);
  return *flag;
}

Result<std::string> Params::word(std::string_view name,
                                 std::optional<std::string_view> fallback) const {
  const json::Value* const value = member(name);
  if (value == nullptr && fallback) return std::string(*fallback);
  const std::string* const word = value == nullptr ? nullptr : value->as_string();
  if (word == nullptr) return bad_param(name, "a word", value);
  return *word;
}

Result<double> Params::number(std::string_view name, std::optional<double> fallback) const {
  const json::Value* const value = member(name);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !value->is_number()) return bad_param(name, "a number", value);
  return value->number();
}

Result<std::vector<std::uint64_t>> Params::counts(std::string_view name) const {
  std::vector<std::uint64_t> counts;
  const json::Value* const value = member(name);
  if (value == nullptr) return counts;
  if (value->as_array() == nullptr) return bad_param(name, "a list of whole numbers", value);
  for (const json::Value& item : *value->as_array()) {
    if (item.as_int() == nullptr || *item.as_int() < 0)
      return bad_param(name, "a list of whole numbers", value);
    counts.push_back(static_cast<std::uint64_t>(*item.as_int()));
  }
  return counts;
}

Status Params::agree(std::string_view name, const json::Value& has) const {
  const json::Value* const value = member(name);
  const std::string said = json::dump(has);
  if (value == nullptr || json::dump(*value) == said) return {};
  return Error{.code = Code::kUsage,
               .thing = fmt::format("param {}", name),
               .wanted = fmt::format("{}, as the tensors have it, or nothing", said),
               .found = json::dump(*value)};
}

Status check_layer_facts(const Params& params, const LayerSizes& has) {
  LODE_TRY_STATUS(params.agree("E", json::Value(has.experts)));
  LODE_TRY_STATUS(params.agree("K", json::Value(has.hidden)));
  return params.agree("N", json::Value(has.intermediate));
}

Result<const NamedTensor*> want(std::span<const NamedTensor> tensors, std::string_view name,
                                std::span<const formats::Format> dtypes,
                                std::span<const std::uint64_t> extents) {
  LODE_TRY(const NamedTensor* const tensor, want(tensors, name));
  const bool right = std::ranges::find(dtypes, tensor->dtype) != dtypes.end();
  if (right && fits(tensor->shape, extents)) return tensor;
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("tensor {}", name),
               .wanted = fmt::format("{} {}", names_of(dtypes), shape_text(extents)),
               .found = describe(*tensor)};
}

Result<const NamedTensor*> want(std::span<const NamedTensor> tensors, std::string_view name,
                                std::initializer_list<formats::Format> dtypes,
                                std::initializer_list<std::uint64_t> extents) {
  return want(tensors, name, std::span(dtypes.begin(), dtypes.size()),
              std::span(extents.begin(), extents.size()));
}

Result<std::uint64_t> bytes_of(std::string_view thing, formats::Format dtype,
                               std::span<const std::uint64_t> shape) {
  std::optional<std::uint64_t> bits = formats::info(dtype).bits;
  for (const std::uint64_t extent : shape) {
    if (bits) bits = checked_mul(*bits, extent);
  }
  if (bits && *bits % 8 == 0) return *bits / 8;
  return Error{
      .code = Code::kUnsupported,
      .thing = fmt::format("tensor {}", thing),
      .wanted = "whole bytes, as many as 64 bits can count",
      .found = fmt::format("{} {}", formats::info(dtype).safetensors_name, shape_text(shape))};
}

Result<NamedTensor> make_tensor(std::string_view name, formats::Format dtype,
                                std::vector<std::uint64_t> shape) {
  LODE_TRY(const std::uint64_t bytes, bytes_of(name, dtype, shape));
  if (bytes > kMaxTensorBytes) {
    return Error{.code = Code::kUnsupported,
                 .thing = fmt::format("tensor {}", name),
                 .wanted = fmt::format("at most {}", human_bytes(kMaxTensorBytes)),
                 .found = human_bytes(bytes)};
  }
  return NamedTensor{std::string(name), dtype, std::move(shape), std::vector<std::byte>(bytes)};
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::string extent = shape[axis] == kAnyExtent ? "any" : fmt::format("{}", shape[axis]);
    text += (axis == 0 ? "" : ", ") + extent;
  }
  return text + "]";
}

std::string describe(const NamedTensor& tensor) {
  return fmt::format("{} {}", formats::info(tensor.dtype).safetensors_name,
                     shape_text(tensor.shape));
}

}  // namespace lode::targets
