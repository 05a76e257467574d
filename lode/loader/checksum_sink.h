#pragma once

#include <cstdint>
#include <vector>

#include "lode/io/checksum.h"
#include "lode/loader/drain.h"

namespace lode::loader {

/// Keeps nothing of a stream but the CRC-32C of every chunk, in order: proves what a model of any
/// size would become, and what making it holds.
/// Memory: 4 bytes for each 2 MiB.
class ChecksumSink final : public ChunkSink {
 public:
  /// Errors: none.
  Status put(const ChunkRun& run) override {
    for (std::span<const std::byte> left = run.bytes; !left.empty();) {
      const auto chunk = left.first(std::min<std::size_t>(left.size(), ChunkRun::kChunkBytes));
      crcs_.push_back(io::crc32c(chunk));
      left = left.subspan(chunk.size());
    }
    bytes_ += run.bytes.size();
    return {};
  }
  const std::vector<std::uint32_t>& crcs() const noexcept { return crcs_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::uint32_t> crcs_;
  std::uint64_t bytes_ = 0;
};

}  // namespace lode::loader
