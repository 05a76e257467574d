#include "lode/targets/functions.h"

#include <algorithm>
#include <array>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/nearest_name.h"
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

template <class Row>
std::vector<std::string_view> names_of(std::span<const Row> rows) {
  std::vector<std::string_view> names;
  for (const Row& row : rows) names.push_back(row.name);
  return names;
}

std::string list_hint(const Function& function) {
  return fmt::format("`lode layout list {}` says what each is", function.name);
}

// What was most likely meant; empty where nothing is near.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known) {
  std::string_view nearest;
  std::size_t least = std::min(name.size(), std::max<std::size_t>(name.size() / 3, 2) + 1);
  for (const std::string_view one : known) {
    const auto letters = checkpoint::edit_distance(name, one, least);
    if (!letters || *letters >= least) continue;
    least = *letters;
    nearest = one;
  }
  return nearest;
}

std::string wanted_of(std::span<const std::string_view> known) {
  constexpr std::size_t kMost = 16;  // of all transforms there is a command that lists them
  if (known.empty()) return "none: it takes none";
  if (known.size() > kMost) return fmt::format("one of {}", known.size());
  return fmt::format("one of {}", fmt::join(known, ", "));
}

Error unknown(std::string_view what, std::string_view name, std::span<const std::string_view> known,
              std::string hint) {
  const std::string_view nearest = nearest_name(name, known);
  if (!nearest.empty()) hint = fmt::format("did you mean {}? {}", nearest, hint);
  return Error{.code = Code::kUsage,
               .thing = fmt::format("{} {}", what, name),
               .wanted = wanted_of(known),
               .found = "no such name",
               .hint = std::move(hint)};
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
  if (name.empty()) return nullptr;
  for (const Function& function : function_table()) {
    const bool upstream = std::ranges::find(function.upstream, name) != function.upstream.end();
    if (function.name == name || upstream) return &function;
  }
  return nullptr;
}

Result<const Function*> want_function(std::string_view name) {
  if (const Function* const function = function_by_name(name)) return function;
  std::vector<std::string_view> known;
  for (const Function& function : function_table()) known.push_back(function.name);
  return unknown("transform", name, known, "`lode layout list` says what each takes");
}

bool takes_input(const Function& function, std::string_view name) noexcept {
  return std::ranges::any_of(function.inputs, [name](const InputRow& row) {
    return row.name == kAnyName || row.name == name;
  });
}

bool takes_param(const Function& function, std::string_view name) noexcept {
  return std::ranges::find(function.params, name, &ParamRow::name) != function.params.end();
}

Status check_params(const Function& function, const json::Object& params) {
  for (const json::Member& param : params) {
    if (takes_param(function, param.first)) continue;
    return unknown(fmt::format("a param of {}:", function.name), param.first,
                   names_of(function.params), list_hint(function));
  }
  return {};
}

Status check_inputs(const Function& function, std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (takes_input(function, name)) continue;
    return unknown(fmt::format("a tensor for {}:", function.name), name, names_of(function.inputs),
                   list_hint(function));
  }
  return {};
}

}  // namespace lode::targets
