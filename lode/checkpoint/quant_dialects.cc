#include "lode/checkpoint/quant_dialects.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {
namespace {

constexpr std::int64_t kMaxBlock = 1 << 20;

Error bad_block(const std::string& path, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = path,
          .wanted = "rows and columns of a block, each from 1 to 1048576",
          .found = std::move(found)};
}

// "128x128" as [128, 128].
json::Value block_of_text(const std::string& text) {
  json::Array sides;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    std::int64_t side = 0;
    const auto [stop, error] = std::from_chars(at, end, side);
    if (error != std::errc()) return json::Value();
    sides.emplace_back(side);
    at = stop < end && *stop == 'x' ? stop + 1 : end;
  }
  return sides;
}

// A pair of block sides: a list of two, or text like "128x128".
Status read_block(const JsonFields& fields, std::string_view name, QuantConfig& config) {
  const json::Value* member = fields.find(name);
  if (member == nullptr) return {};
  const std::string path = fields.path_of(name);
  json::Value from_text;
  if (const std::string* text = member->as_string()) {
    from_text = block_of_text(*text);
    member = &from_text;
  }
  const json::Array* const sides = member->as_array();
  if (sides == nullptr || sides->size() != 2) return bad_block(path, std::string(member->kind()));
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t* const side = (*sides)[i].as_int();
    if (side == nullptr || *side < 1 || *side > kMaxBlock) {
      return bad_block(path, printable(json::dump(*member)));
    }
    config.block[i] = static_cast<std::uint32_t>(*side);
  }
  config.block_stated = true;
  return {};
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// "Linear" and the like name a class, not a module.
bool is_class_name(std::string_view target) {
  return !target.empty() && std::isupper(static_cast<unsigned char>(target.front())) != 0 &&
         target.find('.') == target.npos;
}

// False where none of the targets can be used, and the rule is not to be.
bool read_targets(const std::vector<std::string>& targets, QuantRule& rule, QuantConfig& config) {
  if (std::ranges::any_of(targets, is_class_name)) return true;  // every linear
  rule.targets = ModuleSet(info(config.dialect).cover);
  for (const std::string& target : targets) {
    const Status added = rule.targets.add(target);
    if (!added) config.notes.push_back(to_string(added.error()));
  }
  return targets.empty() || !rule.targets.empty();
}

// The groups of compressed-tensors, and of ModelOpt, which writes fewer fields.
Status read_groups(const JsonFields& fields, QuantConfig& config) {
  LODE_TRY(const JsonFields groups, fields.object("config_groups"));
  if (groups.value == nullptr) return {};
  for (const auto& [name, ignored] : *groups.value->as_object()) {
    LODE_TRY(const JsonFields group, groups.object(name));
    LODE_TRY(const JsonFields weights, group.object("weights"));
    QuantRule rule;
    rule.name = printable(name);
    rule.algorithm = config.algorithm;
    LODE_TRY(const std::optional<std::string> format, group.text("format"));
    if (format) rule.algorithm = *format;
    LODE_TRY(rule.bits, weights.integer("num_bits"));
    LODE_TRY(rule.group_size, weights.integer("group_size"));
    LODE_TRY(const std::optional<std::string> strategy, weights.text("strategy"));
    rule.strategy = strategy.value_or("");
    LODE_TRY_STATUS(read_block(weights, "block_structure", config));
    LODE_TRY(const std::vector<std::string> targets, group.texts("targets"));
    if (read_targets(targets, rule, config)) config.rules.push_back(std::move(rule));
  }
  return {};
}

Status read_kv_scheme(const JsonFields& fields, QuantConfig& config) {
  LODE_TRY(const JsonFields scheme, fields.object("kv_cache_scheme"));
  if (scheme.value == nullptr) return {};
  LODE_TRY(const std::optional<std::int64_t> bits, scheme.integer("num_bits"));
  LODE_TRY(const std::optional<std::string> type, scheme.text("type"));
  config.kv_cache = fmt::format("{}{}", type.value_or("float"), bits.value_or(8));
  return {};
}

