#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/io/engines.h"
#include "lode/parallel/small_thread.h"

namespace lode::io {
namespace {

class ThreadsEngine final : public ReadEngine {
 public:
  ThreadsEngine(std::unique_ptr<SourceReader> reader, EngineSettings settings)
      : reader_(std::move(reader)), settings_(std::move(settings)) {}
  ~ThreadsEngine() override;
  ThreadsEngine(const ThreadsEngine&) = delete;
  ThreadsEngine& operator=(const ThreadsEngine&) = delete;

  Status start();
  void submit(const ReadRequest& request) override;
  ReadCompletion wait() override;
  Status finish() override;
  std::vector<std::uint64_t> bytes_read() const override { return reader_->bytes_read(); }
  std::string description() const override;

 private:
  void serve();
  std::optional<Piece> next();
  Status read(Piece& piece);

  const std::unique_ptr<SourceReader> reader_;
  const EngineSettings settings_;
  std::mutex mutex_;  // of what follows
  std::condition_variable submitted_;
  std::condition_variable completed_;
  std::deque<Piece> waiting_;
  std::deque<ReadCompletion> done_;
  Requests requests_;
  std::uint64_t under_way_ = 0;  // submitted and not yet given out
  bool stop_ = false;
  std::vector<parallel::SmallThread> threads_;
};

ThreadsEngine::~ThreadsEngine() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    waiting_.clear();
  }
  submitted_.notify_all();
  threads_.clear();  // joins
}

Status ThreadsEngine::start() {
  for (std::uint32_t i = 0; i < settings_.num_threads; ++i) {
    auto thread = parallel::SmallThread::start("lode-read", [this] { serve(); });
    if (thread.joinable()) threads_.push_back(std::move(thread));
  }
  if (threads_.empty()) {
    return Error{.code = Code::kOther,
                 .thing = "threads that read",
                 .wanted = "at least one",
                 .found = "none from the system"};
  }
  return {};
}

void ThreadsEngine::submit(const ReadRequest& request) {
  LODE_CHECK(request.file_id < reader_->num_files(), "a read names one of the engine's files");
  const std::scoped_lock lock(mutex_);
  requests_.add(request, settings_.piece_bytes, [this](const Piece& piece) {
    waiting_.push_back(piece);
    submitted_.notify_one();
  });
  ++under_way_;
}

ReadCompletion ThreadsEngine::wait() {
  std::unique_lock lock(mutex_);
  LODE_CHECK(under_way_ > 0, "nothing to wait for");
  completed_.wait(lock, [this] { return !done_.empty(); });
  ReadCompletion completion = std::move(done_.front());
  done_.pop_front();
  --under_way_;
  return completion;
}

std::optional<Piece> ThreadsEngine::next() {
  std::unique_lock lock(mutex_);
  submitted_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
  if (waiting_.empty()) return std::nullopt;
  Piece piece = std::move(waiting_.front());
  waiting_.pop_front();
  return piece;
}

Status ThreadsEngine::read(Piece& piece) {
  for (;;) {
    LODE_TRY(const ReadCall call, reader_->call(piece));
    LODE_TRY(const bool complete,
             reader_->advance(
                 piece, reader_->calls().pread(call.descriptor, call.out, call.offset_bytes)));
    if (complete) return {};
  }
}

void ThreadsEngine::serve() {
  while (auto piece = next()) {
    reader_->begin(*piece, true);
    Status status = read(*piece);
    reader_->end(*piece);
    {
      const std::scoped_lock lock(mutex_);
      auto done = requests_.finish_piece(piece->request_idx, std::move(status));
      if (!done) continue;
      done_.push_back(*std::move(done));
    }
    completed_.notify_one();
  }
}

Status ThreadsEngine::finish() {
  {
    const std::scoped_lock lock(mutex_);
    LODE_CHECK(under_way_ == 0, "a read is still under way");
  }
  return reader_->check_unchanged();
}

std::string ThreadsEngine::description() const {
  const std::size_t direct = reader_->num_direct_files();
  std::string text =
      fmt::format("{}, {} threads", settings_.direct ? "threads" : "buffered", threads_.size());
  if (settings_.direct && direct < reader_->num_files()) {
    text += fmt::format(", {} of {} files only through the page cache",
                        reader_->num_files() - direct, reader_->num_files());
  }
  if (settings_.direct && reader_->cached_bytes() > 0) {
    text += fmt::format(", {} through the page cache", human_bytes(reader_->cached_bytes()));
  }
  return settings_.reason.empty() ? text : fmt::format("{}; {}", text, settings_.reason);
}

}  // namespace

Result<std::unique_ptr<ReadEngine>> make_threads_engine(std::unique_ptr<SourceReader> reader,
                                                        EngineSettings settings) {
  LODE_CHECK(settings.num_threads > 0, "an engine without threads never reads");
  auto engine = std::make_unique<ThreadsEngine>(std::move(reader), std::move(settings));
  LODE_TRY_STATUS(engine->start());
  return std::unique_ptr<ReadEngine>(std::move(engine));
}

}  // namespace lode::io
