#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lode/engine/prepare_run.h"
#include "lode/json/json.h"

namespace lode::engine {

/// Planned and actual bytes of one preparation, side by side. What was not measured is absent.
struct PrepareReceipt {
  std::string model;  // the source folder's name
  std::string dense;  // "as-stored", "int8"
  std::uint32_t load_threads = 0;
  std::string io;  // how the source was read, in the words of the engine
  std::uint64_t limit_bytes = 0;
  std::uint64_t planned_peak_bytes = 0;
  std::uint64_t peak_bytes = 0;  // of the ledger
  std::uint64_t source_bytes = 0;
  prepared::Report report;
  std::uint64_t run_us = 0;
  std::vector<memory::StageUse> planned;
  std::vector<memory::StageUse> actual;
  std::uint64_t num_samples = 0;                 // of what is held
  std::optional<std::uint64_t> peak_held_bytes;  // the most of them: above the baseline
  std::optional<std::uint64_t> held_bytes;       // at the end, counted page by page
  std::optional<std::uint64_t> source_cache_bytes;

  /// Whether the ledger recorded what the plan said, byte for byte.
  bool as_planned() const { return planned == actual; }
};

/// Of a preparation that has come to its end; `run_us` and what the kernel saw are for the caller.
PrepareReceipt make_receipt(const PrepareRun& run, const Source& source,
                            const prepared::Report& report, const memory::Ledger& ledger);

json::Value as_json(const PrepareReceipt& receipt);

/// "flushed_scales: 12 block scales that ... (layer 0: 7, layer 3: 5)", a line for each; nothing
/// where nothing was lost.
std::string losses_text(const std::vector<loader::LayerLosses>& losses);

/// A few lines for people.
std::string as_text(const PrepareReceipt& receipt);

}  // namespace lode::engine
