#include <string>
#include <string_view>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/targets/functions.h"
#include "lode/targets/target.h"
#include "tools/docs/markdown.h"
#include "tools/docs/tables.h"

namespace lode::docs {

std::string target_rows() {
  Markdown table({"target", "kernels"});
  for (const targets::TargetInfo& row : targets::target_table()) {
    table.add({code(row.name), std::string(row.meaning)});
  }
  return table.text();
}

std::string route_rows() {
  Markdown table({"target", "from", "weights", "block scales"});
  for (const targets::Route& row : targets::route_table()) {
    table.add({code(targets::name(row.target)), code(row.from), std::string(row.weights),
               std::string(row.scales)});
  }
  return table.text();
}

std::string transform_rows() {
  Markdown table({"transform", "what it does", "inputs", "params", "in place"});
  std::string_view before;  // one that upstream has by several names is one
  for (const targets::Function& row : targets::function_table()) {
    if (std::exchange(before, row.name) == row.name) continue;
    table.add({code(row.name), std::string(row.meaning), std::string(row.inputs),
               std::string(row.params), row.has_in_place ? "yes" : ""});
  }
  return table.text();
}

std::string upstream_rows() {
  Markdown table({"in a manifest", "transform"});
  for (const targets::Function& row : targets::function_table()) {
    table.add({code(row.upstream), code(row.name)});
  }
  return table.text();
}

}  // namespace lode::docs
