#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/system_calls.h"
#include "lode/loader/binding.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/plan.h"
#include "lode/loader/progress.h"
#include "lode/loader/stream.h"
#include "lode/memory/ledger.h"
#include "lode/prepared/format.h"
#include "lode/prepared/journal.h"
#include "lode/prepared/manifest.h"

namespace lode::prepared {

/// What is prepared. All of it outlives the preparation.
struct Input {
  std::filesystem::path folder;
  const checkpoint::TensorIndex& index;
  const loader::Binding& binding;
  const loader::LoadPlan& plan;
  std::string_view family;
  // For a GPU engine: what the experts become, and for whom. Null: what the plan makes of them.
  const loader::EnginePlan* engine = nullptr;
  loader::EngineChoice choice{};
};

struct Options {
  bool consume = false;  // give the blocks of the sources back behind the work
  bool force = false;    // begin again, whatever the folder holds of an earlier one
  bool strict = false;   // refuse what a GPU engine's layout would lose of the numbers
  std::uint64_t unit_bytes = kUnitBytes;  // written between two words of the journal
};

/// What came of it.
struct Report {
  std::uint64_t output_bytes = 0;   // of all data files
  std::uint64_t written_bytes = 0;  // of them, by this run
  std::uint64_t freed_bytes = 0;    // of the sources, by this run
  std::string reading;              // how the sources were read, in the words of the engine
  // For a GPU engine: experts, of those made by this run, whose gate and up have different scales.
  std::uint64_t unequal_pairs = 0;
  // Of their matrices: second-level scales that look like the other dialect's.
  std::uint64_t implausible_scales = 0;
  // Of these experts too: what the engine's layout lost.
  std::vector<loader::LayerLosses> losses{};
};

/// One preparation of a checkpoint, from the first byte or from where an earlier one was stopped.
///
/// At every instant OUT is nothing, or the beginning of a preparation (it has a journal and no
/// manifest), or a prepared checkpoint; whatever stops it, a crash or a lost power line included,
/// the same call goes on from the last unit that was on the disk.
class Preparation {
 public:
  /// Looks at OUT: decides whether to begin, to go on, or that all is done. Nothing of the sources
  /// but headers is read, and nothing is written: whatever is refused leaves OUT as it was.
  ///
  /// Errors: kUsage where OUT is no folder, is the source, lies in it, or holds something else, or
  ///         something begun with other settings; kSourceChanged where it was begun from other
  ///         files; kNoSpace naming what is missing; kIo; kInvalidSource for sources that were
  ///         given away.
  static Result<std::unique_ptr<Preparation>> open(const Input& input,
                                                   const std::filesystem::path& out,
                                                   const Options& options,
                                                   io::SystemCalls& calls = io::system_calls());
  virtual ~Preparation() = default;

  /// Whether OUT is already what it would become.
  virtual bool is_finished() const = 0;
  /// Bytes of OUT that an earlier run has made.
  virtual std::uint64_t done_bytes() const = 0;
  virtual std::uint64_t output_bytes() const = 0;

  /// Metadata that `run` holds throughout: index, sums, their bytes when they are written.
  virtual std::uint64_t table_bytes() const = 0;
  /// What the ledger will have recorded when `run` has run, byte for byte.
  virtual std::vector<memory::StageUse> expected_stages(
      const memory::TagBytes& held_before = {}) const = 0;

  /// Takes OUT and does the work. What OUT had of an earlier preparation that is not gone on with
  /// is dropped only now. Where losses are refused, what an earlier run has made is looked at
  /// again, also of a preparation that is finished.
  ///
  /// Memory: that of loader::stream, and the index.
  /// Errors: kOverBudget before anything is written; kIo where another preparation is at work in
  ///         OUT; kCheckFailed naming layer, expert and tensor of a loss that is refused; those of
  ///         loader::stream; kNoSpace, kIo naming file and call. OUT can be gone on
  ///         with.
  virtual Result<Report> run(memory::Ledger& ledger, loader::Progress* progress = nullptr) = 0;
};

/// What a preparation into a folder that is not there yet makes and holds.
struct NewFolder {
  std::uint64_t output_bytes = 0;
  std::vector<memory::StageUse> stages;  // as `Preparation::expected_stages`
};
/// No OUT is looked at, nor whether the disk has room.
/// Errors: kInvalidSource, kIo from the sources' headers.
Result<NewFolder> plan_new_folder(const Input& input, const memory::TagBytes& held_before = {});

}  // namespace lode::prepared
