#include "lode/prepared/export.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/json/json.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/execute.h"
#include "lode/loader/stage_guard.h"
#include "lode/loader/tensor_uses.h"
#include "lode/memory/buffer.h"
#include "lode/prepared/export_folder.h"
#include "lode/prepared/out_folder.h"
#include "lode/prepared/output_file.h"
#include "lode/prepared/source_stamp.h"

namespace lode::prepared {
namespace {

using loader::EngineBankPlan;
using memory::Tag;

constexpr std::uint64_t kFileBytes = 4 * kGiB;   // about; a tensor is never cut
constexpr std::uint64_t kPieceBytes = 2 * kMiB;  // of a tensor that is copied
constexpr std::uint64_t kBytesATensor = 512;     // name, entry of the header and of the index
constexpr std::string_view kCopyStage = "copy";

/// A tensor of the export.
struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;
  std::size_t file_idx = 0;
  std::uint64_t file_offset_bytes = 0;  // filled in by `place`
  // Of a tensor that is copied:
  const checkpoint::TensorRecord* source = nullptr;
};

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

/// Every tensor with its place; those of banks in the order of the banks, then those copied in the
/// order of the source's files.
struct Layout {
  std::vector<Entry> entries;
  std::vector<std::size_t> first_of_bank;  // positions in `entries`
  std::size_t first_copied = 0;
  std::vector<std::string> headers;  // of the files, with their eight bytes of length
  std::vector<std::uint64_t> file_bytes;
};

std::vector<Entry> entries_of(const Input& input, Layout& layout) {
  const ExpertTensors experts(input);
  std::vector<Entry> entries;
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
std::string header_of(std::span<const Entry> entries, const Input& input) {
  constexpr std::uint64_t kLengthBytes = 8;
  json::Object members;
  members.emplace_back("__metadata__",
                       json::object({{"format", "pt"},
                                     {"lode_target", targets::name(input.choice.target)},
                                     {"lode_family", input.family}}));
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
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

Layout lay_out_export(const Input& input) {
  Layout layout;
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
    const std::span<Entry> entries = std::span(layout.entries).subspan(begin, end - begin);
    layout.headers.push_back(header_of(entries, input));
    std::uint64_t at = layout.headers.back().size();
    for (Entry& entry : entries) {
      entry.file_offset_bytes = at;
      at += entry.bytes;
    }
    layout.file_bytes.push_back(at);
    begin = end;
  }
  return layout;
}

/// The files of the export. They bear their own names when all of them are whole.
class Files final : public loader::ChunkSink {
 public:
  Files(const Input& input, std::filesystem::path out, const Layout& layout, io::SystemCalls& calls)
      : input_(input), out_(std::move(out)), layout_(layout), calls_(calls) {}
  Status open() {
    for (std::size_t i = 0; i < layout_.headers.size(); ++i) {
      LODE_TRY(OutputFile file, OutputFile::open(calls_, part(i), OutputFile::Way::kBuffered));
      LODE_TRY_STATUS(file.truncate(0));
      LODE_TRY_STATUS(file.write(std::as_bytes(std::span(layout_.headers[i])), 0));
      files_.push_back(std::move(file));
    }
    return {};
  }

  /// Errors: kNoSpace, kIo.
  Status write(const Entry& entry, std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
    written_bytes_ += bytes.size();
    return files_[entry.file_idx].write(bytes, entry.file_offset_bytes + offset_bytes);
  }

  /// What of the run belongs to each tensor; what lies between them belongs to none.
  Status put(const loader::ChunkRun& run) override {
    const auto bank =
        std::ranges::find(input_.engine->banks, run.stage_idx - 1, &EngineBankPlan::layer);
    LODE_CHECK(bank != input_.engine->banks.end(), "a run of a bank");
    const auto idx = static_cast<std::size_t>(bank - input_.engine->banks.begin());
    const std::uint64_t run_end = run.offset_bytes + run.bytes.size();
    for (std::size_t i = 0; i < bank->tensors().size(); ++i) {
      const Entry& entry = layout_.entries[layout_.first_of_bank[idx] + i];
      const std::uint64_t tensor = bank->offsets_bytes[i];
      const std::uint64_t begin = std::max(run.offset_bytes, tensor);
      const std::uint64_t end = std::min(run_end, tensor + entry.bytes);
      if (begin >= end) continue;
      LODE_TRY_STATUS(
          write(entry, begin - tensor, run.bytes.subspan(begin - run.offset_bytes, end - begin)));
    }
    return {};
  }

  Status finish() {
    for (OutputFile& file : files_) LODE_TRY_STATUS(file.sync_data());
    files_.clear();
    for (std::size_t i = 0; i < layout_.headers.size(); ++i) {
      LODE_TRY_STATUS(rename_file(calls_, part(i), path(i)));
    }
    return sync_folder(calls_, out_.string());
  }
  std::uint64_t written_bytes() const noexcept { return written_bytes_; }

 private:
  std::string path(std::size_t idx) const {
    return (out_ / export_file_name(idx, layout_.headers.size())).string();
  }
  std::string part(std::size_t idx) const { return path(idx) + ".part"; }

  const Input& input_;
  std::filesystem::path out_;
  const Layout& layout_;
  io::SystemCalls& calls_;
  std::vector<OutputFile> files_;
  std::uint64_t written_bytes_ = 0;
};

/// Takes what nobody wants: for a look at losses.
class NoFiles final : public loader::ChunkSink {
 public:
  Status put(const loader::ChunkRun&) override { return {}; }
};

Status copy_tensor(const Entry& entry, io::ReadEngine& engine, std::span<std::byte> piece,
                   Files& files) {
  for (std::uint64_t at = 0; at < entry.bytes; at += kPieceBytes) {
    const std::uint64_t bytes = std::min(kPieceBytes, entry.bytes - at);
    engine.submit({.file_id = entry.source->shard_id,
                   .offset_bytes = entry.source->file_offset + at,
                   .out = piece.first(bytes)});
    LODE_TRY_STATUS(engine.wait().status);
    LODE_TRY_STATUS(files.write(entry, at, piece.first(bytes)));
  }
  return {};
}

struct Copy {
  const Layout& layout;
  memory::Ledger& ledger;
  io::ReadEngine& engine;
  loader::Progress* progress;
};

Status copy_rest(const Copy& copy, Files& files) {
  copy.ledger.begin_stage(std::string(kCopyStage));
  const loader::StageGuard guard(copy.ledger);
  LODE_TRY(memory::Buffer piece, memory::make_buffer(copy.ledger, Tag::kStaging, kPieceBytes,
                                                     "a piece of a tensor that is copied"));
  const auto& entries = copy.layout.entries;
  for (std::size_t i = copy.layout.first_copied; i < entries.size(); ++i) {
    if (copy.progress != nullptr) LODE_TRY_STATUS(check_may_go_on(*copy.progress));
    LODE_TRY_STATUS(copy_tensor(entries[i], copy.engine, piece.mutate(), files));
  }
  return copy.engine.finish();
}

std::string index_text(const Layout& layout) {
  json::Object map;
  std::uint64_t bytes = 0;
  for (const Entry& entry : layout.entries) {
    map.emplace_back(entry.name,
                     json::Value(export_file_name(entry.file_idx, layout.headers.size())));
    bytes += entry.bytes;
  }
  return json::dump(json::object({{"metadata", json::object({{"total_size", bytes}})},
                                  {"weight_map", json::Value(std::move(map))}}),
                    2) +
         "\n";
}

class Export final : public Preparation {
 public:
  Export(const Input& input, std::filesystem::path out, const Options& options,
         io::SystemCalls& calls)
      : input_(input),
        out_(std::move(out)),
        options_(options),
        calls_(calls),
        layout_(lay_out_export(input_)) {}

  /// Errors: those of open_export.
  Status look();

  bool is_finished() const override { return state_.is_finished; }
  std::uint64_t done_bytes() const override { return is_finished() ? output_bytes() : 0; }
  std::uint64_t output_bytes() const override {
    std::uint64_t bytes = 0;
    for (const std::uint64_t file : layout_.file_bytes) bytes += file;
    return bytes;
  }
  std::uint64_t table_bytes() const override {
    return layout_.entries.size() * kBytesATensor + 64 * kKiB;
  }
  std::vector<memory::StageUse> expected_stages(const memory::TagBytes& held_before) const override;
  Result<Report> run(memory::Ledger& ledger, loader::Progress* progress) override;

 private:
  ExportContent content() const { return {description_, index_text(layout_), layout_.file_bytes}; }
  Status check_room() const;
  Status stream(memory::Ledger& ledger, io::ReadEngine& engine, loader::ChunkSink& sink,
                loader::Progress* progress, Report& report) const;
  Status write(memory::Ledger& ledger, loader::Progress* progress, Report& report) const;

  Input input_;
  std::filesystem::path out_;
  Options options_;
  io::SystemCalls& calls_;
  Layout layout_;
  std::string description_;
  ExportState state_;
};

Status Export::look() {
  LODE_TRY_STATUS(check_out(input_.folder, out_));
  LODE_TRY(description_, describe_export(input_));
  LODE_TRY(state_, look_at_export(calls_, out_, content(), options_.force));
  return is_finished() ? Status{} : check_room();
}

Status Export::check_room() const {
  const std::string folder = nearest_folder(out_).string();
  const std::int64_t free = calls_.free_bytes(folder);
  if (free < 0) return io::system_error(folder, "ask for free space", free);
  const std::uint64_t need = output_bytes() + companion_bytes(input_.folder) + kMiB;
  const std::uint64_t room = static_cast<std::uint64_t>(free) + state_.leftover_disk_bytes;
  if (need <= room) return {};
  return Error{.code = Code::kNoSpace,
               .thing = out_.string(),
               .wanted = fmt::format("{} ({} bytes) free", human_bytes(need), need),
               .found = human_bytes(room),
               .hint = "make room and call again"};
}

std::vector<memory::StageUse> Export::expected_stages(const memory::TagBytes& held_before) const {
  memory::TagBytes held = held_before;
  of(held, Tag::kMetadata) += table_bytes();
  auto stages = loader::expected_engine_stages(*input_.engine, {}, held);
  if (is_finished()) return stages;
  memory::TagBytes peak = held;
  const memory::BufferCost piece = memory::buffer_cost(kPieceBytes);
  of(peak, Tag::kStaging) += piece.tag_bytes;
  of(peak, Tag::kPageTables) += piece.page_table_bytes;
  stages.push_back({std::string(kCopyStage), held, peak, memory::total(peak)});
  return stages;
}

Status Export::stream(memory::Ledger& ledger, io::ReadEngine& engine, loader::ChunkSink& sink,
                      loader::Progress* progress, Report& report) const {
  loader::EngineFindings findings;
  const loader::EngineStart start{.is_strict = options_.strict};
  LODE_TRY_STATUS(loader::stream_engine(*input_.engine, input_.binding,
                                        {ledger, engine, sink, progress, start, &findings}));
  report.unequal_pairs = findings.unequal_pairs;
  report.implausible_scales = findings.implausible_scales;
  report.losses = std::move(findings.losses);
  return {};
}

// The index last: from then on it is an export.
Status Export::write(memory::Ledger& ledger, loader::Progress* progress, Report& report) const {
  Files files(input_, out_, layout_, calls_);
  LODE_TRY_STATUS(files.open());
  LODE_TRY(const auto engine, loader::make_engine(input_.plan));
  report.reading = engine->description();
  LODE_TRY_STATUS(stream(ledger, *engine, files, progress, report));
  LODE_TRY_STATUS(copy_rest({layout_, ledger, *engine, progress}, files));
  LODE_TRY_STATUS(files.finish());
  LODE_TRY(const auto companions, copy_companions(calls_, input_.folder, out_));
  static_cast<void>(companions);
  const std::string index = index_text(layout_);
  LODE_TRY_STATUS(replace_file(calls_, out_.string(), std::string(kExportIndexFile),
                               std::as_bytes(std::span(index))));
  report.written_bytes = files.written_bytes();
  return {};
}

Result<Report> Export::run(memory::Ledger& ledger, loader::Progress* progress) {
  LODE_TRY(const memory::Reservation tables,
           ledger.reserve(Tag::kMetadata, table_bytes(), "names of the export"));
  Report report{.output_bytes = output_bytes(), .reading = {}};
  if (is_finished()) {
    if (!options_.strict) return report;
    LODE_TRY(const auto engine, loader::make_engine(input_.plan));
    report.reading = engine->description();
    NoFiles nothing;
    LODE_TRY_STATUS(stream(ledger, *engine, nothing, progress, report));
    return report;
  }
  LODE_TRY(const OutputFile taken, take_export(calls_, out_, content(), options_.force));
  Status status = write(ledger, progress, report);
  if (status) {
    state_.is_finished = true;
    return report;
  }
  drop_export(calls_, out_);
  return std::move(status).error();
}

}  // namespace

Result<std::unique_ptr<Preparation>> open_export(const Input& input,
                                                 const std::filesystem::path& out,
                                                 const Options& options, io::SystemCalls& calls) {
  LODE_CHECK(input.engine != nullptr, "an export is for an engine");
  auto work = std::make_unique<Export>(input, out, options, calls);
  LODE_TRY_STATUS(work->look());
  return std::unique_ptr<Preparation>(std::move(work));
}

}  // namespace lode::prepared
