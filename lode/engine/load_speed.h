#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/source.h"
#include "lode/loader/plan.h"
#include "lode/memory/ledger.h"

namespace lode::engine {

/// One timed pass over the bytes of a model.
struct Pass {
  std::uint64_t bytes = 0;
  std::uint64_t time_us = 0;
  std::uint64_t cpu_us = 0;  // of all threads of the process, in the program and in the kernel

  double bytes_per_second() const noexcept;
  double cpu_seconds_per_gb() const noexcept;
};

/// A kind of pass, and one of it for each round.
struct PassKind {
  std::string_view name;  // "raw", "cold", ...
  std::string how;        // which engine, with what
  std::vector<Pass> rounds;
};

/// What a load is measured against, kinds of passes in turns: within a round they follow one
/// another, so that what disturbs the machine disturbs them all.
///
///   raw       past the page cache into a small ring, by eight reads of 2 MiB at once: the disk
///   cold      the load as its policy says, with the files out of the page cache
///   buffered  the same, through the page cache
///   warm      the load with the files in the page cache; not where memory has no room for both
///   ring      the same files out of the page cache into a small ring and by memcpy into new memory
///   copy      as many bytes copied to memory that is there, by as many threads as load
///   fresh     the same to new memory, which the kernel must clear first
struct LoadSpeed {
  std::uint64_t source_bytes = 0;  // of the files
  std::vector<PassKind> kinds;

  const PassKind* find(std::string_view name) const noexcept;
  /// One kind over another, round by round; empty where one of them was not measured.
  std::vector<double> ratios(std::string_view kind, std::string_view over) const;
};

struct LoadSpeedSettings {
  loader::LoadPolicy policy;
  std::uint32_t rounds = 5;
  std::uint64_t limit_bytes = 0;      // for the weights and what loads them
  std::uint64_t available_bytes = 0;  // of the machine: a warm load needs files and weights
};

/// Loads the weights again and again and frees them. The page cache of the files is dropped first
/// and last. `go_on` is asked before each pass; false stops the measurement.
///
/// Errors: those of loader::execute; kInterrupted.
Result<LoadSpeed> measure_load(const Source& source, const LoadSpeedSettings& settings,
                               const std::function<bool()>& go_on = nullptr);

}  // namespace lode::engine
