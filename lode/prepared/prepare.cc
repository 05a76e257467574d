#include "lode/prepared/prepare.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/execute.h"
#include "lode/prepared/consume.h"
#include "lode/prepared/out_folder.h"
#include "lode/prepared/section_writer.h"
#include "lode/prepared/source_stamp.h"

namespace lode::prepared {
namespace {

using memory::Tag;

// Bytes of chunks before `num_chunks`.
std::uint64_t bytes_before(const Index& index, std::uint64_t num_chunks) {
  std::uint64_t bytes = 0;
  for (const Section& section : index.sections) {
    if (section.first_chunk >= num_chunks) break;
    bytes += std::min(section.bytes, (num_chunks - section.first_chunk) * kChunkBytes);
  }
  return bytes;
}

Manifest begin_manifest(const Input& input, const Index& index) {
  const targets::Target target = index.choice.target;
  Manifest manifest;
  manifest.format_version = kFormatVersion;
  manifest.target = targets::name(target);
  manifest.layout = target == targets::Target::kCpu ? cpu_layout() : engine_layout(target);
  manifest.dense = loader::name(input.plan.policy.dense);
  manifest.family = input.family;
  for (const loader::StagePlan& stage : index.stages) manifest.weight_bytes += stage.mapped_bytes;
  manifest.data_file_bytes = file_bytes(index.sections);
  return manifest;
}

Result<Index> index_of(const Input& input) {
  if (input.engine == nullptr) return make_index(input.plan.stages);
  return make_index(input.plan.stages, input.choice, input.engine->banks);
}

// What `loader::stream` makes: all of it, or for a GPU engine all but the experts.
loader::LoadPlan streamed_plan(const Input& input) {
  loader::LoadPlan plan = input.plan;
  if (input.engine == nullptr) return plan;
  for (loader::StagePlan& stage : plan.stages) stage.bank.reset();
  return plan;
}

class Work final : public Preparation {
 public:
  Work(const Input& input, std::filesystem::path out, const Options& options,
       io::SystemCalls& calls)
      : input_(input),
        plan_(streamed_plan(input)),
        out_(std::move(out)),
        options_(options),
        calls_(calls) {}

  Status plan();  // what OUT will be, and from what
  Status look();

  bool is_finished() const override { return finished_; }
  std::uint64_t done_bytes() const override {
    return finished_ ? output_bytes() : bytes_before(index_, done_chunks_);
  }
  std::uint64_t output_bytes() const override { return bytes_before(index_, index_.num_chunks()); }
  std::uint64_t table_bytes() const override;
  std::vector<memory::StageUse> expected_stages(const memory::TagBytes& held_before) const override;
  Result<Report> run(memory::Ledger& ledger, loader::Progress* progress) override;

 private:
  Status look_at_finished(const Manifest& there);
  Status look_at_begun();
  Status check_room() const;
  Status check_fits(const memory::Ledger& ledger) const;
  Status begin();
  Status make_journal(OutFolder folder);
  loader::StreamStart stream_start() const {
    return prepared::stream_start(index_, done_chunks_, plan_.stages.size());
  }
  std::optional<loader::EngineStart> engine_start() const;
  Status look_at_losses(memory::Ledger& ledger, loader::Progress* progress, Report& report);
  std::uint64_t unit_bytes() const {
    return consumer_.is_at_work() ? std::min(options_.unit_bytes, kConsumedUnitBytes)
                                  : options_.unit_bytes;
  }
  Status stream(SectionWriter& writer, io::ReadEngine& engine, memory::Ledger& ledger,
                loader::Progress* progress);
  Error stopped(const SectionWriter& writer, Error error) const;
  Status finish();

