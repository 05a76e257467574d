#include "lode/comm/thread_group.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/comm/failures.h"
#include "lode/comm/thread_board.h"
#include "lode/comm/thread_mail.h"

namespace lode::comm {
namespace {

// A rank's place in a communicator. It comes to each collective twice: when its spans may be read,
// and when it has read those of the others.
struct alignas(64) Seat {
  Exchange posted{};
  std::atomic<std::uint64_t> arrivals{0};
  std::atomic<bool> left{false};
};

// One communicator: a group or a duplicate of it.
struct Hub {
  Hub(std::size_t num_ranks, std::shared_ptr<ThreadBoard> shared)
      : board(std::move(shared)), seats(num_ranks) {}
  std::shared_ptr<ThreadBoard> board;
  std::vector<Seat> seats;
  ThreadMail mail;
  std::shared_ptr<Hub> next;  // a duplicate on its way from rank 0 to the others
};

class ThreadTransfer final : public PendingTransfer {
 public:
  ThreadTransfer(std::shared_ptr<Hub> hub, std::chrono::milliseconds deadline)
      : hub_(std::move(hub)), deadline_(deadline) {}
  ~ThreadTransfer() override { hub_->mail.withdraw(message); }

  Status post() { return hub_->mail.post(message, *hub_->board); }

  Result<bool> poll() override {
    LODE_TRY_STATUS(settled_status());
    const bool left = partner().left;  // before the state: what it did, it did before it left
    if (message.state == ThreadMessage::State::kDone) return true;
    if (left) return lost(std::nullopt);
    return false;
  }

  Status wait() override {
    const auto end = hub_->board->wait(deadline_, [this] {
      return message.state == ThreadMessage::State::kDone || partner().left;
    });
    if (end == ThreadBoard::Wait::kTimeout) {
      return lost(deadline_);
    }
    LODE_TRY(const bool complete, poll());
    LODE_CHECK(complete, "a message whose wait has ended is complete or has failed");
    return {};
  }

  ThreadMessage message;

 private:
  const Seat& partner() const { return hub_->seats[message.sends ? message.to : message.from]; }

  Status settled_status() {
    if (hub_->board->status()) return {};
    return hub_->board->settled_failure();
  }

  Error lost(std::optional<std::chrono::milliseconds> deadline) {
    const std::size_t here = message.sends ? message.from : message.to;
    const std::size_t other = message.sends ? message.to : message.from;
    hub_->board->raise(ranks_lost(here, subject_of_message(message.tag, message.from, message.to),
                                  {other}, deadline));
    return hub_->board->settled_failure();
  }

  std::shared_ptr<Hub> hub_;
  std::chrono::milliseconds deadline_;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(std::size_t rank, std::vector<std::size_t> node_of, std::chrono::milliseconds limit,
              std::shared_ptr<Hub> hub)
      : Group(rank, std::move(node_of), limit), hub_(std::move(hub)) {}

  ~ThreadGroup() override {
    hub_->seats[rank()].left = true;
    hub_->board->wake();
  }

  Status health() override { return hub_->board->status(); }

 private:
  Status run(const Exchange& exchange) override {
    hub_->seats[rank()].posted = exchange;
    if (!arrive_and_wait(exchange.operation)) return hub_->board->settled_failure();
    Status moved;
    const Status read = hub_->board->while_readable([&] { moved = take_from_all(exchange); });
    if (!read || !moved) return hub_->board->settled_failure();
    if (!arrive_and_wait(exchange.operation)) return hub_->board->settled_failure();
    return {};
  }

  Status arrive_and_wait(Operation operation) {
    const std::uint64_t turn = ++turns_;
    hub_->seats[rank()].arrivals = turn;
    hub_->board->wake();
    const auto end =
        hub_->board->wait(deadline(), [&] { return all_came(turn) || one_left(turn); });
    if (end == ThreadBoard::Wait::kFailed) return hub_->board->status();
    if (end == ThreadBoard::Wait::kDone && all_came(turn)) return {};
    return raise(lost(operation, turn));
  }

  bool all_came(std::uint64_t turn) const {
    for (const Seat& seat : hub_->seats) {
      if (seat.arrivals < turn) return false;
    }
    return true;
  }

  bool one_left(std::uint64_t turn) const {
    for (const Seat& seat : hub_->seats) {
      if (seat.left && seat.arrivals < turn) return true;
    }
    return false;
  }

