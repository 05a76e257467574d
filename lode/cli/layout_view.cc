#include "lode/cli/layout_view.h"

#include <algorithm>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/json/json.h"
#include "lode/targets/functions.h"

namespace lode::cli {
namespace {

using engine::CaseState;
using engine::CaseVerdict;
using targets::Function;

bool asked_for(const Function& function, std::string_view name) {
  return name.empty() || targets::function_by_name(name) == &function;
}

std::string ways_of(const CaseVerdict& verdict) {
  std::string ways;
  for (const targets::Way way : verdict.ways)
    ways += fmt::format("{}{}", ways.empty() ? "" : ", ", targets::name(way));
  return ways;
}

std::string line_of(const engine::LayoutDifference& difference) {
  return fmt::format("{}, {}: at byte {} want {}, found {}", difference.tensor,
                     targets::name(difference.way), difference.offset, difference.wanted,
                     difference.found);
}

std::string remark_of(const CaseVerdict& verdict) {
  std::string remark = verdict.informative ? "; informative, not counted" : "";
  if (!verdict.unknown.empty() && verdict.state == CaseState::kEqual)
    remark += fmt::format("; not looked at: {}", fmt::join(verdict.unknown, ", "));
  if (verdict.defect_in.empty()) return remark;
  return remark + fmt::format("; upstream's own {} differ, a known defect",
                              fmt::join(verdict.defect_in, ", "));
}

std::string detail_of(const CaseVerdict& verdict) {
  switch (verdict.state) {
    case CaseState::kEqual:
      return fmt::format("({}{})", ways_of(verdict), remark_of(verdict));
    case CaseState::kDiffers:
      return line_of(*verdict.difference) + remark_of(verdict);
    case CaseState::kFault:
      return to_string(*verdict.fault);
    case CaseState::kNotCovered:
      return (verdict.unknown.empty() ? "no transform of ours computes it"
                                      : fmt::format("{} knows no {}", verdict.function,
                                                    fmt::join(verdict.unknown, ", no "))) +
             remark_of(verdict);
  }
  return "";
}

json::Value difference_json(const CaseVerdict& verdict) {
  if (!verdict.difference) return {};
  return json::object({{"tensor", verdict.difference->tensor},
                       {"way", targets::name(verdict.difference->way)},
                       {"offset", verdict.difference->offset},
                       {"wanted", verdict.difference->wanted},
                       {"found", verdict.difference->found}});
}

json::Value case_json(const CaseVerdict& verdict) {
  json::Array ways;
  for (const targets::Way way : verdict.ways) ways.emplace_back(targets::name(way));
  json::Array defects;
  for (const std::string& name : verdict.defect_in) defects.emplace_back(name);
  json::Array unknown(verdict.unknown.begin(), verdict.unknown.end());
  return json::object(
      {{"name", verdict.name},
       {"verdict", engine::name(verdict.state)},
       {"transform", verdict.function.empty() ? json::Value() : json::Value(verdict.function)},
       {"ways", std::move(ways)},
       {"informative", verdict.informative},
       {"upstream_defect_in", std::move(defects)},
       {"unknown", std::move(unknown)},
       {"difference", difference_json(verdict)},
       {"fault", verdict.fault ? json::Value(to_string(*verdict.fault)) : json::Value()}});
}

std::string need_of(const targets::ParamRow& row) {
  if (row.use == targets::ParamUse::kNeeded) return "must be given";
  if (row.use == targets::ParamUse::kFact) return "the tensors say it: refused if not so";
  return fmt::format("else {}", row.fallback);
}

std::string function_text(const Function& function) {
  std::string text = fmt::format("{}\n    {}\n", function.name, function.meaning);
  std::string_view label = "inputs";
  const auto add = [&](std::string_view name, std::string_view what, std::string_view need) {
    text +=
        fmt::format("    {:<9} {:<24} {}{}{}\n", label, name, what, need.empty() ? "" : "; ", need);
    label = "";
  };
  for (const targets::InputRow& row : function.inputs) {
    add(row.name == targets::kAnyName ? "any name" : row.name, row.what,
        row.needed ? "" : "may be missing");
  }
  label = "params";
  if (function.params.empty()) text += "    params    none\n";
  for (const targets::ParamRow& row : function.params) add(row.name, row.what, need_of(row));
  text += fmt::format("    in place  {}\n",
                      function.has_in_place ? "a way of its own" : "as out of place");
  for (const std::string_view upstream : function.upstream) {
    if (!upstream.empty()) text += fmt::format("    upstream  {}\n", upstream);
  }
  return text;
}

json::Array inputs_json(const Function& function) {
  json::Array rows;
  for (const targets::InputRow& row : function.inputs) {
    rows.push_back(
        json::object({{"name", row.name}, {"meaning", row.what}, {"needed", row.needed}}));
  }
  return rows;
}

json::Array params_json(const Function& function) {
  json::Array rows;
  for (const targets::ParamRow& row : function.params) {
    const bool optional = row.use == targets::ParamUse::kOptional;
    rows.push_back(json::object({{"name", row.name},
                                 {"meaning", row.what},
                                 {"needed", row.use == targets::ParamUse::kNeeded},
                                 {"fact", row.use == targets::ParamUse::kFact},
                                 {"default", optional ? json::Value(row.fallback) : nullptr}}));
  }
  return rows;
}

json::Array upstream_json(const Function& function) {
  json::Array names;
  for (const std::string_view upstream : function.upstream) {
    if (!upstream.empty()) names.emplace_back(upstream);
  }
  return names;
}

json::Array strings(const std::vector<std::string>& lines) { return {lines.begin(), lines.end()}; }

}  // namespace

std::string functions_text(std::string_view name) {
  std::string text;
  for (const Function& function : targets::function_table()) {
    if (!asked_for(function, name)) continue;
    text += function_text(function);
  }
  return text;
}

std::string functions_json(std::string_view name) {
  json::Array rows;
  for (const Function& function : targets::function_table()) {
    if (!asked_for(function, name)) continue;
    rows.push_back(json::object({{"name", function.name},
                                 {"meaning", function.meaning},
                                 {"inputs", inputs_json(function)},
                                 {"params", params_json(function)},
                                 {"in_place", function.has_in_place},
                                 {"upstream", upstream_json(function)}}));
  }
  return json::dump(json::Value(std::move(rows)), 2) + "\n";
}

std::string applied_text(const engine::Applied& applied) {
  std::string text;
  for (const std::string& line : applied.inputs) text += fmt::format("in   {}\n", line);
  for (const std::string& line : applied.outputs) text += fmt::format("out  {}\n", line);
  for (const std::string& line : applied.left_aside) text += fmt::format("left aside  {}\n", line);
  return text +
         fmt::format("{} to {}\n", human_bytes(applied.bytes_in), human_bytes(applied.bytes_out));
}

std::string applied_json(const engine::Applied& applied) {
  return json::dump(json::object({{"inputs", strings(applied.inputs)},
                                  {"outputs", strings(applied.outputs)},
                                  {"left_aside", strings(applied.left_aside)},
                                  {"bytes_in", applied.bytes_in},
                                  {"bytes_out", applied.bytes_out}})) +
         "\n";
}

std::string verdict_text(const engine::LayoutVerdict& verdict) {
  std::size_t width = 0;
  for (const CaseVerdict& one : verdict.cases) width = std::max(width, one.name.size());
  std::string text;
  for (const CaseVerdict& one : verdict.cases) {
    text += fmt::format("{:<11}  {:<{}}  {}\n", engine::name(one.state), one.name, width,
                        detail_of(one));
  }
  return text + fmt::format("{}: {} equal, {} differ, {} not covered, {} with a fault\n",
                            count_of(verdict.cases.size(), "case"),
                            verdict.count(CaseState::kEqual), verdict.count(CaseState::kDiffers),
                            verdict.count(CaseState::kNotCovered),
                            verdict.count(CaseState::kFault));
}

std::string verdict_json(const engine::LayoutVerdict& verdict) {
  json::Array cases;
  for (const CaseVerdict& one : verdict.cases) cases.push_back(case_json(one));
  return json::dump(json::object({{"passed", verdict.failures() == 0},
                                  {"equal", verdict.count(CaseState::kEqual)},
                                  {"differs", verdict.count(CaseState::kDiffers)},
                                  {"not_covered", verdict.count(CaseState::kNotCovered)},
                                  {"faults", verdict.count(CaseState::kFault)},
                                  {"cases", std::move(cases)}}),
                    2) +
         "\n";
}

}  // namespace lode::cli