  Input input_;
  loader::LoadPlan plan_;  // of what `loader::stream` makes
  std::filesystem::path out_;
  Options options_;
  io::SystemCalls& calls_;
  Index index_;
  Manifest manifest_;
  Fingerprint fingerprint_;
  OutState out_state_;
  bool goes_on_ = false;  // where an earlier run was stopped
  std::optional<Journal> journal_;
  Consumer consumer_;
  std::uint64_t done_chunks_ = 0;
  loader::EngineFindings findings_;
  bool finished_ = false;
};

Status Work::plan() {
  LODE_TRY(index_, index_of(input_));
  manifest_ = begin_manifest(input_, index_);
  LODE_TRY(manifest_.sources, stamp_sources(input_.index));
  return {};
}

Status Work::look() {
  LODE_TRY_STATUS(check_out(input_.folder, out_));
  LODE_TRY_STATUS(plan());
  fingerprint_ = fingerprint_of(manifest_, index_);
  LODE_TRY(const std::optional<Manifest> there, read_manifest(out_, options_.force));
  if (there && !options_.force) return look_at_finished(*there);
  LODE_TRY_STATUS(look_at_begun());
  return check_room();
}

Status Work::look_at_finished(const Manifest& there) {
  Manifest same = there;
  same.sources = manifest_.sources;  // their times do not count
  const bool settings = fingerprint_of(same, index_).settings == fingerprint_.settings;
  if (settings && same_sources(there.sources, manifest_.sources)) {
    finished_ = true;
    return remove_file(calls_, (out_ / kJournalFile).string());
  }
  return Error{.code = Code::kUsage,
               .thing = out_.string(),
               .wanted = "a folder for this checkpoint and these settings",
               .found = settings ? "a prepared checkpoint of other files"
                                 : "a checkpoint that was prepared with other settings",
               .hint = "name another folder, or --force to prepare into this one again"};
}

Status Work::look_at_begun() {
  LODE_TRY(out_state_, look_at_out(calls_, out_, options_.force));
  goes_on_ = out_state_.journal && !options_.force;
  LODE_TRY_STATUS(check_not_given_away(input_.folder, goes_on_ ? out_ : std::filesystem::path()));
  bool holes = false;
  if (goes_on_) {
    const JournalState& journal = *out_state_.journal;
    LODE_TRY_STATUS(check_same(journal, fingerprint_, out_.string()));
    done_chunks_ = journal.chunk_crcs.size();
    LODE_CHECK(done_chunks_ <= index_.num_chunks(), "a journal of the same index");
    std::copy(journal.chunk_crcs.begin(), journal.chunk_crcs.end(), index_.chunk_crcs.begin());
    holes = journal.holes_up_to_stage.has_value();
  }
  if (!options_.consume && !holes) return {};
  if (input_.engine != nullptr) {
    return Error{.code = Code::kUnsupported,
                 .thing = "--consume",
                 .wanted = "target cpu",
                 .found = std::string(targets::name(input_.choice.target)),
                 .hint = "a source is kept until all of a GPU engine's tensors are there"};
  }
  LODE_TRY(consumer_, Consumer::plan(input_, out_, calls_));
  // Again, now that nobody else can give them away.
  return check_not_given_away(input_.folder, goes_on_ ? out_ : std::filesystem::path());
}

Status Work::check_room() const {
  const std::string folder = nearest_folder(out_).string();
  const std::int64_t answer = calls_.free_bytes(folder);
  if (answer < 0) return io::system_error(folder, "ask for free space", answer);
  // Room that data files have and the chunks that are done do not need is free or taken again.
  const std::uint64_t kept = std::min(done_bytes(), out_state_.data_disk_bytes);
  const std::uint64_t free = static_cast<std::uint64_t>(answer) + out_state_.data_disk_bytes - kept;
  const std::uint64_t rest = companion_bytes(input_.folder) + 2 * table_bytes() + kMiB;
  const std::uint64_t need = consumer_.most_needed_bytes(index_, done_chunks_, unit_bytes()) + rest;
  if (need <= free) return {};
  return Error{.code = Code::kNoSpace,
               .thing = out_.string(),
               .wanted = fmt::format("{} ({} bytes) free", human_bytes(need), need),
               .found = fmt::format("{}, so {} more are needed", human_bytes(free),
                                    human_bytes(need - free)),
               .hint = options_.consume ? "make room and call again"
                                        : "make room and call again, or --consume gives the "
                                          "source's space back as it goes"};
}

// Where the banks of a GPU engine go on; nothing without any.
std::optional<loader::EngineStart> Work::engine_start() const {
  if (input_.engine == nullptr) return std::nullopt;
  auto start = prepared::engine_start(index_, finished_ ? index_.num_chunks() : done_chunks_);
  start.is_strict = options_.strict;
  return start;
}

Status Work::check_fits(const memory::Ledger& ledger) const {
  return loader::check_stream_fits(plan_, stream_start(), ledger);
}

// From here on OUT is another one.
Status Work::begin() {
  LODE_TRY(OutFolder folder, OutFolder::take(calls_, out_, options_.force));
  if (folder.state != out_state_.journal) {
    return Error{.code = Code::kIo,
                 .thing = out_.string(),
                 .wanted = "the folder that was looked at",
                 .found = "another lode prepare has been at work there since",
                 .hint = "call again"};
  }
  if (goes_on_) {
    journal_ = Journal::resume(std::move(folder.journal), *folder.state);
  } else {
    // The journal first: an old one must not speak of files that are gone.
    LODE_TRY_STATUS(make_journal(std::move(folder)));
    LODE_TRY_STATUS(clear_folder(calls_, out_));
  }
  if (consumer_.is_at_work()) consumer_.set_journal(*journal_);
  return SectionWriter(calls_, out_.string(), index_, *journal_, done_chunks_).cut_to_written();
}

// One that could not be made does not stay: it says nothing.
Status Work::make_journal(OutFolder folder) {
  const bool is_new = folder.is_new;
  auto journal = Journal::create(std::move(folder.journal), fingerprint_, index_.num_chunks());
  if (journal) {
    journal_ = *std::move(journal);
    return {};
  }
  if (is_new) static_cast<void>(remove_file(calls_, (out_ / kJournalFile).string()));
  return std::move(journal).error();
}

// Index and sums, their bytes when they are written, and the manifest.
std::uint64_t Work::table_bytes() const {
  return 3 * (index_.num_chunks() * sizeof(std::uint32_t)) + 256 * kKiB +
         index_.stages.size() * 16 * kKiB + manifest_.sources.size() * kKiB +
         consumer_.held_bytes();
}

std::vector<memory::StageUse> Work::expected_stages(const memory::TagBytes& held_before) const {
  memory::TagBytes held = held_before;
  of(held, Tag::kMetadata) += table_bytes();
  std::vector<memory::StageUse> stages;
  if (!finished_) stages = loader::expected_stream_stages(plan_, stream_start(), held);
  if (const auto start = engine_start()) {
    const auto more = loader::expected_engine_stages(*input_.engine, *start, held);
    stages.insert(stages.end(), more.begin(), more.end());
  }
  return stages;
}

Status Work::stream(SectionWriter& writer, io::ReadEngine& engine, memory::Ledger& ledger,
                    loader::Progress* progress) {
  if (done_chunks_ > 0) LODE_TRY_STATUS(consumer_.give_back(index_, done_chunks_));
  writer.set_unit_bytes(unit_bytes());
  writer.on_durable([this](std::uint64_t chunks) { return consumer_.give_back(index_, chunks); });
  LODE_TRY_STATUS(
      loader::stream(plan_, input_.binding, {ledger, engine, writer, progress, stream_start()}));
  if (const auto start = engine_start()) {
    LODE_TRY_STATUS(loader::stream_engine(
        *input_.engine, input_.binding,
        {ledger, engine, writer, progress, *start, &findings_, &input_.index}));
  }
  return writer.finish();
}

// The manifest last: from then on it is a prepared checkpoint.
Status Work::finish() {
  const std::string folder = out_.string();
  LODE_TRY(manifest_.companions, copy_companions(calls_, input_.folder, out_));
  const std::vector<std::byte> index = encode(index_);
  manifest_.index_bytes = index.size();
  manifest_.root_sha256 = io::sha256(index);
  LODE_TRY_STATUS(replace_file(calls_, folder, std::string(kIndexFile), index));
  const std::string text = encode(manifest_);
  LODE_TRY_STATUS(
      replace_file(calls_, folder, std::string(kManifestFile), std::as_bytes(std::span(text))));
  journal_.reset();
  LODE_TRY_STATUS(remove_file(calls_, (out_ / kJournalFile).string()));
  finished_ = true;
  return sync_folder(calls_, folder);
}

// Takes what was never made.
class NoSink final : public loader::ChunkSink {
 public:
  Status put(const loader::ChunkRun&) override {
    return Error{.code = Code::kOther, .thing = "a look at what was made", .found = "new bytes"};
  }
};

// Of a preparation that is finished.
Status Work::look_at_losses(memory::Ledger& ledger, loader::Progress* progress, Report& report) {
  const auto start = engine_start();
  if (!start || !options_.strict) return {};
  LODE_TRY(const auto engine, loader::make_engine(plan_));
  report.reading = engine->description();
  NoSink sink;
  LODE_TRY_STATUS(
      loader::stream_engine(*input_.engine, input_.binding,
                            {ledger, *engine, sink, progress, *start, &findings_, &input_.index}));
  report.losses = std::move(findings_.losses);
  return {};
}

Result<Report> Work::run(memory::Ledger& ledger, loader::Progress* progress) {
  Report report{.output_bytes = output_bytes(), .reading = {}};
  LODE_TRY(const memory::Reservation tables,
           ledger.reserve(Tag::kMetadata, table_bytes(), "index of the prepared checkpoint"));
  if (finished_) {
    LODE_TRY_STATUS(look_at_losses(ledger, progress, report));
    return report;
  }
  LODE_TRY_STATUS(check_fits(ledger));
  // Holes that we punch change the times of the files.
  for (io::SourceFile& source : plan_.sources) source.times_count = !consumer_.is_at_work();
  LODE_TRY(const auto engine, loader::make_engine(plan_));
  report.reading = engine->description();
  LODE_TRY_STATUS(begin());
  SectionWriter writer(calls_, out_.string(), index_, *journal_, done_chunks_);
  Status status = stream(writer, *engine, ledger, progress);
  report.written_bytes = writer.written_bytes();
  report.freed_bytes = consumer_.freed_bytes();
  report.unequal_pairs = findings_.unequal_pairs;
  report.implausible_scales = findings_.implausible_scales;
  report.losses = std::move(findings_.losses);
  if (status) status = finish();
  if (status) return report;
  const Code code = status.error().code;
  const bool only_stopped = code == Code::kInterrupted || code == Code::kPressure;
  // Whoever only stops it loses nothing that was written.
  if (only_stopped) static_cast<void>(writer.finish());
  // What was allocated and not filled goes back to the disk; a failure to do so changes nothing.
  if (journal_) static_cast<void>(writer.cut_to_written());
  if (only_stopped) return stopped(writer, std::move(status).error());
  return std::move(status).error();
}

Error Work::stopped(const SectionWriter& writer, Error error) const {
  error.thing = "preparing " + out_.string();
  error.wanted = {};
  error.found = fmt::format("stopped after {} of {}",
                            human_bytes(bytes_before(index_, writer.durable_chunks())),
                            human_bytes(output_bytes()));
  error.where = {};
  error.hint = "the same command goes on from there";
  return error;
}

}  // namespace

Result<std::unique_ptr<Preparation>> Preparation::open(const Input& input,
                                                       const std::filesystem::path& out,
                                                       const Options& options,
                                                       io::SystemCalls& calls) {
  auto work = std::make_unique<Work>(input, out, options, calls);
  LODE_TRY_STATUS(work->look());
  return std::unique_ptr<Preparation>(std::move(work));
}

Result<NewFolder> plan_new_folder(const Input& input, const memory::TagBytes& held_before) {
  Work work(input, {}, {}, io::system_calls());
  LODE_TRY_STATUS(work.plan());
  return NewFolder{work.output_bytes(), work.expected_stages(held_before)};
}

}  // namespace lode::prepared
