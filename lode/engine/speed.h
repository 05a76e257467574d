#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/engine.h"
#include "lode/memory/ledger.h"
#include "lode/parallel/thread_pool.h"

namespace lode::engine {

/// One kind of work, timed several times over.
struct Speed {
  std::uint64_t tokens = 0;             // of one repetition
  std::vector<std::uint64_t> times_us;  // of each repetition

  double tokens_per_second() const;  // of all repetitions together
  double best_tokens_per_second() const;
};

/// What is timed.
struct SpeedTest {
  std::uint32_t tokens = 0;
  std::uint32_t repeats = 1;
  std::uint64_t distinct_ids = 0;  // few of them are served by few experts; 0: the vocabulary
};

/// Asked before each repetition; false stops the measurement.
using GoOn = std::function<bool()>;

/// Times a prompt of pseudo-random ids from an empty cache, `repeats` times after one that does not
/// count. The logits must be finite.
///
/// Errors: kUsage for no tokens, no repetition or more tokens than the context; kOther where logits
///         are not finite; kInterrupted.
Result<Speed> measure_prompt(Engine& engine, const SpeedTest& test, const GoOn& go_on = nullptr);

/// The same for its tokens one by one.
///
/// Errors: as measure_prompt.
Result<Speed> measure_decode(Engine& engine, const SpeedTest& test, const GoOn& go_on = nullptr);

/// Bytes of weights that the decoding of one token reads: all but the routed experts that are not
/// chosen and the embedding's other rows. Padding between panels counts.
std::uint64_t decode_read_bytes(const loader::LoadPlan& plan, const families::ModelSpec& spec);

/// What this machine reads from memory, all threads of `pool` summing up a block of `bytes` bytes:
/// the best of some passes, in bytes a second.
///
/// Memory: `bytes`, under kScratch while it runs.
/// Errors: kOverBudget from the ledger, kIo from the system, kUsage for less than 1 MiB.
Result<double> measure_read_bandwidth(parallel::ThreadPool& pool, memory::Ledger& ledger,
                                      std::uint64_t bytes);

}  // namespace lode::engine
