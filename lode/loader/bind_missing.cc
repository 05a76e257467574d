#include "lode/loader/bind_missing.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "lode/checkpoint/nearest_name.h"

namespace lode::loader {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The name as the patterns of a family spell it: "layers.{layer}.mlp.experts.{expert}.up_proj.…".
std::string with_marks(const BindContext& context, std::string_view name) {
  if (name.substr(0, context.prefix.size()) == context.prefix) {
    name.remove_prefix(context.prefix.size());
  }
  constexpr std::array<std::string_view, 2> kMarks{"{layer}", "{expert}"};
  std::string text;
  std::size_t numbers = 0;
  for (std::size_t at = 0; at < name.size(); ++at) {
    const bool starts_number = is_digit(name[at]) && (at == 0 || name[at - 1] == '.');
    if (!starts_number || numbers == kMarks.size()) {
      text += name[at];
      continue;
    }
    text += kMarks[numbers++];
    while (at + 1 < name.size() && is_digit(name[at + 1])) ++at;
  }
  return text;
}

bool belongs_to(std::string_view name, std::string_view module) {
  if (name.substr(0, module.size()) != module) return false;
  return name.size() == module.size() || name[module.size()] == '.' || name[module.size()] == '_';
}

// Whether the tensor's name is a right one, so that it is no misspelling of another.
bool has_own_role(const BindContext& context, std::string_view tensor) {
  const std::string name = with_marks(context, tensor);
  const auto fits = [&](const families::ModulePattern& pattern) {
    return belongs_to(name, pattern.module);
  };
  const auto& family = context.family;
  const std::string layer = "layers.{layer}.";
  return std::any_of(family.modules.begin(), family.modules.end(), fits) ||
         belongs_to(name, layer + std::string(family.stacked.gate_up)) ||
         belongs_to(name, layer + std::string(family.stacked.down));
}

// The beginning of the name up to its last number, "model.layers.3.mlp.experts.7."; "" without one.
std::string_view kin_of(std::string_view name) {
  while (!name.empty()) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || dot == 0) return {};
    if (is_digit(name[dot - 1])) return name.substr(0, dot + 1);
    name = name.substr(0, dot);
  }
  return {};
}

std::string nearest_among(const BindContext& context, std::string_view kin, std::string_view name) {
  std::string best;
  std::size_t limit = name.size() / 4;
  for (const checkpoint::TensorRecord& tensor : context.index.with_prefix(kin)) {
    if (has_own_role(context, tensor.name)) continue;
    const auto distance = checkpoint::edit_distance(name, tensor.name, limit);
    if (!distance) continue;
    best = tensor.name;
    if (*distance == 0) break;
    limit = *distance - 1;
  }
  return best;
}

std::string nearest_to(const BindContext& context, std::string_view name) {
  std::string_view kin = kin_of(name);
  while (!kin.empty()) {
    std::string nearest = nearest_among(context, kin, name);
    if (!nearest.empty()) return nearest;
    kin.remove_suffix(1);
    kin = kin_of(kin.substr(0, kin.rfind('.')));
  }
  return context.index.nearest_name(name);
}

}  // namespace

Error missing(const BindContext& context, const std::string& name, std::string wanted) {
  const std::string nearest = nearest_to(context, name);
  return Error{.code = Code::kInvalidSource,
               .thing = "tensor " + name,
               .wanted = std::move(wanted),
               .found = "none of this name",
               .hint = nearest.empty() ? "" : "nearest is " + checkpoint::printable(nearest)};
}

}  // namespace lode::loader
