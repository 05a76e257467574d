#include "lode/prepared/verify.h"

#include <utility>

#include "lode/memory/buffer.h"
#include "lode/prepared/checkpoint.h"
#include "lode/prepared/chunk_check.h"

namespace lode::prepared {
namespace {

using memory::Tag;

constexpr std::uint64_t kStackBytes = 256 * kKiB;

void note(VerifyReport& report, Status status) {
  if (!status) report.faults.push_back(std::move(status).error());
}

// Finds the data files; those that cannot be opened are to be passed over.
std::vector<std::uint32_t> find_files(Checkpoint& checkpoint, VerifyReport& report) {
  std::vector<std::uint32_t> missing;
  for (std::size_t i = 0; i < checkpoint.manifest.data_file_bytes.size(); ++i) {
    auto file = find_data_file(checkpoint, i);
    if (file) {
      note(report, check_size(checkpoint, i, *file));
      checkpoint.files.push_back(*std::move(file));
      report.num_files += 1;
    } else {
      report.faults.push_back(std::move(file).error());
      checkpoint.files.emplace_back();
      missing.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return missing;
}

}  // namespace

Result<VerifyReport> verify(const std::filesystem::path& folder, std::uint32_t threads,
                            memory::Ledger& ledger, loader::Progress* progress) {
  VerifyReport report;
  auto head = read_head(folder);
  if (!head && head.error().code == Code::kInvalidSource) {
    report.faults.push_back(std::move(head).error());
    return report;
  }
  LODE_TRY(Checkpoint checkpoint, std::move(head));
  LODE_TRY(const memory::Reservation metadata,
           ledger.reserve(Tag::kMetadata, checkpoint.held_bytes(), "index"));
  LODE_TRY(const memory::Reservation stacks,
           ledger.reserve(Tag::kScratch, threads * kStackBytes, "stacks"));
  LODE_TRY(memory::Buffer buffers,
           memory::make_buffer(ledger, Tag::kStaging, threads * kCheckBufferBytes,
                               "buffers of the threads that look at sums"));
  note(report, check_root(checkpoint));
  for (const Companion& companion : checkpoint.manifest.companions) {
    note(report, check_companion(folder, companion));
    report.num_companions += 1;
  }
  const ChunkCheck check{.threads = threads, .without_files = find_files(checkpoint, report)};
  if (progress != nullptr) progress->total_bytes.store(checkpoint.data_bytes());
  LODE_TRY(const ChunkReport chunks, check_chunks(checkpoint, check, buffers.mutate(), progress));
  for (const ChunkFault& fault : chunks.faults) {
    report.faults.push_back(to_error(fault));
    report.faults.back().hint.clear();  // to look for all of them
  }
  report.num_chunks = chunks.num_chunks;
  report.num_bytes = chunks.num_bytes;
  return report;
}

}  // namespace lode::prepared
