#include "lode/comm/group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/comm/error_record.h"
#include "lode/comm/fate.h"

namespace lode::comm {
namespace {

// The sum, or nothing where it does not fit into a size.
bool adds_up(std::span<const std::size_t> parts, std::size_t whole) {
  for (const std::size_t part : parts) {
    if (part > whole) return false;
    whole -= part;
  }
  return whole == 0;
}

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
}

}  // namespace

std::string_view name_of(Operation operation) noexcept {
  static constexpr std::array<std::string_view, 6> kNames = {
      "barrier", "all_gather", "all_to_all", "broadcast", "duplicate", "the end"};
  return kNames[static_cast<std::size_t>(operation)];
}

Result<bool> Transfer::test() {
  if (pending_ == nullptr) return true;
  LODE_TRY(const bool complete, pending_->poll());
  if (complete) pending_.reset();
  return complete;
}

Status Transfer::wait() {
  if (pending_ == nullptr) return {};
  LODE_TRY_STATUS(pending_->wait());
  pending_.reset();
  return {};
}

Group::Group(std::size_t rank, std::vector<std::size_t> node_of, std::chrono::milliseconds deadline)
    : rank_(rank),
      node_of_(std::move(node_of)),
      outgoing_(node_of_.size()),
      incoming_(node_of_.size()) {
  set_deadline(deadline);
}

void Group::set_deadline(std::chrono::milliseconds deadline) noexcept {
  deadline_ =
      std::clamp<std::chrono::milliseconds>(deadline, std::chrono::milliseconds(0), kMaxDeadline);
}

std::size_t Group::num_nodes() const noexcept {
  return node_of_.empty() ? 0 : 1 + *std::max_element(node_of_.begin(), node_of_.end());
}

Error Group::place(Error error) const { return at_rank(rank_, std::move(error)); }

void Group::fail(Error error) { raise(place(std::move(error))); }

// The others would wait for a rank that does not come: they are told.
Status Group::refuse(Operation operation, std::string wanted, std::string found) {
  return raise(place({.thing = fmt::format("{} between ranks", name_of(operation)),
                      .wanted = std::move(wanted),
                      .found = std::move(found)}));
}

Status Group::run_pieces(Operation operation, std::size_t root) {
  copy(outgoing_[rank_], incoming_[rank_]);
  return run({.operation = operation, .root = root, .outgoing = outgoing_, .incoming = incoming_});
}

Status Group::barrier() {
  std::fill(outgoing_.begin(), outgoing_.end(), std::span<const std::byte>());
  std::fill(incoming_.begin(), incoming_.end(), std::span<std::byte>());
  return run_pieces(Operation::kBarrier, 0);
}

Status Group::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() / size() != mine.size() || all.size() % size() != 0) {
    return refuse(Operation::kAllGather, fmt::format("{} ranks x {} bytes", size(), mine.size()),
                  fmt::format("room for {} bytes", all.size()));
  }
  for (std::size_t r = 0; r < size(); ++r) {
    outgoing_[r] = mine;
    incoming_[r] = all.subspan(r * mine.size(), mine.size());
  }
  return run_pieces(Operation::kAllGather, 0);
}

Status Group::all_gather_v(std::span<const std::byte> mine, std::span<std::byte> all,
                           std::span<const std::size_t> bytes) {
  if (bytes.size() != size() || bytes[rank_] != mine.size() || !adds_up(bytes, all.size())) {
    return refuse(Operation::kAllGather,
                  fmt::format("a size for each of {} ranks, its own, and their sum", size()),
                  fmt::format("{} sizes, {} bytes to give, room for {} bytes", bytes.size(),
                              mine.size(), all.size()));
  }
  std::size_t at = 0;
  for (std::size_t r = 0; r < size(); at += bytes[r++]) {
    outgoing_[r] = mine;
    incoming_[r] = all.subspan(at, bytes[r]);
  }
  return run_pieces(Operation::kAllGather, 0);
}

