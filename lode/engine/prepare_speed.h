#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/result.h"
#include "lode/targets/target.h"

namespace lode::engine {

/// One transform of a layer's tensor, and memcpy of as many bytes, in turns: within a round they
/// follow one another, so that what disturbs the machine disturbs both.
struct TransformSpeed {
  std::string name;                      // "marlin nvfp4 w13_weight"
  std::uint64_t bytes = 0;               // that it writes
  std::uint64_t scratch_bytes = 0;       // of scratch: neither source nor result
  std::vector<std::uint64_t> times_us;   // of each round
  std::vector<std::uint64_t> copies_us;  // memcpy of `bytes` by as many threads

  /// Medians over the rounds.
  double bytes_per_second() const;
  double of_memcpy() const;
};

struct PrepareSpeedSettings {
  std::uint64_t num_experts = 16;
  std::uint64_t hidden = 7168;
  std::uint64_t intermediate = 2048;
  std::optional<targets::Target> target;  // none: all, and the transforms in place
  std::size_t num_threads = 2;
  std::uint32_t rounds = 5;
  std::uint64_t limit_bytes = 0;  // for all that is measured with
};

/// What was measured, and what was not.
struct PrepareSpeeds {
  std::vector<TransformSpeed> transforms;
  std::uint64_t num_small = 0;    // tensors of less than kLeastMeasuredBytes
  std::uint64_t num_refused = 0;  // targets from an encoding, whose kernels do not take the sizes
};
inline constexpr std::uint64_t kLeastMeasuredBytes =
    2 * kMiB;  // less is over before the clock sees

/// Makes every larger tensor of a layer for every target from every encoding that it takes, from
/// memory to memory; and does in place what can be done so. Numbers are made up: speed does not
/// depend on them.
///
/// Memory: source, result and one copy of it, of one tensor at a time.
/// Errors: kUsage where sizes are none, or no tensor is large enough; kOverBudget naming what fits,
///         before anything is measured; kIo from the system, kInterrupted.
Result<PrepareSpeeds> measure_prepare(const PrepareSpeedSettings& settings,
                                      const std::function<bool()>& go_on = nullptr);

}  // namespace lode::engine
