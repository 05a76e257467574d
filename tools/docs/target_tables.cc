#include <string>
#include <string_view>

#include "lode/base/fmt.h"
#include "lode/targets/functions.h"
#include "lode/targets/target.h"
#include "tools/docs/markdown.h"
#include "tools/docs/tables.h"

namespace lode::docs {

namespace {

std::string inputs_of(const targets::Function& function) {
  std::string text;
  for (const targets::InputRow& row : function.inputs) {
    text += fmt::format("{}{} {}{}", text.empty() ? "" : "; ",
                        row.name == targets::kAnyName ? "any:" : row.name, row.what,
                        row.needed ? "" : ", optional");
  }
  return text;
}

// What the tensors say by themselves stands behind the others, by its name alone.
std::string params_of(const targets::Function& function) {
  std::string text, facts;
  for (const targets::ParamRow& row : function.params) {
    if (row.use == targets::ParamUse::kFact) {
      facts += fmt::format("{}{}", facts.empty() ? "checked: " : ", ", row.name);
      continue;
    }
    const bool needed = row.use == targets::ParamUse::kNeeded;
    text += fmt::format("{}{}: {}{}", text.empty() ? "" : "; ", row.name, row.what,
                        needed ? "" : fmt::format(" ({})", row.fallback));
  }
  return text + (text.empty() || facts.empty() ? "" : "; ") + facts;
}

}  // namespace

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
  for (const targets::Function& row : targets::function_table()) {
    table.add({code(row.name), std::string(row.meaning), inputs_of(row), params_of(row),
               row.has_in_place ? "yes" : ""});
  }
  return table.text();
}

std::string upstream_rows() {
  Markdown table({"in a manifest", "transform"});
  for (const targets::Function& row : targets::function_table()) {
    for (const std::string_view upstream : row.upstream) {
      if (!upstream.empty()) table.add({code(upstream), code(row.name)});
    }
  }
  return table.text();
}

}  // namespace lode::docs
