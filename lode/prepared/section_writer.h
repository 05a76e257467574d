#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lode/io/system_calls.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/stream.h"
#include "lode/prepared/format.h"
#include "lode/prepared/journal.h"
#include "lode/prepared/output_file.h"

namespace lode::prepared {

/// Writes chunks to the data files and says in the journal what is on the disk, unit by unit.
class SectionWriter final : public loader::ChunkSink {
 public:
  /// Told after each unit how many chunks are on the disk by now.
  using OnDurable = std::function<Status(std::uint64_t num_chunks)>;

  /// Goes on behind `durable_chunks`; the sums go to `index`. All that is given outlives this.
  SectionWriter(io::SystemCalls& calls, std::string folder, Index& index, Journal& journal,
                std::uint64_t durable_chunks);

  void on_durable(OnDurable told) { on_durable_ = std::move(told); }
  void set_unit_bytes(std::uint64_t bytes) { most_unit_bytes_ = bytes; }

  /// Cuts the data files down to what was written and no further, and removes those that have
  /// nothing: gives room back that was taken for more, and forgets what no journal speaks of.
  /// Errors: kIo.
  Status cut_to_written();

  /// Errors: kNoSpace, kIo naming the file.
  Status put(const loader::ChunkRun& run) override;

  /// Brings the last unit to the disk.
  /// Errors: kNoSpace, kIo.
  Status finish();

  std::uint64_t durable_chunks() const noexcept { return durable_chunks_; }
  std::uint64_t written_bytes() const noexcept { return written_bytes_; }

 private:
  const Section& section_of(std::uint64_t chunk) const;
  Status begin_section(const Section& section, std::uint64_t from_bytes);
  Status open_file(std::uint32_t file_idx);
  Status commit();

  io::SystemCalls& calls_;
  const std::string folder_;
  Index& index_;
  Journal& journal_;
  OnDurable on_durable_;
  OutputFile file_;
  std::uint32_t file_idx_ = 0;
  std::uint64_t begun_section_ = ~0ULL;  // its first chunk
  std::uint64_t next_chunk_ = 0;         // to be written
  std::uint64_t durable_chunks_ = 0;
  std::uint64_t most_unit_bytes_ = kUnitBytes;
  std::uint64_t unit_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
};

/// Where a stream of so many stages goes on when so many chunks are done.
loader::StreamStart stream_start(const Index& index, std::uint64_t num_chunks,
                                 std::size_t num_stages);
/// Where the banks of a GPU engine go on then.
loader::EngineStart engine_start(const Index& index, std::uint64_t num_chunks);

}  // namespace lode::prepared
