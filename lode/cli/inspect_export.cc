#include "lode/cli/inspect_export.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/cli/choice_view.h"
#include "lode/cli/table.h"
#include "lode/prepared/export_folder.h"

namespace lode::cli {
namespace {

using checkpoint::TensorRecord;

// "w13_weight" of "model.layers.3.mlp.experts.w13_weight"; empty for what no engine has made.
std::string_view engine_name(std::string_view name) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = name.rfind(kExperts);
  if (at == name.npos) return {};
  const std::string_view rest = name.substr(at + kExperts.size());
  return rest.find('.') == rest.npos ? rest : std::string_view();
}

std::string shape_of(const TensorRecord& record) {
  return fmt::format("[{}]", fmt::join(record.dims, ", "));
}

// Tensors of one name and shape: mostly one a layer.
struct Row {
  std::string_view name;
  std::string_view dtype;
  std::string shape;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

std::vector<Row> rows_of(const checkpoint::TensorIndex& index, Row& others) {
  std::vector<Row> rows;
  for (const TensorRecord& record : index.tensors()) {
    const std::string_view name = engine_name(record.name);
    const std::string shape = shape_of(record);
    const auto same = std::ranges::find_if(rows, [&](const Row& row) {
      return row.name == name && row.dtype == record.dtype && row.shape == shape;
    });
    Row* row = &others;
    if (!name.empty()) {
      row = same != rows.end() ? &*same : &rows.emplace_back(Row{name, record.dtype, shape});
    }
    ++row->count;
    row->bytes += record.bytes;
  }
  return rows;
}

void print_text(const prepared::ExportDescription& said, const checkpoint::TensorIndex& index) {
  fmt::print("export    for target {}, made for an engine: lode does not run it\n",
             targets::name(said.choice.target));
  fmt::print("family    {}\n", checkpoint::printable(said.family));
  fmt::print("files     {}, {}, {}\n", count_of(index.shards().size(), "file"),
             count_of(index.tensors().size(), "tensor"), human_bytes(index.tensor_bytes()));
  fmt::print("{}", choice_text(said.choice));
  if (said.choice.experts.empty()) {
    fmt::print("experts   all {} of each layer\n", said.experts.size());
  }
  for (const auto& source : said.sources) {
    fmt::print("made of   {}, {}, header SHA-256 {}\n", checkpoint::printable(source.name),
               human_bytes(source.bytes), checkpoint::printable(source.header_sha256));
  }
  Row others{"as in the source", "", ""};
  std::vector<Row> rows = rows_of(index, others);
  rows.push_back(others);
  Table table({"tensor of experts", "dtype", "shape", "layers", "bytes"}, {3, 4});
  for (const Row& row : rows) {
    table.add({checkpoint::printable(row.name), checkpoint::printable(row.dtype), row.shape,
               fmt::format("{}", row.count), human_bytes(row.bytes)});
  }
  fmt::print("\n{}", table.text());
}

json::Value as_json(const prepared::ExportDescription& said, const checkpoint::TensorIndex& index) {
  json::Array sources, tensors, experts;
  for (const auto& source : said.sources) {
    sources.push_back(json::object(
        {{"name", source.name}, {"bytes", source.bytes}, {"header_sha256", source.header_sha256}}));
  }
  for (const TensorRecord& record : index.tensors()) {
    json::Array shape;
    for (const std::uint64_t extent : record.dims) shape.emplace_back(extent);
    tensors.push_back(json::object({{"name", record.name},
                                    {"dtype", record.dtype},
                                    {"shape", std::move(shape)},
                                    {"bytes", record.bytes}}));
  }
  json::Object all{{"exported_for", targets::name(said.choice.target)},
                   {"family", said.family},
                   {"bytes", index.tensor_bytes()},
                   {"files", static_cast<std::uint64_t>(index.shards().size())},
                   {"num_experts", said.num_experts}};
  for (json::Member& member : choice_members(said.choice)) all.push_back(std::move(member));
  for (const std::uint32_t expert : said.experts) experts.emplace_back(std::int64_t{expert});
  std::ranges::find(all, "experts", &json::Member::first)->second = std::move(experts);
  all.emplace_back("sources", std::move(sources));
  all.emplace_back("tensors", std::move(tensors));
  all.emplace_back("runs_on_cpu", false);
  return json::Value(std::move(all));
}

}  // namespace

Status inspect_export(const std::filesystem::path& folder, bool json) {
  LODE_TRY(const prepared::ExportDescription said, prepared::read_export(folder));
  std::error_code absent;
  if (!std::filesystem::exists(folder / prepared::kExportIndexFile, absent)) {
    return Error{.code = Code::kInvalidSource,
                 .thing = folder.string(),
                 .wanted = "an export that is finished",
                 .found = fmt::format("one that was begun: no {}", prepared::kExportIndexFile),
                 .hint = "the command that began it begins it again"};
  }
  LODE_TRY(const checkpoint::TensorIndex index, checkpoint::open_index(folder));
  if (json) {
    fmt::print("{}\n", json::dump(as_json(said, index), 2));
  } else {
    print_text(said, index);
  }
  return {};
}

}  // namespace lode::cli
