#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/io/depth_trial.h"
#include "lode/io/engines.h"

namespace lode::io {
namespace {

constexpr unsigned kQueueEntries = 64;  // more than the deepest trial

std::uint64_t now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

class UringEngine final : public ReadEngine {
 public:
  explicit UringEngine(EngineSettings settings)
      : settings_(std::move(settings)), trial_(settings_.most_bytes_at_once) {
    if (!settings_.try_depths) trial_.keep_first();
  }
  ~UringEngine() override;
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;

  /// 0, or -errno.
  int set_up(std::unique_ptr<SourceReader>& reader);
  void submit(const ReadRequest& request) override;
  ReadCompletion wait() override;
  Status finish() override;
  std::vector<std::uint64_t> bytes_read() const override { return reader_->bytes_read(); }
  std::string description() const override;

 private:
  void fill_queue();
  bool enqueue(std::size_t idx);
  void hand_over();
  void take_answer();
  void take(std::size_t idx, int answer);
  void settle(std::size_t idx, Status status);

  std::unique_ptr<SourceReader> reader_;
  const EngineSettings settings_;
  DepthTrial trial_;
  io_uring ring_{};
  bool set_up_ = false;
  Requests requests_;
  std::deque<Piece> waiting_;
  std::vector<Piece> started_;      // by index: the kernel gives it back
  std::vector<std::size_t> free_;   // indices of started_ without a piece
  std::vector<std::size_t> again_;  // pieces that want another call
  std::deque<ReadCompletion> done_;
  std::uint64_t in_kernel_ = 0;  // calls that were made and not answered
  std::uint64_t under_way_ = 0;  // requests submitted and not yet given out
};

// Where a queue may be made, entering it may be forbidden all the same.
int enter_once(io_uring& ring) {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring);
  LODE_CHECK(entry != nullptr, "a new queue is empty");
  io_uring_prep_nop(entry);
  const int entered = io_uring_submit_and_wait(&ring, 1);
  io_uring_cqe* answer = nullptr;
  if (entered >= 0 && io_uring_peek_cqe(&ring, &answer) == 0) io_uring_cqe_seen(&ring, answer);
  return entered;
}

int UringEngine::set_up(std::unique_ptr<SourceReader>& reader) {
  int answer = reader->calls().allow_uring();
  if (answer >= 0) answer = io_uring_queue_init(kQueueEntries, &ring_, 0);
  if (answer < 0) return answer;
  answer = reader->calls().uring_entered(enter_once(ring_));
  if (answer < 0) {
    io_uring_queue_exit(&ring_);
    return answer;
  }
  set_up_ = true;
  reader_ = std::move(reader);
  started_.resize(kQueueEntries);
  for (std::size_t idx = 0; idx < started_.size(); ++idx) free_.push_back(idx);
  return 0;
}

UringEngine::~UringEngine() {
  if (!set_up_) return;
  // The kernel writes to the caller's memory until the last call is answered.
  waiting_.clear();
  while (in_kernel_ > 0) {
    again_.clear();
    take_answer();
  }
  io_uring_queue_exit(&ring_);
}

void UringEngine::submit(const ReadRequest& request) {
  LODE_CHECK(request.file_id < reader_->num_files(), "a read names one of the engine's files");
  ++under_way_;
  requests_.add(request, trial_.now().piece_bytes,
                [this](const Piece& piece) { waiting_.push_back(piece); });
  fill_queue();
}

ReadCompletion UringEngine::wait() {
  LODE_CHECK(under_way_ > 0, "nothing to wait for");
  while (done_.empty()) {
    fill_queue();
    if (done_.empty()) take_answer();
  }
  fill_queue();
  ReadCompletion completion = std::move(done_.front());
  done_.pop_front();
  --under_way_;
  return completion;
}

void UringEngine::fill_queue() {
  bool any = false;
  while (!again_.empty()) {
    const std::size_t idx = again_.back();
    again_.pop_back();
    any = enqueue(idx) || any;
  }
  while (!waiting_.empty() && started_.size() - free_.size() < trial_.now().num_reads) {
    const std::size_t idx = free_.back();
    free_.pop_back();
    started_[idx] = std::move(waiting_.front());
    waiting_.pop_front();
    reader_->begin(started_[idx], false);
    any = enqueue(idx) || any;
  }
  if (any) hand_over();
}

// Whether a call was put into the queue: otherwise the piece has failed.
bool UringEngine::enqueue(std::size_t idx) {
  auto call = reader_->call(started_[idx]);
  if (!call) {
    settle(idx, std::move(call).error());
    return false;
  }
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  LODE_CHECK(entry != nullptr, "the queue has an entry for each piece");
  io_uring_prep_read(entry, call->descriptor, call->out.data(),
                     static_cast<unsigned>(call->out.size()), call->offset_bytes);
  entry->user_data = idx;
  ++in_kernel_;
  return true;
}

void UringEngine::hand_over() {
  // Refused for now, entries stay in the queue, and waiting hands them over again.
  static_cast<void>(io_uring_submit(&ring_));
}

// Waits for one answer, then takes all there are.
void UringEngine::take_answer() {
  int waited = 0;
  do {
    waited = io_uring_submit_and_wait(&ring_, 1);
  } while (waited == -EINTR || waited == -EAGAIN || waited == -EBUSY || waited == -ENOMEM);
  LODE_CHECK(waited >= 0, "a queue of io_uring that can be waited for");
  io_uring_cqe* entry = nullptr;
  while (io_uring_peek_cqe(&ring_, &entry) == 0) {
    const auto idx = static_cast<std::size_t>(entry->user_data);
    const int answer = entry->res;
    io_uring_cqe_seen(&ring_, entry);
    --in_kernel_;
    take(idx, answer);
  }
}

void UringEngine::take(std::size_t idx, int answer) {
  Piece& piece = started_[idx];
  answer = reader_->calls().uring_result(answer);
  auto complete = reader_->advance(piece, answer);
  if (!complete) return settle(idx, std::move(complete).error());
  if (*complete) return settle(idx, {});
  again_.push_back(idx);
}

void UringEngine::settle(std::size_t idx, Status status) {
  Piece& piece = started_[idx];
  reader_->end(piece);
  trial_.came(piece.out.size(), now_us());
  auto done = requests_.finish_piece(piece.request_idx, std::move(status));
  free_.push_back(idx);
  if (done) done_.push_back(*std::move(done));
}

Status UringEngine::finish() {
  LODE_CHECK(under_way_ == 0, "a read is still under way");
  return reader_->check_unchanged();
}

std::string UringEngine::description() const {
  const DepthTrial::Depth& depth = trial_.now();
  std::string text =
      fmt::format("uring, {} reads of {} at once", depth.num_reads, human_bytes(depth.piece_bytes));
  if (trial_.settled() && !trial_.speeds().empty()) {
    text += " (";
    for (std::size_t i = 0; i < trial_.speeds().size(); ++i) {
      text += fmt::format("{}{}: {:.2f}", i == 0 ? "" : ", ", trial_.depths()[i].num_reads,
                          trial_.speeds()[i] / 1e9);
    }
    text += " GB/s)";
  }
  const std::size_t direct = reader_->num_direct_files();
  if (direct < reader_->num_files()) {
    text += fmt::format(", {} of {} files only through the page cache",
                        reader_->num_files() - direct, reader_->num_files());
  }
  return settings_.reason.empty() ? text : fmt::format("{}; {}", text, settings_.reason);
}

}  // namespace

Result<std::unique_ptr<ReadEngine>> make_uring_engine(std::unique_ptr<SourceReader>& reader,
                                                      EngineSettings settings) {
  auto engine = std::make_unique<UringEngine>(std::move(settings));
  const int answer = engine->set_up(reader);
  if (answer >= 0) return std::unique_ptr<ReadEngine>(std::move(engine));
  return Error{.code = Code::kUnsupported,
               .thing = "io_uring",
               .wanted = "a queue from the system",
               .found = std::strerror(-answer),
               .hint = "containers often forbid it; --io threads reads without it"};
}

}  // namespace lode::io
