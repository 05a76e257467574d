#include "lode/checkpoint/quant_config.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"
#include "lode/checkpoint/quant_dialects.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{16} * 1024 * 1024;
constexpr std::string_view kBesideName = "hf_quant_config.json";

constexpr std::array kDialects = {
    DialectInfo{Dialect::kNone, "", "", Cover::kExact},
    DialectInfo{Dialect::kMxfp4, "mxfp4", "modules_to_not_convert", Cover::kAnywhere},
    DialectInfo{Dialect::kModelOpt, "modelopt", "ignore,exclude_modules", Cover::kChildren},
    DialectInfo{Dialect::kCompressedTensors, "compressed-tensors", "ignore", Cover::kExact},
    DialectInfo{Dialect::kFp8, "fp8", "modules_to_not_convert,ignored_layers,ignore",
                Cover::kAnywhere},
    DialectInfo{Dialect::kFbgemmFp8, "fbgemm_fp8", "modules_to_not_convert", Cover::kAnywhere},
    DialectInfo{Dialect::kQuark, "quark", "exclude", Cover::kChildren},
};

// The dialect by its name, or, for files that do not state it, by what only one dialect writes.
Result<Dialect> dialect_of(const JsonFields& fields) {
  LODE_TRY(const std::optional<std::string> method, fields.text("quant_method"));
  if (method) {
    for (const DialectInfo& row : kDialects) {
      if (!row.quant_method.empty() && row.quant_method == *method) return row.dialect;
    }
    if (method->starts_with("modelopt")) return Dialect::kModelOpt;
    return Error{.code = Code::kUnsupported,
                 .thing = fields.path_of("quant_method"),
                 .wanted = "mxfp4, modelopt, compressed-tensors, fp8, fbgemm_fp8 or quark",
                 .found = printable(*method)};
  }
  LODE_TRY(const JsonFields producer, fields.object("producer"));
  LODE_TRY(const std::optional<std::string> name, producer.text("name"));
  if (name == "modelopt" || fields.find("quant_algo") != nullptr) return Dialect::kModelOpt;
  if (fields.find("format") != nullptr && fields.find("config_groups") != nullptr) {
    return Dialect::kCompressedTensors;
  }
  return Error{.code = Code::kUnsupported,
               .thing = fields.path,
               .wanted = "a quant_method that lode knows",
               .found = "none"};
}

Status read_excluded(const JsonFields& fields, QuantConfig& config) {
  const DialectInfo& row = info(config.dialect);
  std::string_view keys = row.exclude_keys;
  while (!keys.empty()) {
    const auto comma = keys.find(',');
    LODE_TRY(const std::vector<std::string> entries, fields.texts(keys.substr(0, comma)));
    for (const std::string& entry : entries) {
      const Status added = config.excluded.add(entry);
      if (!added) config.notes.push_back(to_string(added.error()));
    }
    keys = comma == keys.npos ? std::string_view() : keys.substr(comma + 1);
  }
  return {};
}

Result<QuantConfig> parse_one(const JsonFields& fields, Dialect dialect) {
  QuantConfig config;
  config.dialect = dialect;
  config.excluded = ModuleSet(info(dialect).cover);
  LODE_TRY_STATUS(read_excluded(fields, config));
  LODE_TRY_STATUS(read_dialect(fields, config));
  return config;
}

// What config.json leaves open is taken from the file beside it.
void fill(QuantConfig& config, QuantConfig beside) {
  if (config.algorithm.empty()) config.algorithm = std::move(beside.algorithm);
  config.only_named = config.only_named || beside.only_named;
  if (config.kv_cache.empty()) config.kv_cache = std::move(beside.kv_cache);
  if (config.excluded.empty()) config.excluded = std::move(beside.excluded);
  if (config.rules.empty()) config.rules = std::move(beside.rules);
  if (config.by_module.empty()) config.by_module = std::move(beside.by_module);
  for (QuantRule& rule : config.rules) {
    if (!rule.group_size && !beside.rules.empty()) rule.group_size = beside.rules[0].group_size;
  }
  std::ranges::move(beside.notes, std::back_inserter(config.notes));
}

}  // namespace

std::span<const DialectInfo> dialect_table() noexcept { return kDialects; }

const DialectInfo& info(Dialect dialect) noexcept {
  return kDialects[static_cast<std::size_t>(dialect)];
}

bool QuantConfig::is_excluded(std::string_view module) const {
  if (only_named) return rule_of(module) == nullptr;
  return excluded.matches(module);
}

const QuantRule* QuantConfig::rule_of(std::string_view module) const {
  std::string_view name = without_namespace(module);
  while (!by_module.empty()) {
    if (const auto found = by_module.find(name); found != by_module.end()) return &found->second;
    const auto dot = name.rfind('.');
    if (dot == name.npos) return nullptr;
    name = name.substr(0, dot);
  }
  for (const QuantRule& rule : rules) {
    if (rule.targets.empty() || rule.targets.matches(module)) return &rule;
  }
  return nullptr;
}

Result<QuantConfig> parse_quant_config(const json::Value* in_config, const json::Value* beside) {
  LODE_TRY(const JsonFields inner, fields_of(in_config, "quantization_config"));
  LODE_TRY(const JsonFields outer, fields_of(beside, std::string(kBesideName)));
  QuantConfig config;
  if (inner.value != nullptr) {
    LODE_TRY(const Dialect dialect, dialect_of(inner));
    LODE_TRY(config, parse_one(inner, dialect));
  }
  if (outer.value == nullptr) return config;
  LODE_TRY(const Dialect dialect, dialect_of(outer));
  if (dialect != Dialect::kModelOpt ||
      (config.dialect != Dialect::kNone && config.dialect != dialect)) {
    config.notes.push_back("hf_quant_config.json speaks of another tool than config.json");
    return config;
  }
  LODE_TRY(const JsonFields quantization, outer.object("quantization"));
  LODE_TRY(QuantConfig second, parse_one(quantization, dialect));
  if (config.dialect == Dialect::kNone) return second;
  fill(config, std::move(second));
  return config;
}

Result<QuantConfig> read_quant_config(const std::filesystem::path& folder, const HfConfig& config) {
  const std::filesystem::path path = folder / kBesideName;
  LODE_TRY(const std::optional<std::string> text, read_small_file(path, kMaxBytes));
  json::Value beside;
  if (text) {
    Result<json::Value> parsed = json::parse(*text);
    if (!parsed) return at(printable(path.string()), std::move(parsed).error());
    beside = *std::move(parsed);
  }
  return parse_quant_config(config.find({"quantization_config", "compression_config"}), &beside);
}

}  // namespace lode::checkpoint
