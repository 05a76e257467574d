#include "lode/comm/mpi_group.h"

#include <mpi.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lode/base/fmt.h"
#include "lode/comm/error_record.h"
#include "lode/comm/failures.h"
#include "lode/comm/fate.h"
#include "lode/comm/node_numbers.h"

// Only pairwise messages that do not block, so that every wait is a loop of ours, which looks at
// the clock and at the notices of failure between two looks at MPI. MPI's own collectives cannot be
// left once entered.
//
// After a failure MPI is not called any more in this process: it might go on with messages whose
// spans their callers have freed.
namespace lode::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNoticeTag = 1;                         // on the control communicator
constexpr std::chrono::seconds kLastWords{2};         // for the notices of a failure to go round
constexpr std::chrono::milliseconds kHeadStart{300};  // of the rank that says it

void sleep_for(std::chrono::microseconds time) {
  const timespec span{.tv_sec = 0, .tv_nsec = time.count() * 1000};
  nanosleep(&span, nullptr);
}

// The messages of one collective or of one transfer. The arrays never move while requests are out.
struct Messages {
  std::vector<MPI_Request> requests;
  std::vector<MPI_Status> statuses;
  std::vector<std::size_t> partners;
  std::vector<std::size_t> sizes;
  std::size_t num_receives = 0;  // they come first
  std::size_t total_bytes = 0;
  const Exchange* collective = nullptr;  // null: of a transfer

  int count() const { return static_cast<int>(requests.size()); }
  void clear() {
    for (auto* list : {&partners, &sizes}) list->clear();
    requests.clear();
    collective = nullptr;
    num_receives = total_bytes = 0;
  }
};

int tag_of(const Exchange& exchange) {
  return static_cast<int>(exchange.operation) + 8 * static_cast<int>(exchange.root);
}

// A long message as one element of a type of its own; `count` of `type` otherwise.
struct Extent {
  Extent(std::size_t bytes, std::size_t block_bytes) {
    if (bytes <= block_bytes) {
      count = static_cast<int>(bytes);
      return;
    }
    MPI_Datatype block;
    MPI_Type_contiguous(static_cast<int>(block_bytes), MPI_BYTE, &block);
    const std::size_t blocks = bytes / block_bytes;
    const int lengths[] = {static_cast<int>(blocks), static_cast<int>(bytes % block_bytes)};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(blocks * block_bytes)};
    const MPI_Datatype types[] = {block, MPI_BYTE};
    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&block);
    count = 1;
    own = true;
  }
  Extent(const Extent&) = delete;
  ~Extent() {
    if (own) MPI_Type_free(&type);  // MPI keeps it for the messages that use it
  }
  MPI_Datatype type = MPI_BYTE;
  int count = 0;
  bool own = false;
};