Status Group::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) {
  if (send.size() != receive.size() || send.size() % size() != 0) {
    return refuse(Operation::kAllToAll,
                  fmt::format("as many bytes in and out, for {} ranks", size()),
                  fmt::format("{} bytes out, room for {}", send.size(), receive.size()));
  }
  const std::size_t bytes = send.size() / size();
  for (std::size_t r = 0; r < size(); ++r) {
    outgoing_[r] = send.subspan(r * bytes, bytes);
    incoming_[r] = receive.subspan(r * bytes, bytes);
  }
  return run_pieces(Operation::kAllToAll, 0);
}

Status Group::all_to_all_v(std::span<const std::byte> send, std::span<const std::size_t> send_bytes,
                           std::span<std::byte> receive,
                           std::span<const std::size_t> receive_bytes) {
  const bool fits = send_bytes.size() == size() && receive_bytes.size() == size() &&
                    adds_up(send_bytes, send.size()) && adds_up(receive_bytes, receive.size());
  if (!fits || send_bytes[rank_] != receive_bytes[rank_]) {
    return refuse(
        Operation::kAllToAll,
        fmt::format("sizes for {} ranks that add up to the spans, the own one equal", size()),
        fmt::format("{} and {} sizes, {} bytes out, room for {}", send_bytes.size(),
                    receive_bytes.size(), send.size(), receive.size()));
  }
  std::size_t out = 0, in = 0;
  for (std::size_t r = 0; r < size(); ++r) {
    outgoing_[r] = send.subspan(std::exchange(out, out + send_bytes[r]), send_bytes[r]);
    incoming_[r] = receive.subspan(std::exchange(in, in + receive_bytes[r]), receive_bytes[r]);
  }
  return run_pieces(Operation::kAllToAll, 0);
}

Status Group::broadcast(std::span<std::byte> bytes, std::size_t root) {
  if (root >= size()) {
    return refuse(Operation::kBroadcast, fmt::format("a root below {}", size()),
                  fmt::format("{}", root));
  }
  std::fill(outgoing_.begin(), outgoing_.end(), bytes);
  std::fill(incoming_.begin(), incoming_.end(), std::span<std::byte>());
  outgoing_[rank_] = {};
  if (rank_ != root) incoming_[root] = bytes;
  return run_pieces(Operation::kBroadcast, root);
}

Status Group::agree(const Status& mine) {
  const std::byte failed{static_cast<unsigned char>(mine ? 0 : 1)};
  std::vector<std::byte> all(size());
  LODE_TRY_STATUS(all_gather({&failed, 1}, all));
  const auto first = std::find(all.begin(), all.end(), std::byte{1});
  if (first == all.end()) return {};
  const auto root = static_cast<std::size_t>(first - all.begin());
  ErrorRecord record{};
  if (root == rank_) record = write_error_record(mine.error());
  LODE_TRY_STATUS(broadcast(record, root));
  return at_rank(root, read_error_record(record));
}

Status Group::check_partner(std::size_t partner, std::uint32_t tag) const {
  if (partner != rank_ && partner < size() && tag <= kMaxTag) return {};
  return Error{
      .code = Code::kUsage,
      .thing = "message between ranks",
      .wanted = fmt::format("another rank below {} and a tag of at most {}", size(), kMaxTag),
      .found = fmt::format("rank {}, tag {}", partner, tag),
      .where = fmt::format("rank {}", rank_)};
}

Result<Transfer> Group::send(std::size_t to, std::uint32_t tag, std::span<const std::byte> bytes) {
  LODE_TRY_STATUS(check_partner(to, tag));
  return start_send(to, tag, bytes);
}

Result<Transfer> Group::receive(std::size_t from, std::uint32_t tag, std::span<std::byte> bytes) {
  LODE_TRY_STATUS(check_partner(from, tag));
  return start_receive(from, tag, bytes);
}

Result<std::unique_ptr<Group>> Group::duplicate() { return make_duplicate(); }

}  // namespace lode::comm
