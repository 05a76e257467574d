#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lode::io {

/// Finds out how many reads at once the disk likes, from the load's own reads: each depth gets its
/// tenth of a second in turn, then the best is kept. Bytes under way are the same for all of them,
/// so deeper means smaller pieces.
class DepthTrial {
 public:
  struct Depth {
    std::uint32_t num_reads = 8;
    std::uint64_t piece_bytes = 2 * 1024 * 1024;
  };
  static constexpr std::uint64_t kSliceUs = 100'000;
  /// A deeper queue has to be better by this to be taken: noise alone must not shrink pieces.
  static constexpr double kLeastGain = 1.05;

  explicit DepthTrial(std::uint64_t most_bytes_at_once);

  const Depth& now() const noexcept { return depths_[current_]; }
  bool settled() const noexcept { return settled_; }
  /// Bytes a second of each depth that was tried, in the order of `depths`.
  const std::vector<double>& speeds() const noexcept { return speeds_; }
  const std::vector<Depth>& depths() const noexcept { return depths_; }

  /// Ends the trial before it has begun.
  void keep_first() noexcept { settled_ = true; }
  /// `bytes` came at `now_us` of any clock. The first call starts it.
  void came(std::uint64_t bytes, std::uint64_t now_us);

 private:
  std::vector<Depth> depths_;
  std::vector<double> speeds_;
  std::size_t current_ = 0;
  bool settled_ = false;
  bool started_ = false;
  std::uint64_t begin_us_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace lode::io
