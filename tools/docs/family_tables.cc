#include <algorithm>

#include "lode/families/family.h"
#include "tools/docs/markdown.h"
#include "tools/docs/tables.h"

namespace lode::docs {
namespace {

using families::Family;
using families::Role;

std::string_view scope_word(families::Scope scope) {
  switch (scope) {
    case families::Scope::kModel:
      return "model";
    case families::Scope::kLayer:
      return "layer";
    case families::Scope::kExpert:
      return "expert";
  }
  return "";
}

std::string_view part_word(families::Part part) {
  switch (part) {
    case families::Part::kMatrix:
      return "matrix";
    case families::Part::kNormWeight:
      return "norm";
    case families::Part::kBias:
      return "bias";
    case families::Part::kBare:
      return "vector";
  }
  return "";
}

std::string module_of(const Family& family, Role role) {
  const auto found = std::ranges::find(family.modules, role, &families::ModulePattern::role);
  return found == family.modules.end() ? std::string() : code(found->module);
}

}  // namespace

std::string family_rows() {
  Markdown table({"`model_type`", "`architectures`", "stacked gate and up", "plain stacks are",
                  "rows of gate and up"});
  for (const Family* family : families::all_families()) {
    table.add({code(family->model_type), code(family->architecture), code(family->stacked.gate_up),
               family->stacked.transposed ? "[E, in, out]" : "[E, out, in]",
               family->stacked.interleaved ? "alternate" : "gate, then up"});
  }
  return table.text();
}

std::string role_rows() {
  std::vector<std::string> header = {"role", "once a", "is a"};
  for (const Family* family : families::all_families()) {
    header.push_back("in " + code(family->model_type));
  }
  Markdown table(header);
  for (std::size_t row = 0; row < families::kNumRoles; ++row) {
    const families::RoleInfo& role = families::info(static_cast<Role>(row));
    std::vector<std::string> cells = {code(role.name), std::string(scope_word(role.scope)),
                                      std::string(part_word(role.part))};
    for (const Family* family : families::all_families()) {
      cells.push_back(module_of(*family, role.role));
    }
    table.add(cells);
  }
  return table.text();
}

}  // namespace lode::docs
