#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/comm/group.h"
#include "lode/eplb/step_plan.h"

namespace lode::eplb {

/// Where the records of a step lie on this rank.
///
/// Shapes:  bank [slots][record_bytes]; buffer [records received][record_bytes].
struct RecordPlaces {
  std::span<const std::byte> bank{};
  std::span<std::byte> buffer{};
  std::size_t record_bytes = 0;
  std::uint32_t tag = 0;  // of the messages
  bool checksums = false;
};

/// The records of one step on their way from and to one rank. Bank and buffer outlive it.
class RecordTransfers {
 public:
  RecordTransfers() = default;
  RecordTransfers(RecordTransfers&&) noexcept = default;
  RecordTransfers& operator=(RecordTransfers&&) = delete;
  ~RecordTransfers() { drop(); }

  /// Starts to receive the records that come to this rank and to send those that leave it, and
  /// returns. Errors:  those of comm::Group.
  Status start(comm::Group& group, std::span<const RecordMove> moves, const RecordPlaces& places);

  /// Whether all of them are complete. Does not wait. Errors:  those of comm::Transfer.
  Result<bool> complete();
  /// Returns when they are. Errors:  those of comm::Transfer.
  Status wait();

  /// Whether every record that came has the sum that its sender told. Nothing without checksums.
  /// Errors:  kCheckFailed naming the expert and the sender.
  Status check() const;

  /// Experts that came or come, entry by entry of the buffer.
  std::span<const std::int32_t> received() const noexcept { return received_; }
  /// Takes back what is not complete.
  void drop() noexcept;

 private:
  Status send(comm::Group& group, const RecordMove& move);
  Status receive(comm::Group& group, const RecordMove& move);

  RecordPlaces places_;
  std::vector<std::int32_t> received_;
  std::vector<std::size_t> senders_;                      // of the same
  std::vector<std::uint32_t> received_sums_, sent_sums_;  // as long as they get, from the start
  std::size_t num_sent_ = 0;
  std::vector<comm::Transfer> transfers_;  // last: they take their bytes back before these go
};

}  // namespace lode::eplb
