#include "lode/prepared/export.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/execute.h"
#include "lode/memory/buffer.h"
#include "lode/prepared/export_folder.h"
#include "lode/prepared/export_layout.h"
#include "lode/prepared/out_folder.h"
#include "lode/prepared/output_file.h"
#include "lode/prepared/source_stamp.h"

namespace lode::prepared {
namespace {

using memory::Tag;

constexpr std::uint64_t kBytesATensor = 512;  // name, entry of the header and of the index

/// The files of the export. They bear their own names when all of them are whole.
class Files final : public EntrySink {
 public:
  Files(const Input& input, std::filesystem::path out, const ExportLayout& layout,
        io::SystemCalls& calls)
      : EntrySink(input, layout), out_(std::move(out)), calls_(calls) {}
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
  Status take(const ExportEntry& entry, std::uint64_t offset_bytes,
              std::span<const std::byte> bytes) override {
    written_bytes_ += bytes.size();
    return files_[entry.file_idx].write(bytes, entry.file_offset_bytes + offset_bytes);
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

  std::filesystem::path out_;
  io::SystemCalls& calls_;
  std::vector<OutputFile> files_;
  std::uint64_t written_bytes_ = 0;
};

/// Takes what nobody wants: for a look at losses.
class NoFiles final : public loader::ChunkSink {
 public:
  Status put(const loader::ChunkRun&) override { return {}; }
};

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
  ExportLayout layout_;
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
  const memory::BufferCost piece = memory::buffer_cost(kExportPieceBytes);
  of(peak, Tag::kStaging) += piece.tag_bytes;
  of(peak, Tag::kPageTables) += piece.page_table_bytes;
  stages.push_back({std::string(kCopyStage), held, peak, memory::total(peak)});
  return stages;
}

Status Export::stream(memory::Ledger& ledger, io::ReadEngine& engine, loader::ChunkSink& sink,
                      loader::Progress* progress, Report& report) const {
  loader::EngineFindings findings;
  const loader::EngineStart start{.is_strict = options_.strict};
  LODE_TRY_STATUS(
      loader::stream_engine(*input_.engine, input_.binding,
                            {ledger, engine, sink, progress, start, &findings, &input_.index}));
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
