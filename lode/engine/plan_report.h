#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lode/engine/run_plan.h"
#include "lode/engine/source.h"

namespace lode::engine {

/// How well a number of a plan is known.
enum class Mark : std::uint8_t {
  kExact,    // to the byte
  kBounded,  // never more than this
};
std::string_view name(Mark mark) noexcept;

/// One row of a plan's table: a stage, or several layers in a row that take the same.
struct PlanRow {
  std::string stage;  // "layer 0-23"; the numbers are those at the end of the last of them
  Mark adds{};        // how well what this stage adds is known
  std::uint64_t final_bytes = 0;       // stays for the whole run: weights, keys and values, ...
  std::uint64_t transient_bytes = 0;   // given back before the run begins
  std::uint64_t page_table_bytes = 0;  // of both
  std::uint64_t cache_bytes = 0;       // of the sources in the page cache; estimated
  std::uint64_t total_bytes = 0;       // the stage's peak in the ledger; the cache is not in it
  std::int64_t headroom_bytes = 0;     // of the budget
  std::string first_limit;             // the least limit that is exceeded, or "-"
};

/// A budget below `need_bytes` (but not below what the stages before need) ends in this stage.
struct BreakPoint {
  std::string stage;
  std::uint64_t need_bytes = 0;
};

/// What keys and values take, split into what grows with the context and what does not.
struct KvReport {
  std::uint32_t full_layers = 0;
  std::uint32_t windowed_layers = 0;
  std::uint64_t bytes_per_token = 0;  // of the full layers
  std::uint64_t windowed_bytes = 0;   // of all windowed layers together, at this context
};

/// A plan in the words of its table.
struct PlanReport {
  std::vector<PlanRow> rows;
  std::vector<BreakPoint> breaks;  // the highest need first
  KvReport kv;
  std::uint32_t largest_context_tokens = 0;  // that fits; 0: none does
  std::uint64_t largest_block_bytes = 0;     // contiguous: a slab, the ring, keys and values
  std::string largest_block;                 // which of them
  std::uint64_t prepared_bytes = 0;          // of weights that `lode prepare` would write
  std::vector<Advice> advice;
};

/// Errors: those of `advice`.
Result<PlanReport> report_of(const RunPlan& plan, const Source& source);

/// Whether a plan that fits does so with less than a fiftieth of the budget to spare, or less than
/// 64 MiB of a budget above 3.2 GB.
bool fits_barely(const RunPlan& plan);

}  // namespace lode::engine
