#include "lode/prepared/section_writer.h"

#include <algorithm>
#include <utility>

#include "lode/base/check.h"
#include "lode/io/checksum.h"

namespace lode::prepared {
namespace {

std::uint64_t section_idx_of(const Index& index, std::uint64_t chunk) {
  const auto after = std::upper_bound(
      index.sections.begin(), index.sections.end(), chunk,
      [](std::uint64_t wanted, const Section& section) { return wanted < section.first_chunk; });
  LODE_CHECK(after != index.sections.begin(), "the first section begins with the first chunk");
  return static_cast<std::uint64_t>(after - index.sections.begin()) - 1;
}

}  // namespace

SectionWriter::SectionWriter(io::SystemCalls& calls, std::string folder, Index& index,
                             Journal& journal, std::uint64_t durable_chunks)
    : calls_(calls),
      folder_(std::move(folder)),
      index_(index),
      journal_(journal),
      next_chunk_(durable_chunks),
      durable_chunks_(durable_chunks) {}

const Section& SectionWriter::section_of(std::uint64_t chunk) const {
  return index_.sections[section_idx_of(index_, chunk)];
}

Status SectionWriter::open_file(std::uint32_t file_idx) {
  if (file_.is_open() && file_idx == file_idx_) return {};
  const bool made = !file_.is_open() || file_idx != file_idx_;
  LODE_TRY(file_, OutputFile::open(calls_, folder_ + "/" + data_file_name(file_idx),
                                   OutputFile::Way::kDirect));
  file_idx_ = file_idx;
  // A record of the journal is about a file that has a name on the disk.
  return made ? sync_folder(calls_, folder_) : Status{};
}

// Not to what we know to be on the disk: the last record may be there though its sync failed.
Status SectionWriter::cut_to_written() {
  file_ = {};
  std::uint64_t end_bytes = 0;
  std::uint32_t file_idx = 0;
  if (next_chunk_ > 0) {
    const Section& section = section_of(next_chunk_ - 1);
    file_idx = section.file_idx;
    end_bytes = section.file_offset_bytes +
                std::min(section.bytes, (next_chunk_ - section.first_chunk) * kChunkBytes);
  }
  const std::size_t num_files = file_bytes(index_.sections).size();
  for (std::size_t i = file_idx; i < num_files; ++i) {
    const std::string path = folder_ + "/" + data_file_name(i);
    if (i > file_idx || end_bytes == 0) {
      LODE_TRY_STATUS(remove_file(calls_, path));
      continue;
    }
    LODE_TRY(OutputFile file, OutputFile::open(calls_, path, OutputFile::Way::kBuffered));
    LODE_TRY(const std::uint64_t size, file.size());
    if (size < end_bytes) {
      return Error{.code = Code::kIo,
                   .thing = path,
                   .wanted = "what the journal says was written",
                   .found = "a shorter file",
                   .hint = "--force begins again"};
    }
    LODE_TRY_STATUS(file.truncate(end_bytes));
  }
  return {};
}

Status SectionWriter::begin_section(const Section& section, std::uint64_t from_bytes) {
  begun_section_ = section.first_chunk;
  if (file_.is_open() && section.file_idx != file_idx_) LODE_TRY_STATUS(commit());
  LODE_TRY_STATUS(open_file(section.file_idx));
  return file_.allocate(section.file_offset_bytes + from_bytes, section.bytes - from_bytes);
}

Status SectionWriter::put(const loader::ChunkRun& run) {
  const Section& section = section_of(next_chunk_);
  const bool dense = section.kind == SectionKind::kDense;
  LODE_CHECK(section.stage_idx == run.stage_idx && dense == (run.slab == loader::Slab::kDense) &&
                 run.offset_bytes == (next_chunk_ - section.first_chunk) * kChunkBytes &&
                 run.offset_bytes + run.bytes.size() <= section.bytes,
             "chunks come in the order of the sections");
  if (section.first_chunk != begun_section_) {
    LODE_TRY_STATUS(begin_section(section, run.offset_bytes));
  }
  LODE_TRY_STATUS(file_.write(run.bytes, section.file_offset_bytes + run.offset_bytes));
  for (std::span<const std::byte> left = run.bytes; !left.empty();) {
    const auto chunk = left.first(std::min<std::size_t>(left.size(), kChunkBytes));
    index_.chunk_crcs[next_chunk_++] = io::crc32c(chunk);
    left = left.subspan(chunk.size());
  }
  unit_bytes_ += run.bytes.size();
  written_bytes_ += run.bytes.size();
  return unit_bytes_ >= most_unit_bytes_ ? commit() : Status{};
}

// Data first, then the word that it is there.
Status SectionWriter::commit() {
  if (next_chunk_ == durable_chunks_) return {};
  LODE_TRY_STATUS(file_.sync_data());
  const auto crcs =
      std::span(index_.chunk_crcs).subspan(durable_chunks_, next_chunk_ - durable_chunks_);
  LODE_TRY_STATUS(journal_.add_chunks(durable_chunks_, crcs));
  durable_chunks_ = next_chunk_;
  unit_bytes_ = 0;
  return on_durable_ ? on_durable_(durable_chunks_) : Status{};
}

Status SectionWriter::finish() { return commit(); }

loader::StreamStart stream_start(const Index& index, std::uint64_t num_chunks,
                                 std::size_t num_stages) {
  if (num_chunks == index.num_chunks()) return {.stage_idx = num_stages};
  const Section& section = index.sections[section_idx_of(index, num_chunks)];
  if (section.kind == SectionKind::kEngineBank) return {.stage_idx = num_stages};
  return {section.stage_idx,
          section.kind == SectionKind::kDense ? loader::Slab::kDense : loader::Slab::kBank,
          (num_chunks - section.first_chunk) * kChunkBytes};
}

loader::EngineStart engine_start(const Index& index, std::uint64_t num_chunks) {
  if (num_chunks == index.num_chunks()) return {.bank_idx = index.engine_banks.size()};
  const std::size_t section_idx = section_idx_of(index, num_chunks);
  const Section& section = index.sections[section_idx];
  if (section.kind != SectionKind::kEngineBank) return {};
  const std::size_t num_dense = index.sections.size() - index.engine_banks.size();
  return {section_idx - num_dense, (num_chunks - section.first_chunk) * kChunkBytes};
}

}  // namespace lode::prepared
