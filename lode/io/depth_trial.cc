#include "lode/io/depth_trial.h"

#include <algorithm>

#include "lode/base/bytes.h"

namespace lode::io {
namespace {

constexpr std::uint64_t kLargestPieceBytes = 2 * kMiB;
constexpr std::uint64_t kSmallestPieceBytes = 256 * kKiB;

}  // namespace

DepthTrial::DepthTrial(std::uint64_t most_bytes_at_once) {
  for (const std::uint32_t num_reads : {8U, 16U, 32U}) {
    const std::uint64_t bytes = most_bytes_at_once / num_reads / kSmallestPieceBytes;
    const std::uint64_t piece = std::min(bytes * kSmallestPieceBytes, kLargestPieceBytes);
    if (!depths_.empty() && piece == 0) break;
    depths_.push_back({num_reads, std::max(piece, kSmallestPieceBytes)});
  }
  settled_ = depths_.size() == 1;
}

void DepthTrial::came(std::uint64_t bytes, std::uint64_t now_us) {
  if (settled_) return;
  if (!started_) begin_us_ = now_us;
  if (started_) bytes_ += bytes;
  started_ = true;
  const std::uint64_t passed = now_us - begin_us_;
  if (passed < kSliceUs) return;
  speeds_.push_back(static_cast<double>(bytes_) * 1e6 / static_cast<double>(passed));
  begin_us_ = now_us;
  bytes_ = 0;
  if (++current_ < depths_.size()) return;
  current_ = 0;
  for (std::size_t i = 1; i < depths_.size(); ++i) {
    if (speeds_[i] > kLeastGain * speeds_[current_]) current_ = i;
  }
  settled_ = true;
}

}  // namespace lode::io
