#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lode/layout/code_counts.h"
#include "lode/parallel/thread_pool.h"
#include "lode/targets/experts.h"

namespace lode::targets {

/// What a layout of an engine cannot hold of a checkpoint's numbers. The bytes are the engine's
/// all the same; whoever prepares says how much it was.
/// Source: weight_layouts 1.7, 1.8, 1.10, 2.5, 2.9, 3.2.
enum class Loss : std::uint8_t {
  kFlushedScales,
  kNegativeScales,
  kSaturatedScales,
  kOverflowedScales,
  kRaisedScales,
  kRoundedScales,
  kRoundedNumbers,
  kFoldedScales,
  kNarrowedScales,
  kNanBlocks,
};
inline constexpr std::size_t kNumLosses = 10;

/// Who does not get an engine's bytes that have lost so.
enum class Refusal : std::uint8_t {
  kNobody,  // what all of a layout's numbers go through is only told
  kStrict,  // who wants every number as it is: he can do without the target
  kAlways,  // nothing of use is left
};

struct LossInfo {
  Loss loss;
  std::string_view name;     // "flushed_scales", as in receipts
  std::string_view meaning;  // what it is that is counted
  Refusal refused = Refusal::kStrict;
};
/// Every loss, in the order of the enum.
std::span<const LossInfo> loss_table() noexcept;
const LossInfo& info(Loss loss) noexcept;

/// How many numbers of a checkpoint were lost, by the way they were.
class LossCounts {
 public:
  std::uint64_t of(Loss loss) const noexcept { return counts_[static_cast<std::size_t>(loss)]; }
  void add(Loss loss, std::uint64_t count) noexcept {
    counts_[static_cast<std::size_t>(loss)] += count;
  }
  LossCounts& operator+=(const LossCounts& other) noexcept;
  bool any() const noexcept;
  /// The first that is refused, if there is one: always, or to who is strict.
  std::optional<Loss> first_refused(bool is_strict) const noexcept;

  friend bool operator==(const LossCounts&, const LossCounts&) = default;

 private:
  std::array<std::uint64_t, kNumLosses> counts_{};
};

/// One expert's part of one tensor, as it is about to be made.
struct LossRequest {
  std::size_t tensor_idx = 0;
  std::uint64_t expert_idx = 0;  // of this rank
  const ExpertSource& source;
  const LayerScalars& scalars;
  // Of the rows of block scales that the tensor needs, if their numbers are bytes and whoever asks
  // has counted them already.
  const layout::CodeCounts* scale_codes = nullptr;
  parallel::ThreadPool* pool = nullptr;
};

/// What becomes of each of 256 codes; nothing where it is held.
using Fates = std::array<std::optional<Loss>, 256>;

/// Adds how often each code has its fate.
void count_fates(const Fates& fates, const std::array<std::uint64_t, 256>& codes,
                 LossCounts& losses) noexcept;

/// E4M3 scales that take up a factor and are rounded to E4M3 once; what rounds to another number
/// than the product is `rounded`, a product above 448 saturates.
Fates fates_of_scaled_e4m3(float factor, Loss rounded) noexcept;

/// The counts of `rows`, the caller's if he has them.
layout::CodeCounts scale_codes_of(const LossRequest& request, const layout::MatrixRows& rows);

}  // namespace lode::targets