// What all groups of the process share: the lock round every call of MPI (so that MPI need not let
// several threads in at once), the failure, and the notices by which ranks tell each other of it.
class World {
 public:
  World(std::size_t rank, std::size_t size, std::size_t block_bytes)
      : rank_(rank),
        block_bytes_(std::clamp<std::size_t>(block_bytes, 1, std::numeric_limits<int>::max())),
        spokesman_(rank),
        heard_(size, false) {
    MPI_Comm_dup(MPI_COMM_WORLD, &control_);
    expect_notice();
  }

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return heard_.size(); }

  Error raise(Error error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(error);
    tell_others();
    return *failure_;
  }

  Status health() {
    const std::lock_guard lock(mutex_);
    return look();
  }

  // Calls `post`, which hands messages to MPI, unless all has failed. Errors: the failure.
  Status post(parallel::FunctionRef<void()> start) {
    const std::lock_guard lock(mutex_);
    LODE_TRY_STATUS(look());
    start();
    return {};
  }

  void receive(std::span<std::byte> bytes, std::size_t from, int tag, MPI_Comm comm,
               Messages& messages) const {
    const Extent extent(bytes.size(), block_bytes_);
    ++messages.num_receives;
    MPI_Irecv(bytes.data(), extent.count, extent.type, static_cast<int>(from), tag, comm,
              &next(messages, from, bytes.size()));
  }

  void send(std::span<const std::byte> bytes, std::size_t to, int tag, MPI_Comm comm,
            Messages& messages) const {
    const Extent extent(bytes.size(), block_bytes_);
    MPI_Isend(bytes.data(), extent.count, extent.type, static_cast<int>(to), tag, comm,
              &next(messages, to, bytes.size()));
  }

  // Whether all of the messages are complete. Errors: the failure; MPI's refusal, which is one.
  Result<bool> poll(Messages& messages, std::string_view what) {
    {
      const std::lock_guard lock(mutex_);
      LODE_TRY_STATUS(look());
      int complete = 0;
      messages.statuses.resize(messages.requests.size());
      const int said = MPI_Testall(messages.count(), messages.requests.data(), &complete,
                                   messages.statuses.data());
      if (said == MPI_SUCCESS && complete == 0) return false;
    }
    const Status right = check(messages, what);
    if (right) return true;
    return raise(right.error());
  }

  // Errors: as `poll`; kPeerLost at the deadline.
  Status wait(Messages& messages, std::string_view what, std::chrono::milliseconds deadline) {
    const auto began = Clock::now();
    // As long as bytes may well be on their way (500 MB/s), MPI is not kept waiting by naps.
    const auto awake = began + std::chrono::microseconds(2000 + messages.total_bytes / 500);
    while (true) {
      LODE_TRY(const bool complete, poll(messages, what));
      const auto now = Clock::now();
      if (complete) return {};
      if (now - began > deadline) return raise(lost(messages, what, deadline));
      if (now < awake) {
        sched_yield();
      } else {
        sleep_for(std::chrono::microseconds(50));
      }
    }
  }

  // After a failure: whether this is the rank to say so, the lowest that has been heard of.
  bool speaks() const { return spokesman_ == rank_; }

  // Before MPI ends in peace.
  void withdraw() {
    MPI_Cancel(&notice_request_);
    MPI_Wait(&notice_request_, MPI_STATUS_IGNORE);
  }

 private:
  static MPI_Request& next(Messages& messages, std::size_t partner, std::size_t bytes) {
    LODE_CHECK(messages.requests.size() < messages.requests.capacity(), "requests do not move");
    messages.partners.push_back(partner);
    messages.sizes.push_back(bytes);
    messages.total_bytes += bytes;
    return messages.requests.emplace_back(MPI_REQUEST_NULL);
  }

  void expect_notice() {
    MPI_Irecv(notice_.data(), static_cast<int>(notice_.size()), MPI_BYTE, MPI_ANY_SOURCE,
              kNoticeTag, control_, &notice_request_);
  }

  // Takes what notices there are.
  void read_notices() {
    while (true) {
      int arrived = 0;
      MPI_Status status;
      MPI_Test(&notice_request_, &arrived, &status);
      if (arrived == 0) return;
      take_notice(static_cast<std::size_t>(status.MPI_SOURCE));
      expect_notice();
    }
  }

  // Several ranks may fail at once. Of the Errors that go round all take that of the lowest rank.
  void take_notice(std::size_t from) {
    heard_[from] = true;
    if (failure_ && from > spokesman_) return;
    spokesman_ = std::min(spokesman_, from);
    failure_ = read_error_record(notice_);
  }

  Status look() {
    if (!told_) read_notices();
    if (!failure_) return {};
    tell_others();
    return *failure_;
  }

  // Every rank tells all others, whether it failed first or heard of it: so each knows who knows.
  void tell_others() {
    if (std::exchange(told_, true)) return;
    const ErrorRecord record = write_error_record(*failure_);
    std::vector<MPI_Request> requests;
    for (std::size_t r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      MPI_Isend(record.data(), static_cast<int>(record.size()), MPI_BYTE, static_cast<int>(r),
                kNoticeTag, control_, &requests.emplace_back(MPI_REQUEST_NULL));
    }
    const auto end = Clock::now() + kLastWords;
    int sent = 0;
    while (Clock::now() < end && (sent == 0 || !all_heard())) {
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &sent, MPI_STATUSES_IGNORE);
      read_notices();
      sched_yield();
    }
  }

  bool all_heard() const {
    return std::count(heard_.begin(), heard_.end(), true) + 1 >=
           static_cast<std::ptrdiff_t>(size());
  }

  // Whether what has arrived is what was wanted, and MPI content. Receives of collectives take any
  // tag, so that a rank in another one shows.
  Status check(const Messages& messages, std::string_view what) const {
    for (std::size_t i = 0; i < messages.requests.size(); ++i) {
      const MPI_Status& status = messages.statuses[i];
      int kind = MPI_SUCCESS, text_bytes = 0;
      MPI_Error_class(status.MPI_ERROR, &kind);
      if (kind == MPI_ERR_PENDING) continue;
      char text[MPI_MAX_ERROR_STRING] = "";
      MPI_Error_string(status.MPI_ERROR, text, &text_bytes);
      const bool refused = kind != MPI_SUCCESS && kind != MPI_ERR_TRUNCATE;
      if (refused) return at_rank(rank_, {.thing = std::string(what), .found = text});
      if (i >= messages.num_receives) continue;
      LODE_TRY_STATUS(check_operation(messages, i));
      MPI_Count bytes = 0;
      MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
      const bool fits = kind == MPI_SUCCESS && static_cast<std::size_t>(bytes) == messages.sizes[i];
      if (fits) continue;
      return sizes_differ(rank_, what, messages.partners[i], messages.sizes[i],
                          kind == MPI_SUCCESS ? fmt::format("{} bytes", bytes) : "more bytes");
    }
    return {};
  }

  Status check_operation(const Messages& messages, std::size_t i) const {
    const int tag = messages.statuses[i].MPI_TAG;
    if (messages.collective == nullptr || tag == tag_of(*messages.collective)) return {};
    return operations_differ(rank_, *messages.collective, messages.partners[i],
                             static_cast<Operation>(tag % 8), static_cast<std::size_t>(tag / 8));
  }

  Error lost(Messages& messages, std::string_view what, std::chrono::milliseconds deadline) {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < messages.requests.size(); ++i) {
      int complete = 0;
      MPI_Test(&messages.requests[i], &complete, MPI_STATUS_IGNORE);
      if (complete == 0) missing.push_back(messages.partners[i]);
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    return ranks_lost(rank_, what, missing, deadline);
  }

  std::size_t rank_;
  std::size_t block_bytes_;
  std::mutex mutex_;
  std::optional<Error> failure_;
  std::size_t spokesman_;  // the lowest rank that has failed, to this rank's knowledge
  bool told_ = false;      // this rank has failed and has said so: no calls of MPI from now on
  std::vector<bool> heard_;
  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Request notice_request_ = MPI_REQUEST_NULL;
  ErrorRecord notice_{};
};