Status read_quantized_layers(const JsonFields& fields, QuantConfig& config) {
  LODE_TRY(const JsonFields layers, fields.object("quantized_layers"));
  if (layers.value == nullptr) return {};
  for (const auto& [module, ignored] : *layers.value->as_object()) {
    LODE_TRY(const JsonFields layer, layers.object(module));
    QuantRule rule;
    rule.name = module;
    LODE_TRY(const std::optional<std::string> algorithm, layer.text("quant_algo"));
    rule.algorithm = algorithm.value_or("");
    LODE_TRY(rule.group_size, layer.integer("group_size"));
    config.by_module.insert_or_assign(std::string(without_namespace(module)), std::move(rule));
  }
  return {};
}

Status read_modelopt(const JsonFields& fields, QuantConfig& config) {
  LODE_TRY(const std::optional<std::string> algorithm, fields.text("quant_algo"));
  config.algorithm = algorithm.value_or("");
  config.only_named = upper(config.algorithm) == "MIXED_PRECISION";
  LODE_TRY(const std::optional<std::string> kv_cache, fields.text("kv_cache_quant_algo"));
  LODE_TRY_STATUS(read_kv_scheme(fields, config));
  if (kv_cache) config.kv_cache = *kv_cache;
  LODE_TRY_STATUS(read_groups(fields, config));
  LODE_TRY_STATUS(read_quantized_layers(fields, config));
  LODE_TRY(const std::optional<std::int64_t> group_size, fields.integer("group_size"));
  if (config.rules.empty() && config.by_module.empty() && algorithm) {
    QuantRule rule;
    rule.name = "all";
    rule.algorithm = *algorithm;
    rule.group_size = group_size;
    config.rules.push_back(std::move(rule));
  }
  return {};
}

Status read_compressed_tensors(const JsonFields& fields, QuantConfig& config) {
  LODE_TRY(const std::optional<std::string> format, fields.text("format"));
  config.algorithm = format.value_or("");
  LODE_TRY_STATUS(read_kv_scheme(fields, config));
  return read_groups(fields, config);
}

Status read_fp8(const JsonFields& fields, QuantConfig& config) {
  LODE_TRY(const std::optional<std::string> fmt_name, fields.text("fmt"));
  config.algorithm = fmt_name.value_or("e4m3");
  return read_block(fields, "weight_block_size", config);
}

// One weight entry of quark: {"weight": {"dtype": "fp4", "group_size": 32, ...}}.
Result<QuantRule> read_quark_rule(const JsonFields& fields) {
  LODE_TRY(const JsonFields weight, fields.object("weight"));
  QuantRule rule;
  LODE_TRY(const std::optional<std::string> dtype, weight.text("dtype"));
  rule.algorithm = dtype.value_or("");
  LODE_TRY(rule.group_size, weight.integer("group_size"));
  LODE_TRY(const std::optional<std::string> scheme, weight.text("qscheme"));
  rule.strategy = scheme.value_or("");
  return rule;
}

Status read_quark(const JsonFields& fields, QuantConfig& config) {
  LODE_TRY(const JsonFields layers, fields.object("layer_quant_config"));
  if (layers.value != nullptr) {
    for (const auto& [pattern, ignored] : *layers.value->as_object()) {
      LODE_TRY(const JsonFields layer, layers.object(pattern));
      LODE_TRY(QuantRule rule, read_quark_rule(layer));
      rule.name = printable(pattern);
      if (read_targets({pattern}, rule, config)) config.rules.push_back(std::move(rule));
    }
  }
  LODE_TRY(const JsonFields everything, fields.object("global_quant_config"));
  if (everything.value == nullptr) return {};
  LODE_TRY(QuantRule rule, read_quark_rule(everything));
  rule.name = "global";
  config.algorithm = rule.algorithm;
  config.rules.push_back(std::move(rule));
  return {};
}

}  // namespace

Status read_dialect(const JsonFields& fields, QuantConfig& config) {
  switch (config.dialect) {
    case Dialect::kModelOpt:
      return read_modelopt(fields, config);
    case Dialect::kCompressedTensors:
      return read_compressed_tensors(fields, config);
    case Dialect::kFp8:
      return read_fp8(fields, config);
    case Dialect::kQuark:
      return read_quark(fields, config);
    case Dialect::kMxfp4:
    case Dialect::kFbgemmFp8:
      config.algorithm = info(config.dialect).quant_method;
      return {};
    case Dialect::kNone:
      return {};
  }
  return {};
}

}  // namespace lode::checkpoint
