#include "lode/prepared/chunk_check.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <tuple>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/io/checksum.h"
#include "lode/parallel/thread_pool.h"

namespace lode::prepared {
namespace {

constexpr std::uint64_t kSampleStep = 61;  // of the chunks of a section, about one in so many

// Data files, open for as long as the check lasts.
class DataFiles {
 public:
  explicit DataFiles(io::SystemCalls& calls) : calls_(calls) {}
  ~DataFiles() {
    for (const int descriptor : descriptors_) {
      if (descriptor >= 0) calls_.close(descriptor);
    }
  }
  DataFiles(const DataFiles&) = delete;
  DataFiles& operator=(const DataFiles&) = delete;

  Status open(const std::vector<io::SourceFile>& files) {
    for (const io::SourceFile& file : files) {
      if (file.path.empty()) {  // one that is passed over
        descriptors_.push_back(-1);
        continue;
      }
      const int descriptor = calls_.open(file.path, O_RDONLY | O_NONBLOCK, 0);
      if (descriptor < 0) return io::system_error(file.path, "open", descriptor);
      descriptors_.push_back(descriptor);
    }
    return {};
  }
  int operator[](std::size_t file_idx) const { return descriptors_[file_idx]; }

 private:
  io::SystemCalls& calls_;
  std::vector<int> descriptors_;
};

std::uint64_t bytes_of_chunk(const Index& index, std::uint64_t chunk) {
  const Section& section = section_of(index, chunk);
  return std::min(kChunkBytes, section.bytes - (chunk - section.first_chunk) * kChunkBytes);
}

std::vector<std::uint64_t> chosen_chunks(const Index& index, const ChunkCheck& check) {
  std::vector<std::uint64_t> chunks;
  const auto is_without = [&check](const Section& section) {
    return std::ranges::find(check.without_files, section.file_idx) != check.without_files.end();
  };
  for (const Section& section : index.sections) {
    if (is_without(section)) continue;
    const std::uint64_t count = section.num_chunks();
    for (std::uint64_t i = 0; i < count; ++i) {
      // Another remainder in each section, so that the samples are not all alike.
      const bool chosen = !check.sampled || i == 0 || i + 1 == count ||
                          i % kSampleStep == (section.first_chunk * 7) % kSampleStep;
      if (chosen) chunks.push_back(section.first_chunk + i);
    }
  }
  return chunks;
}

class Checker {
 public:
  Checker(const Checkpoint& checkpoint, const ChunkCheck& check, io::SystemCalls& calls)
      : checkpoint_(checkpoint), check_(check), calls_(calls), files_(calls) {}

  Status open() { return files_.open(checkpoint_.files); }
  void look_at(std::uint64_t chunk_idx, std::span<std::byte> buffer);
  ChunkReport report() &&;

 private:
  Result<std::uint32_t> sum_of(const Section& section, std::uint64_t file_offset,
                               std::uint64_t bytes, std::span<std::byte> buffer);
  Status read_into(const Section& section, std::uint64_t file_offset, std::span<std::byte> out);

  const Checkpoint& checkpoint_;
  const ChunkCheck& check_;
  io::SystemCalls& calls_;
  DataFiles files_;
  std::mutex mutex_;  // guards the report
  ChunkReport report_;
};

Status Checker::read_into(const Section& section, std::uint64_t file_offset,
                          std::span<std::byte> out) {
  const std::string& path = checkpoint_.files[section.file_idx].path;
  while (!out.empty()) {
    const std::int64_t got = calls_.pread(files_[section.file_idx], out, file_offset);
    if (got == -EINTR) continue;
    if (got < 0) return io::system_error(path, fmt::format("read at byte {}", file_offset), got);
    if (got == 0) {
      return Error{.code = Code::kSourceChanged,
                   .thing = path,
                   .found = fmt::format("its end at byte {}", file_offset)};
    }
    file_offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Result<std::uint32_t> Checker::sum_of(const Section& section, std::uint64_t file_offset,
                                      std::uint64_t bytes, std::span<std::byte> buffer) {
  std::uint32_t sum = 0;
  for (std::uint64_t at = 0; at < bytes; at += buffer.size()) {
    const auto piece =
        buffer.first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), bytes - at)));
    LODE_TRY_STATUS(read_into(section, file_offset + at, piece));
    sum = io::crc32c(piece, sum);
  }
  if (!check_.keep_in_cache) calls_.drop_cache(files_[section.file_idx], file_offset, bytes);
  return sum;
}