class MpiTransfer final : public PendingTransfer {
 public:
  MpiTransfer(World& world, std::string what, std::chrono::milliseconds deadline)
      : world_(world), what_(std::move(what)), deadline_(deadline) {
    messages.requests.reserve(1);
  }

  ~MpiTransfer() override {
    if (complete_ || messages.requests.empty()) return;
    if (messages.num_receives > 0) {
      // Cancelled if it has no partner yet; otherwise its bytes are on the way and are waited for.
      (void)world_.post([this] { MPI_Cancel(&messages.requests[0]); });
    }
    (void)world_.wait(messages, what_, deadline_);
  }

  Result<bool> poll() override {
    LODE_TRY(complete_, world_.poll(messages, what_));
    return complete_;
  }

  Status wait() override {
    LODE_TRY_STATUS(world_.wait(messages, what_, deadline_));
    complete_ = true;
    return {};
  }

  Messages messages;

 private:
  World& world_;
  std::string what_;
  std::chrono::milliseconds deadline_;
  bool complete_ = false;
};

class MpiGroup final : public Group {
 public:
  MpiGroup(World& world, std::vector<std::size_t> node_of, std::chrono::milliseconds limit,
           MPI_Comm collectives, MPI_Comm transfers)
      : Group(world.rank(), std::move(node_of), limit),
        world_(world),
        collectives_(collectives),
        transfers_(transfers) {
    messages_.requests.reserve(2 * size());
  }

  Status health() override { return world_.health(); }

  // The last collective: whoever is in another one then sees that this rank has left.
  Status end() { return meet(Operation::kEnd); }

 private:
  Status run(const Exchange& exchange) override {
    messages_.clear();
    messages_.collective = &exchange;
    LODE_TRY_STATUS(world_.post([&] { start(exchange); }));
    return world_.wait(messages_, subject_of(exchange.operation), deadline());
  }

  void start(const Exchange& exchange) {
    for (std::size_t r = 0; r < size(); ++r) {
      if (!exchange.flows(r, rank())) continue;
      world_.receive(exchange.incoming[r], r, MPI_ANY_TAG, collectives_, messages_);
    }
    for (std::size_t r = 0; r < size(); ++r) {
      if (!exchange.flows(rank(), r)) continue;
      world_.send(exchange.outgoing[r], r, tag_of(exchange), collectives_, messages_);
    }
  }

