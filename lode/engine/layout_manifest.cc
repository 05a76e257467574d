#include "lode/engine/layout_manifest.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"
#include "lode/checkpoint/json_fields.h"
#include "lode/checkpoint/safetensors.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::engine {
namespace {

using checkpoint::JsonFields;

constexpr std::uint64_t kMaxManifestBytes = 64 * kMiB;
constexpr std::size_t kMaxCases = 100'000;
constexpr std::int64_t kFormat = 1;

Error bad(std::string thing, std::string_view wanted, std::string_view found) {
  return Error{.code = Code::kInvalidSource,
               .thing = std::move(thing),
               .wanted = std::string(wanted),
               .found = checkpoint::printable(found)};
}

Result<std::string> needed_text(const JsonFields& fields, std::string_view name) {
  LODE_TRY(std::optional<std::string> text, fields.text(name));
  if (text) return *std::move(text);
  return bad(fields.path_of(name), "a string", "nothing");
}

// A name that becomes the name of a file.
Result<std::string> needed_file_name(const JsonFields& fields, std::string_view name) {
  LODE_TRY(std::string text, needed_text(fields, name));
  if (checkpoint::is_plain_basename(text)) return text;
  return bad(fields.path_of(name), "the name of a file in the manifest's folder", text);
}

Result<std::optional<formats::Format>> dtype_of(const JsonFields& fields) {
  LODE_TRY(const std::optional<std::string> text, fields.text("dtype"));
  if (!text) return std::optional<formats::Format>();
  const auto format = formats::format_by_safetensors_name(*text);
  if (!format) return bad(fields.path_of("dtype"), "a dtype of safetensors", *text);
  return format;
}

Result<std::optional<std::vector<std::uint64_t>>> shape_of(const JsonFields& fields) {
  const json::Value* const value = fields.find("shape");
  if (value == nullptr || value->is_null()) return std::optional<std::vector<std::uint64_t>>();
  const json::Array* const extents = value->as_array();
  if (extents == nullptr || extents->size() > checkpoint::kMaxRank)
    return bad(fields.path_of("shape"), "a list of extents", value->kind());
  std::vector<std::uint64_t> shape;
  for (const json::Value& extent : *extents) {
    if (extent.as_int() == nullptr || *extent.as_int() < 0)
      return bad(fields.path_of("shape"), "whole numbers", json::dump(extent));
    shape.push_back(static_cast<std::uint64_t>(*extent.as_int()));
  }
  return std::optional(std::move(shape));
}

// The tensors below "inputs" or "outputs"; where it is not said, stored under the prefix.
Result<std::vector<CaseTensor>> tensors_of(const JsonFields& fields, std::string_view member,
                                           std::string_view prefix) {
  std::vector<CaseTensor> tensors;
  LODE_TRY(const JsonFields list, fields.object(member));
  if (list.value == nullptr) return bad(fields.path_of(member), "tensors by name", "nothing");
  for (const json::Member& entry : *list.value->as_object()) {
    LODE_TRY(const JsonFields about, list.object(entry.first));
    CaseTensor tensor;
    tensor.name = entry.first;
    LODE_TRY(const std::optional<std::string> stored, about.text("tensor"));
    tensor.stored = stored.value_or(std::string(prefix) + entry.first);
    LODE_TRY(tensor.dtype, dtype_of(about));
    LODE_TRY(tensor.shape, shape_of(about));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<json::Value> params_of(const JsonFields& fields) {
  LODE_TRY(const JsonFields params, fields.object("params"));
  return params.value == nullptr ? json::Value(json::Object{}) : *params.value;
}

Result<LayoutCase> case_of(const JsonFields& fields) {
  LayoutCase one;
  LODE_TRY(one.name, needed_file_name(fields, "name"));
  LODE_TRY(one.file, needed_file_name(fields, "file"));
  LODE_TRY(one.function, needed_text(fields, "function"));
  LODE_TRY(one.params, params_of(fields));
  LODE_TRY(one.inputs, tensors_of(fields, "inputs", "in."));
  LODE_TRY(one.outputs, tensors_of(fields, "outputs", "out."));
  LODE_TRY(const std::optional<std::string> compare, fields.text("compare"));
  if (compare && !compare->starts_with("bytes"))
    return bad(fields.path_of("compare"), "bytes", *compare);
  one.informative = compare && compare->find("informative") != std::string::npos;
  const json::Value* const defect = fields.find("upstream_defect");
  one.upstream_defect = defect != nullptr && !defect->is_null();
  return one;
}

Result<json::Value> parsed(std::string_view text) {
  LODE_TRY(json::Value root, json::parse(text, {.max_bytes = kMaxManifestBytes}));
  LODE_TRY(const JsonFields fields, checkpoint::fields_of(&root, "manifest"));
  LODE_TRY(const std::optional<std::int64_t> format, fields.integer("format"));
  if (format != kFormat)
    return bad("manifest.format", "1", format ? fmt::format("{}", *format) : "nothing");
  const json::Value* const cases = fields.find("cases");
  if (cases == nullptr || cases->as_array() == nullptr)
    return bad("manifest.cases", "a list of cases", cases == nullptr ? "nothing" : cases->kind());
  if (cases->as_array()->size() > kMaxCases)
    return bad("manifest.cases", fmt::format("at most {}", kMaxCases),
               fmt::format("{}", cases->as_array()->size()));
  return root;
}

}  // namespace

Result<LayoutManifest> parse_layout_manifest(std::string_view text,
                                             const std::filesystem::path& folder) {
  LODE_TRY(const json::Value root, parsed(text));
  LayoutManifest manifest{.folder = folder, .cases = {}};
  std::set<std::string> names;
  for (const json::Value& value : *root.find("cases")->as_array()) {
    const std::string path = fmt::format("cases[{}]", manifest.cases.size());
    LODE_TRY(const JsonFields fields, checkpoint::fields_of(&value, path));
    LODE_TRY(LayoutCase one, case_of(fields));
    if (!names.insert(one.name).second) return bad(path + ".name", "a name of its own", one.name);
    manifest.cases.push_back(std::move(one));
  }
  return manifest;
}

Result<LayoutManifest> read_layout_manifest(const std::filesystem::path& path) {
  LODE_TRY(const std::optional<std::string> text,
           checkpoint::read_small_file(path, kMaxManifestBytes));
  if (!text) return bad(path.string(), "a manifest of cases", "no such file");
  auto manifest = parse_layout_manifest(*text, path.parent_path());
  if (!manifest) return at(path.string(), std::move(manifest).error());
  return manifest;
}

}  // namespace lode::engine
