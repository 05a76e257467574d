#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/engine/ranks.h"
#include "lode/engine/source.h"
#include "lode/eplb/rebalancer.h"
#include "lode/loader/engine_plan.h"
#include "lode/loader/plan.h"
#include "lode/memory/budget.h"
#include "lode/memory/ledger.h"
#include "lode/model/model.h"
#include "lode/prepared/start.h"

namespace lode::engine {

/// What the user may choose about a run. 0 means: take the default for this model and machine.
struct Settings {
  std::optional<std::uint64_t> memory_bytes;  // the budget; default: what is available less a floor
  std::uint32_t context_tokens = 0;           // default: the model's own limit, at most 4096
  bool context_auto = false;                  // instead: the largest context that fits
  std::uint32_t threads = 0;                  // default: the processors this process may use
  ops::Mode mode = ops::Mode::kFast;
  std::optional<ops::KvFormat> kv_format;  // default: f16 in fast mode, f32 in exact mode
  std::uint32_t chunk_tokens = 256;        // rows of one pass at most
  std::uint32_t logits_rows = 1;           // positions whose logits are kept at once
  loader::LoadPolicy load{};
  loader::ExpertScratch scratch{};  // of preparations for GPU engines
  // Of a prepared checkpoint, which is what it was made to be: `load` can change nothing about it,
  // and a load.dense that was named must be what it has.
  prepared::StartPolicy start{};
  bool start_is_named = false;  // else what is possible
  bool dense_is_named = false;
  RankSettings ranks{};
};

/// What one run will hold: the loader's schedule and all that comes after it, against a budget.
struct RunPlan {
  Settings settings;  // that it was made from
  memory::MachineMemory machine;
  memory::Budget budget;
  std::uint32_t context_tokens = 0;
  std::uint32_t threads = 1;
  std::uint32_t logits_rows = 1;
  model::ModelOptions model;
  loader::LoadPlan load;
  std::vector<placement::ExpertMap> maps;  // [layers]: which rank has which expert; of one: none
  bool is_prepared = false;  // the weights are what they are: no setting makes others of them
  // --ctx auto found none that fits: this plan is for a small one, and does not fit.
  bool no_context_fits = false;

  std::uint64_t other_ranks_bytes = 0;   // that the other ranks of this machine need
  std::uint64_t program_bytes = 0;       // of the program itself, its compute threads included
  std::uint64_t metadata_bytes = 0;      // index, binding, tokenizer, and the program itself
  std::uint64_t reading_bytes = 0;       // of the tokenizer, for a while
  std::uint64_t kv_bytes = 0;            // of one sequence of context_tokens, as mapped
  std::uint64_t scratch_bytes = 0;       // activations, tiles, logits, sampler
  eplb::BalancingCost balancing;         // of experts that move between ranks
  std::vector<memory::StageUse> stages;  // what the ledger of the run will record, byte for byte

  std::uint64_t peak_bytes() const;
  std::uint64_t load_peak_bytes() const;  // of the stages before "work"
  /// Of a prepared checkpoint: its files are the weights, nothing is read before it is used.
  bool maps_weights() const { return is_prepared && settings.start.start == prepared::Start::kMap; }
  bool fits() const { return peak_bytes() <= budget.limit_bytes; }
};

/// Whether the files have the experts as a GPU engine's kernels read them: they are made into
/// Lode's own form at the start, which is slow.
inline bool is_restored(const RunPlan& plan) {
  return plan.is_prepared && plan.settings.start.start == prepared::Start::kRestore;
}

/// Bytes that the ledger does not see one by one: code and data of the program and its libraries,
/// small blocks of malloc, the page tables of all this; and for each compute thread what it touches
/// of its stack, and the kernel's. 3 MiB are the libraries of MPI, which are there though it is not
/// started. Charged as metadata from the start. Source: docs/budget.md,
/// measured; tests/e2e/contract_matrix.py holds it against runs.
inline constexpr std::uint64_t kProgramBytes = 14ULL << 20;
inline constexpr std::uint64_t kThreadBytes = 32ULL << 10;
/// More of the program where the sums of a prepared checkpoint are looked at: the library that
/// makes SHA-256 sets itself up.
inline constexpr std::uint64_t kSumsBytes = 3ULL << 20;

/// Plans a run of `source` on this machine. Reads no weight. Exact once open_tokenizer has been
/// called; before, what the tokenizer takes is bounded by the size of its file. Of several ranks on
/// one machine it is the plan of one; its budget is what the others leave.
///
/// Errors: kUsage for a setting that the model cannot take; kUnsupported for ranks of a prepared
///         checkpoint that is not mapped; those of loader::plan_load.
Result<RunPlan> plan_run(const Source& source, const Settings& settings,
                         const memory::MachineMemory& machine);

/// The largest context that fits the plan's budget with everything else as it is; 0 where none
/// does: a stage that no context changes is over it.
std::uint32_t largest_context(const RunPlan& plan, const Source& source);

/// One change of the settings that would lower a plan's peak.
struct Advice {
  std::string setting;            // as typed: "--ctx 2048"
  std::uint64_t peak_bytes = 0;   // of the plan with that change alone
  std::uint64_t saved_bytes = 0;  // against the plan without it
};

/// What would lower the peak of `plan`: each change planned by itself, the one that saves most
/// first. The context that fits (or half of one that fits), a smaller chunk, f16 keys and values,
/// int8 matrices outside the experts, one thread. Where none of them fits alone, all together with
/// the largest context that then fits, if there is one.
///
/// Errors: those of plan_run.
Result<std::vector<Advice>> advice(const RunPlan& plan, const Source& source);

/// The first stage that does not fit, or null where all do.
const memory::StageUse* first_over(const RunPlan& plan);

/// Errors: kOverBudget naming need, have, the largest consumer and the settings that fit, the one
///         that saves most first.
Status check_fits(const RunPlan& plan, const Source& source);

}  // namespace lode::engine