void Checker::look_at(std::uint64_t chunk_idx, std::span<std::byte> buffer) {
  const Section& section = section_of(checkpoint_.index, chunk_idx);
  const std::uint64_t offset = (chunk_idx - section.first_chunk) * kChunkBytes;
  const std::uint64_t bytes = std::min(kChunkBytes, section.bytes - offset);
  const std::uint64_t file_offset = section.file_offset_bytes + offset;
  const auto sum = sum_of(section, file_offset, bytes, buffer);
  const std::uint32_t wanted = checkpoint_.index.chunk_crcs[chunk_idx];
  const std::scoped_lock lock(mutex_);
  report_.num_chunks += 1;
  report_.num_bytes += bytes;
  if (sum && *sum == wanted) return;
  report_.faults.push_back({.file = checkpoint_.files[section.file_idx].path,
                            .file_offset_bytes = file_offset,
                            .bytes = bytes,
                            .section = section_name(checkpoint_.index, section),
                            .section_offset_bytes = offset,
                            .found = sum ? fmt::format("sum {:08x}, not {:08x}", *sum, wanted)
                                         : to_string(sum.error())});
}

ChunkReport Checker::report() && {
  std::vector<ChunkFault> single = std::exchange(report_.faults, {});
  std::sort(single.begin(), single.end(), [](const ChunkFault& a, const ChunkFault& b) {
    return std::tie(a.file, a.file_offset_bytes) < std::tie(b.file, b.file_offset_bytes);
  });
  report_.num_bad_chunks = single.size();
  for (ChunkFault& fault : single) {
    ChunkFault* const last = report_.faults.empty() ? nullptr : &report_.faults.back();
    if (last != nullptr && last->section == fault.section &&
        last->section_offset_bytes + last->bytes == fault.section_offset_bytes) {
      last->bytes += fault.bytes;
      last->num_chunks += 1;
    } else {
      report_.faults.push_back(std::move(fault));
    }
  }
  return std::move(report_);
}

}  // namespace

std::string section_name(const Index& index, const Section& section) {
  const std::string& stage = index.stages[section.stage_idx].name;
  return section.kind == SectionKind::kDense ? stage : "experts of " + stage;
}

const Section& section_of(const Index& index, std::uint64_t chunk_idx) {
  const auto after = std::upper_bound(
      index.sections.begin(), index.sections.end(), chunk_idx,
      [](std::uint64_t chunk, const Section& section) { return chunk < section.first_chunk; });
  LODE_CHECK(after != index.sections.begin(), "a chunk before the first section");
  return *(after - 1);
}

Error to_error(const ChunkFault& fault) {
  return {
      .code = Code::kInvalidSource,
      .thing = fault.section,
      .wanted = fmt::format("what was prepared in its bytes {} to {}", fault.section_offset_bytes,
                            fault.section_offset_bytes + fault.bytes),
      .found = fault.num_chunks == 1 ? fault.found
                                     : fmt::format("{} chunks that are not, the first: {}",
                                                   fault.num_chunks, fault.found),
      .where = fmt::format("{} at byte {}", fault.file, fault.file_offset_bytes),
      .hint = "`lode verify` lists all that is damaged; prepare the checkpoint again"};
}

Result<ChunkReport> check_chunks(const Checkpoint& checkpoint, const ChunkCheck& check,
                                 std::span<std::byte> buffers, loader::Progress* progress,
                                 io::SystemCalls& calls) {
  LODE_CHECK(buffers.size() >= check.threads * kCheckBufferBytes, "a buffer for each thread");
  loader::Progress unread;
  loader::Progress& told = progress != nullptr ? *progress : unread;
  Checker checker(checkpoint, check, calls);
  LODE_TRY_STATUS(checker.open());
  const std::vector<std::uint64_t> chunks = chosen_chunks(checkpoint.index, check);
  parallel::ThreadPool pool(check.threads);
  pool.run(chunks.size(), [&](std::size_t task, std::size_t worker) {
    if (told.cancel.load(std::memory_order_relaxed)) return;
    checker.look_at(chunks[task], buffers.subspan(worker * kCheckBufferBytes, kCheckBufferBytes));
    told.finished_bytes.fetch_add(bytes_of_chunk(checkpoint.index, chunks[task]),
                                  std::memory_order_relaxed);
  });
  if (told.cancel.load()) return Error{.code = Code::kInterrupted, .thing = "looking at the sums"};
  return std::move(checker).report();
}

}  // namespace lode::prepared
