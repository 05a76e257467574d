#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "lode/base/result.h"
#include "lode/comm/group.h"
#include "lode/eplb/record_transfers.h"
#include "lode/eplb/step_plan.h"
#include "lode/memory/buffer.h"
#include "lode/memory/ledger.h"
#include "lode/moe/expert_places.h"

namespace lode::eplb {

struct MigrationOptions {
  /// The most bytes of records that a rank receives, and sends, in one step: its buffer.
  std::uint64_t step_bytes = std::uint64_t{256} << 20;
  /// Every record is followed by its CRC-32C, and one that does not match ends the migration.
  bool checksums = false;
};

/// One layer on its way to another map. A record is whatever bytes an expert has, all together:
/// weights, scales, biases, factors that were derived from them; nobody looks into it.
struct LayerMove {
  std::size_t layer = 0;
  placement::ExpertMap target;
  std::span<std::byte> bank;  // of this rank: a record for every slot, also for empty ones
  std::uint64_t record_bytes = 0;
};

/// What step() did.
struct StepReport {
  bool committed = false;            // records and map have changed
  bool layer_done = false;           // and the layer has come to its target
  std::size_t records_received = 0;  // from other ranks
  std::size_t records_copied = 0;    // written to slots
  std::uint64_t bytes_received = 0;
  std::chrono::nanoseconds waited{0};  // for other ranks
  std::chrono::nanoseconds copied{0};  // time of the copies to slots
};

/// Moves records of one layer at a time to where a new map wants them, beside the forward passes:
/// begin() and step() are called between two passes, by all ranks between the same two, and the
/// records travel while passes run. It works in steps, each of them bounded in bytes: records come
/// into a buffer; all ranks agree that all has come, and come well; then all ranks copy the buffer
/// to the slots and replace the layer's map. So tables and weights change together, on all ranks
/// between the same two passes.
///
/// On any failure before that every rank keeps the map it has and no weight has changed: the old
/// map, or where a layer takes several steps the one of the last step that all ranks finished,
/// which holds every expert as well. After an Error that has not failed the group (a refused
/// reservation, a checksum) passes can go on and a migration can be begun anew.
///
/// Memory:  nothing while idle; else a buffer of the records that this rank receives in a step
///          (staging), and tables of a few numbers a slot.
class Migration {
 public:
  /// Collective: makes its messages a communicator of their own, that shares the fate of the group
  /// of `places`. Both arguments by reference outlive it.
  /// Errors:  those of comm::Group.
  static Result<Migration> make(moe::ExpertPlaces& places, memory::Ledger& ledger,
                                const MigrationOptions& options);

  bool busy() const noexcept { return move_.has_value(); }

  /// Begins to move a layer, unless it lies where it should already. Collective; not while busy.
  ///
  /// Errors:  the same on every rank, that of the lowest that has one: kUsage for a map of other
  ///          sizes, a bank without a record for every slot, or a step smaller than a record;
  ///          kOverBudget where the buffer does not fit; kOther where ranks do not move the same;
  ///          those of comm::Group. Idle then.
  Status begin(LayerMove move);

  /// Looks after the records on their way, and when they have come on all ranks finishes the step
  /// and begins the next. Collective, a byte a rank; copies records, else does not wait for any.
  /// Does nothing while idle.
  ///
  /// Errors:  the same on every rank: kCheckFailed for a record with another checksum; those of
  ///          comm::Group. Idle then.
  Result<StepReport> step();

  /// Lets what is on its way arrive and drops it. Collective; idle then.
  /// Errors:  those of comm::Group.
  Status drain();

 private:
  enum class Phase : std::uint8_t { kMoving, kArrived, kBad };

  Migration(moe::ExpertPlaces& places, memory::Ledger& ledger, const MigrationOptions& options,
            std::unique_ptr<comm::Group> group);
  Status check(const LayerMove& move) const;
  Status make_buffer(const LayerMove& move);
  Status agree_on(const LayerMove& move, const Status& ready);
  Status start_step();
  Result<Phase> phase_here();
  Result<Phase> phase_of_all(Phase mine);
  Result<StepReport> look();
  Result<StepReport> commit();
  void abandon() noexcept;

  std::size_t max_records(const LayerMove& move) const noexcept {
    return static_cast<std::size_t>(options_.step_bytes / move.record_bytes);
  }

  moe::ExpertPlaces* places_;
  memory::Ledger* ledger_;
  MigrationOptions options_;
  std::unique_ptr<comm::Group> group_;

  std::optional<LayerMove> move_;
  memory::Buffer buffer_;
  std::optional<MigrationStep> step_;
  Status checked_;             // of what has come
  RecordTransfers transfers_;  // last: it takes its bytes back before the buffer goes
};

/// The most that a migration takes of the ledger (staging, and its page tables): that of a rank
/// whose slots all change, no more than a step's.
memory::BufferCost migration_cost(std::size_t slots_per_rank, std::uint64_t record_bytes,
                                  std::uint64_t step_bytes) noexcept;

}  // namespace lode::eplb
