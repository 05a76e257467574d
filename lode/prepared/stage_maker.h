#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lode/base/result.h"
#include "lode/loader/plan.h"
#include "lode/loader/progress.h"
#include "lode/loader/weight_set.h"
#include "lode/memory/ledger.h"
#include "lode/prepared/checkpoint.h"

// How the slabs of a start come to hold their bytes; only start.cc includes this.

namespace lode::prepared {

/// What every way of starting works on; all of it outlives the maker.
struct StartParts {
  const Checkpoint& checkpoint;
  const loader::LoadPlan& plan;
  memory::Ledger& ledger;
  loader::Progress& progress;
};

/// Makes slabs stage by stage: `begin`, `make` for each stage in order, `end`, `weights`.
class StageMaker {
 public:
  virtual ~StageMaker() = default;

  /// `staging` is the plan's ring, for whoever wants some; it lives until `end`.
  /// Errors: kSourceChanged where a data file is not the one that was opened; kIo.
  virtual Status begin(std::span<std::byte> staging) = 0;
  /// Errors: kOverBudget, kInvalidSource, kSourceChanged, kIo, kInterrupted.
  virtual Status make(std::size_t stage_idx) = 0;
  /// Errors: as `make`.
  virtual Status end() = 0;
  /// Errors: kIo.
  virtual Result<loader::WeightSet> weights() = 0;
};

std::unique_ptr<StageMaker> make_mapper(const StartParts& parts);
std::unique_ptr<StageMaker> make_reader(const StartParts& parts, bool look_at_sums);
/// Of a checkpoint for a GPU engine: reads its tensors expert by expert, by their layouts'
/// functions, into panels. Its staging has restorer_bytes.
std::unique_ptr<StageMaker> make_restorer(const StartParts& parts);
/// What one expert's part of each tensor takes.
std::uint64_t restorer_bytes(const Index& index);

}  // namespace lode::prepared