  Error raise(Error error) override { return world_.raise(std::move(error)); }

  Result<Transfer> start_send(std::size_t to, std::uint32_t tag,
                              std::span<const std::byte> bytes) override {
    auto transfer =
        std::make_unique<MpiTransfer>(world_, subject_of_message(tag, rank(), to), deadline());
    LODE_TRY_STATUS(world_.post(
        [&] { world_.send(bytes, to, static_cast<int>(tag), transfers_, transfer->messages); }));
    return Transfer(std::move(transfer));
  }

  Result<Transfer> start_receive(std::size_t from, std::uint32_t tag,
                                 std::span<std::byte> bytes) override {
    auto transfer =
        std::make_unique<MpiTransfer>(world_, subject_of_message(tag, from, rank()), deadline());
    LODE_TRY_STATUS(world_.post([&] {
      world_.receive(bytes, from, static_cast<int>(tag), transfers_, transfer->messages);
    }));
    return Transfer(std::move(transfer));
  }

  Status meet(Operation operation) {
    const std::vector<std::span<const std::byte>> nothing_out(size());
    const std::vector<std::span<std::byte>> nothing_in(size());
    return run({.operation = operation, .outgoing = nothing_out, .incoming = nothing_in});
  }

  // The communicators live until MPI ends: to free one is a collective, and may wait without end.
  Result<std::unique_ptr<Group>> make_duplicate() override {
    LODE_TRY_STATUS(meet(Operation::kDuplicate));
    MPI_Comm both[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
    for (MPI_Comm& copy : both) {
      messages_.clear();
      messages_.requests.push_back(MPI_REQUEST_NULL);
      messages_.partners.push_back(rank());
      messages_.sizes.push_back(0);
      LODE_TRY_STATUS(
          world_.post([&] { MPI_Comm_idup(collectives_, &copy, messages_.requests.data()); }));
      LODE_TRY_STATUS(world_.wait(messages_, subject_of(Operation::kDuplicate), deadline()));
    }
    return std::unique_ptr<Group>(
        std::make_unique<MpiGroup>(world_, node_ids(), deadline(), both[0], both[1]));
  }

  World& world_;
  MPI_Comm collectives_;
  MPI_Comm transfers_;
  Messages messages_;
};

std::vector<std::size_t> nodes_of_ranks(int rank, int size) {
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  int lowest = rank;
  MPI_Bcast(&lowest, 1, MPI_INT, 0, node);
  std::vector<int> all(static_cast<std::size_t>(size));
  MPI_Allgather(&lowest, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
  MPI_Comm_free(&node);
  return number_nodes(all);
}

Status start_mpi() {
  // Ranks of one machine copy through shared memory. To read each other's address space is
  // forbidden in many containers, and would read on in spans that a failed rank has freed.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);  // ends the job if it cannot
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (level >= MPI_THREAD_SERIALIZED) return {};
  return Error{.code = Code::kUnsupported,
               .thing = "MPI",
               .wanted = "MPI_THREAD_SERIALIZED",
               .found = "a library for one thread"};
}

}  // namespace

bool mpi_built_in() noexcept { return true; }

Status run_mpi(const MpiOptions& options, parallel::FunctionRef<Status(Group&)> body,
               parallel::FunctionRef<void(const Error&)> say) {
  Status outcome = start_mpi();
  if (!outcome) {
    say(outcome.error());
    return outcome;
  }
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  World world(static_cast<std::size_t>(rank), static_cast<std::size_t>(size), options.block_bytes);
  MPI_Comm collectives, transfers;
  MPI_Comm_dup(MPI_COMM_WORLD, &collectives);
  MPI_Comm_dup(MPI_COMM_WORLD, &transfers);
  MpiGroup group(world, nodes_of_ranks(rank, size), options.group.deadline, collectives, transfers);
  outcome = body(group);
  outcome = outcome ? group.end() : Status(world.raise(at_rank(world.rank(), outcome.error())));
  if (outcome) {
    world.withdraw();
    MPI_Finalize();
  } else {
    // The launcher ends the others as soon as the first one has ended.
    if (world.speaks()) say(outcome.error());
    sleep_for(kHeadStart);
  }
  return outcome;
}

}  // namespace lode::comm