  Error lost(Operation operation, std::uint64_t turn) const {
    const bool left = one_left(turn);  // then those that only are late are not to blame
    std::vector<std::size_t> missing;
    for (std::size_t r = 0; r < size(); ++r) {
      const Seat& seat = hub_->seats[r];
      if (seat.arrivals < turn && (seat.left || !left)) missing.push_back(r);
    }
    return ranks_lost(rank(), subject_of(operation), missing,
                      left ? std::nullopt : std::optional(deadline()));
  }

  Status take_from_all(const Exchange& mine) {
    for (std::size_t r = 0; r < size(); ++r) {
      const Exchange& theirs = hub_->seats[r].posted;
      if (theirs.operation != mine.operation || theirs.root != mine.root) {
        return raise(operations_differ(rank(), mine, r, theirs.operation, theirs.root));
      }
      if (mine.flows(r, rank())) LODE_TRY_STATUS(take_from(r, theirs, mine));
    }
    return {};
  }

  Status take_from(std::size_t from, const Exchange& theirs, const Exchange& mine) {
    const std::span<const std::byte> piece = theirs.outgoing[rank()];
    const std::span<std::byte> room = mine.incoming[from];
    if (piece.size() != room.size()) {
      return raise(sizes_differ(rank(), subject_of(mine.operation), from, room.size(),
                                fmt::format("{} bytes", piece.size())));
    }
    if (!piece.empty()) std::memcpy(room.data(), piece.data(), piece.size());
    return {};
  }

  Error raise(Error error) override { return hub_->board->raise(std::move(error)); }

  Result<Transfer> start_send(std::size_t to, std::uint32_t tag,
                              std::span<const std::byte> bytes) override {
    auto transfer = std::make_unique<ThreadTransfer>(hub_, deadline());
    transfer->message.sends = true;
    transfer->message.outgoing = bytes;
    return start(std::move(transfer), rank(), to, tag);
  }

  Result<Transfer> start_receive(std::size_t from, std::uint32_t tag,
                                 std::span<std::byte> bytes) override {
    auto transfer = std::make_unique<ThreadTransfer>(hub_, deadline());
    transfer->message.incoming = bytes;
    return start(std::move(transfer), from, rank(), tag);
  }

  Result<Transfer> start(std::unique_ptr<ThreadTransfer> transfer, std::size_t from, std::size_t to,
                         std::uint32_t tag) {
    LODE_TRY_STATUS(health());
    transfer->message.from = from;
    transfer->message.to = to;
    transfer->message.tag = tag;
    if (!transfer->post()) return hub_->board->settled_failure();
    return Transfer(std::move(transfer));
  }

  // Between two collectives, so that rank 0 keeps `next` until all have taken it.
  Result<std::unique_ptr<Group>> make_duplicate() override {
    if (rank() == 0) hub_->next = std::make_shared<Hub>(size(), hub_->board);
    const std::vector<std::span<const std::byte>> nothing_out(size());
    const std::vector<std::span<std::byte>> nothing_in(size());
    const Exchange meet{
        .operation = Operation::kDuplicate, .outgoing = nothing_out, .incoming = nothing_in};
    LODE_TRY_STATUS(run(meet));
    std::unique_ptr<Group> twin =
        std::make_unique<ThreadGroup>(rank(), node_ids(), deadline(), hub_->next);
    LODE_TRY_STATUS(run(meet));
    return twin;
  }

  std::shared_ptr<Hub> hub_;
  std::uint64_t turns_ = 0;  // arrivals of this rank
};

}  // namespace

Result<std::vector<std::unique_ptr<Group>>> make_thread_group(std::size_t num_ranks,
                                                              const GroupOptions& options) {
  if (num_ranks == 0 || num_ranks > kMaxThreadRanks) {
    return Error{.code = Code::kUsage,
                 .thing = "number of ranks",
                 .wanted = fmt::format("1 to {}", kMaxThreadRanks),
                 .found = fmt::format("{}", num_ranks)};
  }
  std::vector<std::size_t> node_of(num_ranks);
  for (std::size_t r = 0; r < num_ranks; ++r) {
    node_of[r] = options.ranks_per_node == 0 ? 0 : r / options.ranks_per_node;
  }
  const auto hub = std::make_shared<Hub>(num_ranks, std::make_shared<ThreadBoard>());
  std::vector<std::unique_ptr<Group>> group;
  for (std::size_t r = 0; r < num_ranks; ++r) {
    group.push_back(std::make_unique<ThreadGroup>(r, node_of, options.deadline, hub));
  }
  return group;
}

}  // namespace lode::comm
