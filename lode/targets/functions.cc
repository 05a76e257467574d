#include "lode/targets/functions.h"

#include <algorithm>
#include <array>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/targets/function_lists.h"

namespace lode::targets {
namespace {

std::vector<Function> all_functions() {
  std::vector<Function> all;
  for (const auto& list : kFunctionLists) {
    const std::span<const Function> functions = list();
    all.insert(all.end(), functions.begin(), functions.end());
  }
  return all;
}

}  // namespace

std::string_view name(Way way) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"out of place", "in place", "streamed"};
  return kNames[static_cast<std::size_t>(way)];
}

const NamedTensor* find(std::span<const NamedTensor> tensors, std::string_view name) noexcept {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

Result<const NamedTensor*> want(std::span<const NamedTensor> tensors, std::string_view name) {
  if (const NamedTensor* const tensor = find(tensors, name)) return tensor;
  std::string names;
  for (const NamedTensor& tensor : tensors)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", tensor.name);
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("tensor {}", name),
               .wanted = "a tensor of that name",
               .found = names.empty() ? "no tensors" : "only " + names};
}

std::span<const Function> function_table() noexcept {
  static const std::vector<Function> functions = all_functions();
  return functions;
}

const Function* function_by_name(std::string_view name) noexcept {
  for (const Function& function : function_table()) {
    if (function.name == name || function.upstream == name) return &function;
  }
  return nullptr;
}

}  // namespace lode::targets
