#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/cli/layout_view.h"
#include "lode/cli/loaded_model.h"
#include "lode/cli/program.h"
#include "lode/engine/layout_apply.h"
#include "lode/engine/layout_check.h"
#include "lode/json/json.h"

namespace lode::cli {
namespace {

struct ListOptions {
  std::string name;
  bool json = false;
};

struct ApplyOptions {
  std::string name;
  std::string in;
  std::string out;
  std::vector<std::string> settings;  // key=value
  std::vector<std::string> tensors;   // name=tensor of the file
  std::string way = "out-of-place";
  bool json = false;
};

struct CheckOptions {
  std::string manifest;
  std::string out;
  bool json = false;
};

// "size_k=64" to its two sides.
Result<std::pair<std::string, std::string>> sides(std::string_view flag, const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign != text.npos && sign != 0) return std::pair(text.substr(0, sign), text.substr(sign + 1));
  return Error{
      .code = Code::kUsage, .thing = std::string(flag), .wanted = "key=value", .found = text};
}

// The values are JSON; what is no JSON is a word.
Result<json::Object> params_of(const std::vector<std::string>& settings) {
  json::Object params;
  for (const std::string& setting : settings) {
    LODE_TRY(auto pair, sides("--set", setting));
    auto& [key, text] = pair;
    if (std::ranges::find(params, key, &json::Member::first) != params.end()) {
      return Error{
          .code = Code::kUsage, .thing = "--set " + key, .wanted = "one value", .found = "two"};
    }
    auto value = json::parse(text);
    params.emplace_back(std::move(key), value ? *std::move(value) : json::Value(std::move(text)));
  }
  return params;
}

Result<std::vector<engine::TensorChoice>> choices_of(const std::vector<std::string>& tensors) {
  std::vector<engine::TensorChoice> chosen;
  for (const std::string& tensor : tensors) {
    LODE_TRY(auto pair, sides("--tensor", tensor));
    chosen.push_back({std::move(pair.first), std::move(pair.second)});
  }
  return chosen;
}

targets::Way way_of(std::string_view word) {
  if (word == "in-place") return targets::Way::kInPlace;
  return word == "streamed" ? targets::Way::kStreamed : targets::Way::kOutOfPlace;
}

Status apply(const ApplyOptions& options) {
  engine::LayoutApply apply{.function = options.name,
                            .in = options.in,
                            .out = options.out,
                            .params = {},
                            .chosen = {},
                            .way = way_of(options.way)};
  LODE_TRY(apply.params, params_of(options.settings));
  LODE_TRY(apply.chosen, choices_of(options.tensors));
  LODE_TRY(const engine::Applied applied, engine::apply_layout(apply));
  fmt::print("{}", options.json ? applied_json(applied) : applied_text(applied));
  return {};
}

Error failed(const CheckOptions& options, const engine::LayoutVerdict& verdict) {
  return {
      .code = Code::kCheckFailed,
      .thing = options.manifest,
      .wanted = "every case equal",
      .found = fmt::format("{} of {}", verdict.failures(), count_of(verdict.cases.size(), "case"))};
}

Status check(const CheckOptions& options) {
  stop_on_interrupt();
  LODE_TRY(const engine::LayoutVerdict verdict,
           engine::check_layouts({.manifest = options.manifest, .out = options.out, .go_on = [] {
                                    return !interrupted();
                                  }}));
  fmt::print("{}", options.json ? verdict_json(verdict) : verdict_text(verdict));
  if (verdict.failures() > 0) return failed(options, verdict);
  return {};
}

Status list(const ListOptions& options) {
  if (!options.name.empty()) {
    const auto known = targets::want_function(options.name);
    if (!known) return known.error();
  }
  fmt::print("{}", options.json ? functions_json(options.name) : functions_text(options.name));
  return {};
}

void add_list(Program& program, CLI::App* layout) {
  CLI::App* const command = add_below(
      layout, "list", "The transforms: what each does, which tensors and params it takes",
      "  lode layout list\n  lode layout list marlin-repack\n  lode layout list --json\n");
  const auto options = std::make_shared<ListOptions>();
  command->add_option("NAME", options->name, "One of them");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([&program, options] { program.chosen = [options] { return list(*options); }; });
}

void add_apply(Program& program, CLI::App* layout) {
  CLI::App* const command = add_below(
      layout, "apply",
      "Apply one transform to tensors of a file. Inputs go by their names; where a file has names "
      "that begin with in., as golden files do, those are the inputs and the outputs begin with "
      "out.",
      "  lode layout apply marlin-repack --in g.safetensors --out m.safetensors \\\n"
      "      --set num_bits=4 --set is_a_8bit=false --set size_k=128 --set size_n=64\n"
      "  lode layout apply half-swap --in model.safetensors --out x.safetensors \\\n"
      "      --tensor w13=model.layers.0.mlp.experts.w13_weight\n");
  const auto options = std::make_shared<ApplyOptions>();
  command->add_option("NAME", options->name, "Transform; see `lode layout list`")->required();
  command->add_option("--in", options->in, "Safetensors file to read")->required();
  command->add_option("--out", options->out, "Safetensors file to write, whole or not at all")
      ->required();
  command->add_option("--set", options->settings, "A param: key=value, the value JSON or a word");
  command->add_option("--tensor", options->tensors,
                      "An input: its name for the transform, =, its name in the file. Without any: "
                      "those of the file that the transform has a name for");
  command->add_option("--way", options->way, "How the bytes are made; they are the same")
      ->check(CLI::IsMember({"out-of-place", "in-place", "streamed"}))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->callback(
      [&program, options] { program.chosen = [options] { return apply(*options); }; });
}

void add_check(Program& program, CLI::App* layout) {
  CLI::App* const command = add_below(
      layout, "check",
      "Run every case of a manifest of golden files through our transform of the same meaning, out "
      "of place, in place and streamed, and compare bytes. Exit status 12 where any differs",
      "  lode layout check tests/golden/weight_layouts/manifest.json\n"
      "  lode layout check manifest.json --out computed --json\n");
  const auto options = std::make_shared<CheckOptions>();
  command->add_option("MANIFEST", options->manifest, "Its files lie beside it")->required();
  command->add_option("--out", options->out, "Folder for what was computed, a file a case");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback(
      [&program, options] { program.chosen = [options] { return check(*options); }; });
}

}  // namespace

void add_layout(Program& program) {
  CLI::App* const command = add_command(
      program, "layout",
      "Transforms of weights that GPU engines do after loading, by name: list them, apply one to a "
      "file, check all against golden files",
      "  lode layout list\n  lode layout check tests/golden/weight_layouts/manifest.json\n");
  command->require_subcommand(1);
  add_list(program, command);
  add_apply(program, command);
  add_check(program, command);
}

}  // namespace lode::cli
