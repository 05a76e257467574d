#include "lode/eplb/record_transfers.h"

#include <utility>

#include "lode/base/fmt.h"
#include "lode/io/checksum.h"

namespace lode::eplb {

Status RecordTransfers::start(comm::Group& group, std::span<const RecordMove> moves,
                              const RecordPlaces& places) {
  drop();
  places_ = places;
  received_sums_.resize(moves.size());
  sent_sums_.resize(moves.size());
  // Both ends of a pair go through the same list, so their messages meet in its order.
  for (const RecordMove& move : moves) {
    if (move.to_rank == group.rank()) LODE_TRY_STATUS(receive(group, move));
    if (move.from_rank == group.rank()) LODE_TRY_STATUS(send(group, move));
  }
  return {};
}

Status RecordTransfers::receive(comm::Group& group, const RecordMove& move) {
  const std::size_t entry = received_.size();
  received_.push_back(move.expert);
  senders_.push_back(move.from_rank);
  const std::span<std::byte> room =
      places_.buffer.subspan(entry * places_.record_bytes, places_.record_bytes);
  LODE_TRY(comm::Transfer record, group.receive(move.from_rank, places_.tag, room));
  transfers_.push_back(std::move(record));
  if (!places_.checksums) return {};
  const auto sum = std::as_writable_bytes(std::span(received_sums_).subspan(entry, 1));
  LODE_TRY(comm::Transfer told, group.receive(move.from_rank, places_.tag, sum));
  transfers_.push_back(std::move(told));
  return {};
}

Status RecordTransfers::send(comm::Group& group, const RecordMove& move) {
  const std::span<const std::byte> bytes =
      places_.bank.subspan(move.from_slot * places_.record_bytes, places_.record_bytes);
  LODE_TRY(comm::Transfer record, group.send(move.to_rank, places_.tag, bytes));
  transfers_.push_back(std::move(record));
  if (!places_.checksums) return {};
  const std::size_t index = num_sent_++;
  sent_sums_[index] = io::crc32c(bytes);
  const auto sum = std::as_bytes(std::span(sent_sums_).subspan(index, 1));
  LODE_TRY(comm::Transfer told, group.send(move.to_rank, places_.tag, sum));
  transfers_.push_back(std::move(told));
  return {};
}

Result<bool> RecordTransfers::complete() {
  bool complete = true;
  for (comm::Transfer& transfer : transfers_) {
    LODE_TRY(const bool one, transfer.test());
    complete = complete && one;
  }
  if (complete) transfers_.clear();
  return complete;
}

Status RecordTransfers::wait() {
  for (comm::Transfer& transfer : transfers_) LODE_TRY_STATUS(transfer.wait());
  transfers_.clear();
  return {};
}

Status RecordTransfers::check() const {
  if (!places_.checksums) return {};
  for (std::size_t entry = 0; entry < received_.size(); ++entry) {
    const std::uint32_t sum =
        io::crc32c(places_.buffer.subspan(entry * places_.record_bytes, places_.record_bytes));
    if (sum == received_sums_[entry]) continue;
    return Error{
        .code = Code::kCheckFailed,
        .thing = fmt::format("record of expert {} from rank {}", received_[entry], senders_[entry]),
        .wanted = fmt::format("CRC-32C {:08x}", received_sums_[entry]),
        .found = fmt::format("{:08x}", sum),
        .hint = "the experts stay where they were"};
  }
  return {};
}

// The last one first: a partner that still comes must not meet a later message of the same pair.
void RecordTransfers::drop() noexcept {
  while (!transfers_.empty()) transfers_.pop_back();
  received_.clear();
  senders_.clear();
  num_sent_ = 0;
}

}  // namespace lode::eplb
