#include "lode/prepared/export_layout.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/json/json.h"
#include "lode/loader/stage_guard.h"
#include "lode/loader/tensor_uses.h"
#include "lode/memory/buffer.h"
#include "lode/prepared/export_folder.h"

namespace lode::prepared {
namespace {

using loader::EngineBankPlan;
using memory::Tag;

constexpr std::uint64_t kFileBytes = 4 * kGiB;  // about; a tensor is never cut

/// Tensors that experts are made of: they are not copied.
class ExpertTensors {
 public:
  explicit ExpertTensors(const Input& input) : uses_(input.binding, input.index), input_(input) {
    for (const auto& experts : input.binding.experts) {
      for (const loader::ExpertSource& expert : experts) {
        for (const loader::MatrixSource* matrix : {&expert.gate, &expert.up, &expert.down}) {
          add(*matrix);
        }
        for (const loader::VectorSource* bias :
             {&expert.gate_bias, &expert.up_bias, &expert.down_bias}) {
          if (bias->present) add(bias->shard, bias->offset_bytes);
        }
      }
    }
  }
  bool has(std::uint32_t position) const { return positions_.contains(position); }

  /// "model.layers.3.mlp.experts": the module that a layer's experts belong to.
  std::string module(std::size_t layer) const {
    const loader::Region& codes = input_.binding.experts[layer].front().gate.codes;
    const auto position = uses_.at(codes.shard, codes.offset_bytes);
    LODE_CHECK(position.has_value(), "codes are in a tensor");
    const std::string_view name = input_.index.tensors()[*position].name;
    constexpr std::string_view kExperts = ".experts";
    const std::size_t at = name.find(kExperts);
    if (at == std::string_view::npos) return fmt::format("model.layers.{}.mlp.experts", layer);
    return std::string(name.substr(0, at + kExperts.size()));
  }

 private:
  void add(std::uint32_t shard, std::uint64_t offset_bytes) {
    if (const auto position = uses_.at(shard, offset_bytes)) positions_.insert(*position);
  }
  void add(const loader::MatrixSource& matrix) {
    add(matrix.codes.shard, matrix.codes.offset_bytes);
    if (matrix.encoding.has_scale) add(matrix.scales.shard, matrix.scales.offset_bytes);
    if (matrix.encoding.tensor_scale != formats::TensorScale::kNone) {
      add(matrix.matrix_scale_shard, matrix.matrix_scale_offset_bytes);
    }
    if (matrix.has_input_scale) add(matrix.input_scale_shard, matrix.input_scale_offset_bytes);
  }

