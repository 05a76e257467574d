#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "lode/base/result.h"
#include "lode/io/read_engine.h"
#include "lode/loader/plan.h"
#include "lode/loader/progress.h"
#include "lode/loader/weight_set.h"
#include "lode/memory/ledger.h"
#include "lode/prepared/checkpoint.h"

namespace lode::prepared {

/// How the sections of a prepared checkpoint become weights.
enum class Start : std::uint8_t {
  kMap,      // mapped as they are: nothing is read before it is used
  kRead,     // read into memory of our own, past the page cache
  kRestore,  // tensors of a GPU engine, read and brought to panels by their layouts' functions
};
/// What can be done with this checkpoint, where nobody named one: `usual`, or kRestore.
Start possible_start(const Checkpoint& checkpoint, Start usual) noexcept;
/// Errors: kUsage where this checkpoint cannot start in the way that was named.
Status check_start(const Checkpoint& checkpoint, Start named);
std::string_view name(Start start) noexcept;
/// Errors: kUsage for a word that is none.
Result<Start> parse_start(std::string_view word);

struct StartPolicy {
  Start start = Start::kMap;
  Verification verification = Verification::kHeader;
  std::uint32_t threads = 2;  // that look at sums (kMap), or read (kRead)

  friend bool operator==(const StartPolicy&, const StartPolicy&) = default;
};

/// The schedule of a start, for the same plans and receipts that a load has: the stages and slabs
/// that the loader made, byte for byte, and no ring.
loader::LoadPlan load_plan(const Checkpoint& checkpoint, const StartPolicy& policy);

/// Makes the weights of a checkpoint that check_model has accepted. No work is done per tensor.
/// What the ledger records is `plan.expected_stages`. `progress` may be null.
///
/// kMap looks at the sums that the policy wants (the pages it reads stay in the page cache, which
/// holds the weights from then on), then maps. kRead reads every section with the sums looked at on
/// the way, unless the policy is kNone.
///
/// Memory:  the plan's.
/// Errors:  kOverBudget; kInvalidSource naming section, file and offset of a chunk that is damaged;
///          kSourceChanged where a data file is no longer the one that was opened; kIo;
///          kInterrupted.
Result<loader::WeightSet> start(const Checkpoint& checkpoint, const loader::LoadPlan& plan,
                                const StartPolicy& policy, memory::Ledger& ledger,
                                loader::Progress* progress = nullptr);

}  // namespace lode::prepared
