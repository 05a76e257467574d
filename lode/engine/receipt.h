#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/comm/group.h"
#include "lode/engine/run_plan.h"
#include "lode/engine/source.h"
#include "lode/json/json.h"
#include "lode/memory/held_probe.h"
#include "lode/memory/ledger.h"

namespace lode::engine {

/// What the kernel saw while a model was loaded, sampled at 50 Hz or more. Receipts leave out what
/// was not measured: peaks without samples, and what has no value.
struct KernelFigures {
  std::uint64_t num_samples = 0;
  std::uint64_t peak_held_bytes = 0;  // anonymous, shared and page tables above the baseline
  std::uint64_t peak_over_finished_bytes = 0;  // the most that held exceeded finished weights
  std::uint64_t held_bytes = 0;                // at the end, counted page by page
  std::uint64_t peak_total_bytes = 0;          // of the whole process during the load, code and all
  // Of what was read, in the page cache at the end. Not of files that are mapped, nor where the
  // system does not say.
  std::optional<std::uint64_t> source_cache_bytes{};
};

/// What one rank of several holds and has read. All ranks know it of all.
struct RankFigures {
  std::uint64_t planned_peak_bytes = 0;
  std::uint64_t peak_bytes = 0;  // of its ledger
  std::uint64_t weight_bytes = 0;
  std::uint64_t expert_records = 0;  // of all layers
  std::uint64_t expert_bytes = 0;    // of these records
  std::uint64_t read_bytes = 0;      // of the checkpoint's files
  std::uint64_t as_planned = 0;      // 1: its ledger is its plan
};

/// Collects them. Collective.
/// Errors: those of comm::Group.
Result<std::vector<RankFigures>> gather_figures(comm::Group& group, const RankFigures& own);

/// What a run was asked to be: plans and receipts with other answers cannot agree.
struct RunLabel {
  std::string model;  // the folder's name
  std::uint32_t context_tokens = 0;
  bool context_auto = false;
  std::uint32_t threads = 0;
  std::uint32_t chunk_tokens = 0;
  std::uint32_t load_threads = 0;
  std::uint32_t logits_rows = 0;
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;
  std::uint32_t redundant_experts = 0;
  std::string compute;   // "exact", "fast"
  std::string kv_dtype;  // "f32", "f16"
  std::string dense;     // "as-stored", "int8"
  std::string target;    // that the weights lie for in the files: "cpu"
  std::string start;     // "load"; of a prepared checkpoint "map", "read", "restore"
  std::string verify;    // of a prepared checkpoint; empty of another
  std::string io;        // as asked for; empty where nothing is read
};
RunLabel label_of(const RunPlan& plan, const Source& source);
json::Value as_json(const RunLabel& label);

/// Planned and actual bytes of one run, side by side.
struct Receipt {
  RunLabel run;
  std::uint64_t limit_bytes = 0;
  std::uint64_t planned_peak_bytes = 0;
  std::uint64_t planned_load_peak_bytes = 0;  // of the process, until the weights are there
  std::uint64_t peak_bytes = 0;               // of the ledger
  std::uint64_t weight_bytes = 0;
  std::uint64_t padding_bytes = 0;
  std::uint64_t load_us = 0;
  std::uint64_t source_bytes = 0;  // of all tensors in the files
  std::string io;                  // how the files were read, in the words of the engine
  std::vector<memory::StageUse> planned;
  std::vector<memory::StageUse> actual;
  KernelFigures kernel;
  std::vector<RankFigures> ranks{};  // of more ranks than one, this one among them

  /// Whether the ledger recorded what the plan said, byte for byte.
  bool as_planned() const { return planned == actual; }
};

/// This rank's own, where `read_bytes` were read for its weights.
RankFigures figures_of(const Receipt& receipt, const RunPlan& plan, std::uint64_t read_bytes);

Receipt make_receipt(const RunPlan& plan, const Source& source, const memory::Ledger& ledger);

json::Value as_json(const Receipt& receipt);

/// A few lines for people.
std::string as_text(const Receipt& receipt);

}  // namespace lode::engine