  loader::TensorUses uses_;
  const Input& input_;
  std::set<std::uint32_t> positions_;
};

std::vector<ExportEntry> entries_of(const Input& input, ExportLayout& layout) {
  const ExpertTensors experts(input);
  std::vector<ExportEntry> entries;
  for (const EngineBankPlan& bank : input.engine->banks) {
    layout.first_of_bank.push_back(entries.size());
    const std::string module = experts.module(bank.layer);
    for (const targets::EngineTensor& tensor : bank.tensors()) {
      const auto extents = tensor.shape.extents();
      entries.push_back({module + "." + tensor.name,
                         std::string(formats::info(tensor.dtype).safetensors_name),
                         {extents.begin(), extents.end()},
                         tensor.bytes(bank.shape.num_experts)});
    }
  }
  layout.first_copied = entries.size();
  const loader::TensorUses uses(input.binding, input.index);
  for (const std::uint32_t position : uses.in_file_order()) {
    if (experts.has(position)) continue;
    const checkpoint::TensorRecord& record = input.index.tensors()[position];
    entries.push_back({std::string(record.name),
                       std::string(record.dtype),
                       {record.dims.begin(), record.dims.end()},
                       record.bytes,
                       0,
                       0,
                       &record});
  }
  return entries;
}

// Header of a file: JSON, filled up with spaces so that the data begin on a page.
std::string header_of(std::span<const ExportEntry> entries, const Input& input) {
  constexpr std::uint64_t kLengthBytes = 8;
  json::Object members;
  members.emplace_back("__metadata__",
                       json::object({{"format", "pt"},
                                     {"lode_target", targets::name(input.choice.target)},
                                     {"lode_family", input.family},
                                     {"lode_export", std::string(kExportFile)}}));
  std::uint64_t at = 0;
  for (const ExportEntry& entry : entries) {
    json::Array shape;
    for (const std::uint64_t extent : entry.shape) shape.emplace_back(extent);
    json::Array offsets{json::Value(at), json::Value(at + entry.bytes)};
    members.emplace_back(entry.name, json::object({{"dtype", entry.dtype},
                                                   {"shape", json::Value(std::move(shape))},
                                                   {"data_offsets", std::move(offsets)}}));
    at += entry.bytes;
  }
  std::string text = json::dump(json::Value(std::move(members)));
  text.resize(align_up(text.size() + kLengthBytes, std::uint64_t{4096}) - kLengthBytes, ' ');
  std::string header(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    header[i] = static_cast<char>(text.size() >> (8 * i));
  }
  return header + text;
}

Status copy_tensor(const ExportEntry& entry, io::ReadEngine& engine, std::span<std::byte> piece,
                   EntrySink& sink) {
  for (std::uint64_t at = 0; at < entry.bytes; at += kExportPieceBytes) {
    const std::uint64_t bytes = std::min(kExportPieceBytes, entry.bytes - at);
    engine.submit({.file_id = entry.source->shard_id,
                   .offset_bytes = entry.source->file_offset + at,
                   .out = piece.first(bytes)});
    LODE_TRY_STATUS(engine.wait().status);
    LODE_TRY_STATUS(sink.take(entry, at, piece.first(bytes)));
  }
  return {};
}

}  // namespace

ExportLayout lay_out_export(const Input& input) {
  ExportLayout layout;
  layout.entries = entries_of(input, layout);
  std::vector<std::size_t> ends;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < layout.entries.size(); ++i) {
    if (bytes > 0 && bytes + layout.entries[i].bytes > kFileBytes) {
      ends.push_back(i);
      bytes = 0;
    }
    layout.entries[i].file_idx = ends.size();
    bytes += layout.entries[i].bytes;
  }
  ends.push_back(layout.entries.size());
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    const std::span<ExportEntry> entries = std::span(layout.entries).subspan(begin, end - begin);
    layout.headers.push_back(header_of(entries, input));
    std::uint64_t at = layout.headers.back().size();
    for (ExportEntry& entry : entries) {
      entry.file_offset_bytes = at;
      at += entry.bytes;
    }
    layout.file_bytes.push_back(at);
    begin = end;
  }
  return layout;
}

std::string index_text(const ExportLayout& layout) {
  json::Object map;
  std::uint64_t bytes = 0;
  for (const ExportEntry& entry : layout.entries) {
    map.emplace_back(entry.name,
                     json::Value(export_file_name(entry.file_idx, layout.headers.size())));
    bytes += entry.bytes;
  }
  return json::dump(json::object({{"metadata", json::object({{"total_size", bytes}})},
                                  {"weight_map", json::Value(std::move(map))}}),
                    2) +
         "\n";
}

Status EntrySink::put(const loader::ChunkRun& run) {
  const auto bank =
      std::ranges::find(input_.engine->banks, run.stage_idx - 1, &EngineBankPlan::layer);
  LODE_CHECK(bank != input_.engine->banks.end(), "a run of a bank");
  const auto idx = static_cast<std::size_t>(bank - input_.engine->banks.begin());
  const std::uint64_t run_end = run.offset_bytes + run.bytes.size();
  for (std::size_t i = 0; i < bank->tensors().size(); ++i) {
    const ExportEntry& entry = layout_.entries[layout_.first_of_bank[idx] + i];
    const std::uint64_t tensor = bank->offsets_bytes[i];
    const std::uint64_t begin = std::max(run.offset_bytes, tensor);
    const std::uint64_t end = std::min(run_end, tensor + entry.bytes);
    if (begin >= end) continue;
    LODE_TRY_STATUS(
        take(entry, begin - tensor, run.bytes.subspan(begin - run.offset_bytes, end - begin)));
  }
  return {};
}

Status copy_rest(const ExportCopy& copy, EntrySink& sink) {
  copy.ledger.begin_stage(std::string(kCopyStage));
  const loader::StageGuard guard(copy.ledger);
  LODE_TRY(memory::Buffer piece, memory::make_buffer(copy.ledger, Tag::kStaging, kExportPieceBytes,
                                                     "a piece of a tensor that is copied"));
  const auto& entries = copy.layout.entries;
  for (std::size_t i = copy.layout.first_copied; i < entries.size(); ++i) {
    if (copy.progress != nullptr) LODE_TRY_STATUS(check_may_go_on(*copy.progress));
    LODE_TRY_STATUS(copy_tensor(entries[i], copy.engine, piece.mutate(), sink));
  }
  return copy.engine.finish();
}

}  // namespace lode::prepared
