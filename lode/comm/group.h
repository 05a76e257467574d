#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/comm/exchange.h"
#include "lode/comm/transfer.h"

namespace lode::comm {

struct GroupOptions {
  /// The longest that any wait for other ranks may take before they count as lost.
  std::chrono::milliseconds deadline{60'000};
  /// Threads as ranks: how many make up a node; 0: all of them. MPI asks the machines.
  std::size_t ranks_per_node = 0;
};

/// A year: what is added to a clock without overflow.
inline constexpr std::chrono::hours kMaxDeadline{24 * 365};

/// The largest tag of a send: what every MPI in use can carry.
inline constexpr std::uint32_t kMaxTag = (1u << 23) - 1;

/// Ranks that work together, seen from one of them: a handle that one thread at a time uses.
///
/// Collectives are entered by all ranks in the same order, also by those that have nothing to give.
/// Messages go straight between pairs (built for tens of ranks, not thousands). Sending and
/// receiving spans of one call must not overlap, but for a rank's own piece of all_gather.
///
/// A group fails once and for all: after the first failure (`fail`, a lost peer, sizes or
/// operations that do not match) every call of every rank, also of its duplicates, returns that
/// same Error, and waits end at once. An Error of `agree` or of an argument of `send` and `receive`
/// is no failure.
///
/// Memory:  48 bytes a rank and 4 KiB. Bytes are moved from span to span; MPI holds messages of a
///          few KiB that arrive early, and its own segments.
/// Errors:  each collective: the Error the group has failed with; kPeerLost when a rank has left or
///          does not come within the deadline; kOther when spans, sizes or operations of the ranks
///          do not match. Any of these fails the group.
class Group {
 public:
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group() = default;

  std::size_t rank() const noexcept { return rank_; }
  std::size_t size() const noexcept { return node_of_.size(); }

  /// Nodes (machines) are numbered by their lowest rank.
  std::size_t node_of(std::size_t rank) const { return node_of_[rank]; }
  std::size_t num_nodes() const noexcept;

  std::chrono::milliseconds deadline() const noexcept { return deadline_; }
  /// For the calls to come: a phase in which ranks are apart for long (loading) wants a longer one.
  /// At most kMaxDeadline.
  void set_deadline(std::chrono::milliseconds deadline) noexcept;

  /// Returns when all ranks have come. Errors: see the class.
  Status barrier();

  /// all = mine of rank 0, of rank 1, ...; the same number of bytes from each. `mine` may be its
  /// own place in `all`. Errors: see the class.
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all);

  /// all = mine of rank 0, of rank 1, ...; `bytes[r]` of rank r, known to all.
  /// Errors: see the class.
  Status all_gather_v(std::span<const std::byte> mine, std::span<std::byte> all,
                      std::span<const std::size_t> bytes);

  /// An equal piece to each rank, in rank order, and one from each. Errors: see the class.
  Status all_to_all(std::span<const std::byte> send, std::span<std::byte> receive);

  /// `send_bytes[r]` bytes to rank r, one after the other in `send`; `receive_bytes[r]` from it, as
  /// rank r says too (exchange_rows.h finds them out). Errors: see the class.
  Status all_to_all_v(std::span<const std::byte> send, std::span<const std::size_t> send_bytes,
                      std::span<std::byte> receive, std::span<const std::size_t> receive_bytes);

  /// `bytes` of `root` to all others; the same size and root everywhere. Errors: see the class.
  Status broadcast(std::span<std::byte> bytes, std::size_t root);

  /// Whether it went well everywhere. All ranks get the same: nothing, or the Error of the lowest
  /// rank that had one, with "rank R" before its place (and the first 400 bytes of each part of
  /// it). The group lives on. Errors: that one; or see the class.
  Status agree(const Status& mine);

  /// Starts to send `bytes` to another rank, which receives as many with the same tag; those of one
  /// pair and tag arrive in order. Errors: kUsage for the own rank, one that is not there, or a tag
  /// over kMaxTag; the group's.
  Result<Transfer> send(std::size_t to, std::uint32_t tag, std::span<const std::byte> bytes);
  /// The other end. Errors: as `send`.
  Result<Transfer> receive(std::size_t from, std::uint32_t tag, std::span<std::byte> bytes);

  /// A group of the same ranks whose messages never meet those of this one: for migrations beside
  /// the forward pass, in another thread if one likes. A collective. It shares the fate of this
  /// one. Errors: see the class.
  Result<std::unique_ptr<Group>> duplicate();

  /// Ends the work of all ranks: each gets `error` (its place preceded by "rank R") from the call
  /// it is in, or from its next one. Does nothing if the group has failed already.
  void fail(Error error);

  /// Whether the group has failed, without waiting. Errors: the one it has failed with.
  virtual Status health() = 0;

 protected:
  Group(std::size_t rank, std::vector<std::size_t> node_of, std::chrono::milliseconds deadline);

  const std::vector<std::size_t>& node_ids() const noexcept { return node_of_; }
  Error place(Error error) const;  // with "rank R" before its place

 private:
  // Carries out one collective; a failure has failed the group.
  virtual Status run(const Exchange& exchange) = 0;
  // Fails the group if it has not yet failed; the Error it has failed with.
  virtual Error raise(Error error) = 0;
  virtual Result<Transfer> start_send(std::size_t to, std::uint32_t tag,
                                      std::span<const std::byte> bytes) = 0;
  virtual Result<Transfer> start_receive(std::size_t from, std::uint32_t tag,
                                         std::span<std::byte> bytes) = 0;
  virtual Result<std::unique_ptr<Group>> make_duplicate() = 0;

  Status refuse(Operation operation, std::string wanted, std::string found);
  Status run_pieces(Operation operation, std::size_t root);
  Status check_partner(std::size_t partner, std::uint32_t tag) const;

  std::size_t rank_;
  std::vector<std::size_t> node_of_;
  std::chrono::milliseconds deadline_;
  std::vector<std::span<const std::byte>> outgoing_;  // by rank, filled anew by each call
  std::vector<std::span<std::byte>> incoming_;
};

/// The group of one rank: every call returns at once.
std::unique_ptr<Group> make_single_group();

}  // namespace lode::comm
