#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "lode/base/check.h"
#include "lode/io/read_engine.h"
#include "lode/io/source_handle.h"
#include "lode/parallel/small_thread.h"

namespace lode::io {
namespace {

class ThreadsEngine final : public ReadEngine {
 public:
  explicit ThreadsEngine(std::vector<SourceHandle> files)
      : files_(std::move(files)), bytes_read_(files_.size()) {}
  ~ThreadsEngine() override;
  ThreadsEngine(const ThreadsEngine&) = delete;
  ThreadsEngine& operator=(const ThreadsEngine&) = delete;

  Status start(std::uint32_t num_threads);
  void submit(const ReadRequest& request) override;
  ReadCompletion wait() override;
  Status finish() override;
  std::vector<std::uint64_t> bytes_read() const override;

 private:
  void serve();
  std::optional<ReadRequest> next();

  std::vector<SourceHandle> files_;
  std::vector<std::atomic<std::uint64_t>> bytes_read_;
  std::mutex mutex_;
  std::condition_variable submitted_;
  std::condition_variable completed_;
  std::deque<ReadRequest> waiting_;
  std::deque<ReadCompletion> done_;
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

Status ThreadsEngine::start(std::uint32_t num_threads) {
  for (std::uint32_t i = 0; i < num_threads; ++i) {
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
  LODE_CHECK(request.file_id < files_.size(), "a read names one of the engine's files");
  {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back(request);
    ++under_way_;
  }
  submitted_.notify_one();
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

std::optional<ReadRequest> ThreadsEngine::next() {
  std::unique_lock lock(mutex_);
  submitted_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
  if (waiting_.empty()) return std::nullopt;
  const ReadRequest request = waiting_.front();
  waiting_.pop_front();
  return request;
}

void ThreadsEngine::serve() {
  while (const auto request = next()) {
    Status status = files_[request->file_id].read_into(request->offset_bytes, request->out);
    bytes_read_[request->file_id].fetch_add(request->out.size(), std::memory_order_relaxed);
    {
      const std::scoped_lock lock(mutex_);
      done_.push_back({request->ticket, std::move(status)});
    }
    completed_.notify_one();
  }
}

Status ThreadsEngine::finish() {
  {
    const std::scoped_lock lock(mutex_);
    LODE_CHECK(under_way_ == 0, "a read is still under way");
  }
  for (const SourceHandle& file : files_) file.drop_pages();
  for (const SourceHandle& file : files_) LODE_TRY_STATUS(file.check_unchanged());
  return {};
}

std::vector<std::uint64_t> ThreadsEngine::bytes_read() const {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(bytes_read_.size());
  for (const auto& count : bytes_read_) bytes.push_back(count.load(std::memory_order_relaxed));
  return bytes;
}

}  // namespace

Result<std::unique_ptr<ReadEngine>> make_threads_engine(std::span<const SourceFile> files,
                                                        std::uint32_t num_threads) {
  LODE_CHECK(num_threads > 0, "an engine without threads never reads");
  std::vector<SourceHandle> handles;
  handles.reserve(files.size());
  for (const SourceFile& file : files) {
    LODE_TRY(SourceHandle handle, SourceHandle::open(file));
    handles.push_back(std::move(handle));
  }
  auto engine = std::make_unique<ThreadsEngine>(std::move(handles));
  LODE_TRY_STATUS(engine->start(num_threads));
  return std::unique_ptr<ReadEngine>(std::move(engine));
}

}  // namespace lode::io
