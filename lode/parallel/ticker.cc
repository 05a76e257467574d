#include "lode/parallel/ticker.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "lode/parallel/small_thread.h"

namespace lode::parallel {

struct Ticker::Shared {
  std::chrono::milliseconds period{};
  std::function<void()> tick;
  std::mutex mutex;
  std::condition_variable stopped;
  bool stop = false;
  SmallThread thread;

  ~Shared() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    stopped.notify_all();
    thread.join();
  }

  void serve() {
    std::unique_lock lock(mutex);
    while (!stop) {
      const auto next = std::chrono::steady_clock::now() + period;
      lock.unlock();
      tick();
      lock.lock();
      stopped.wait_until(lock, next, [this] { return stop; });
    }
  }
};

Result<Ticker> Ticker::start(std::chrono::milliseconds period, std::function<void()> tick) {
  auto shared = std::make_unique<Shared>();
  shared->period = period;
  shared->tick = std::move(tick);
  shared->thread = SmallThread::start("lode-ticker", [at = shared.get()] { at->serve(); });
  if (!shared->thread.joinable()) {
    return Error{.code = Code::kOther, .thing = "thread of a ticker", .found = "none to be had"};
  }
  return Ticker(std::move(shared));
}

Ticker::Ticker(std::unique_ptr<Shared> shared) : shared_(std::move(shared)) {}
Ticker::Ticker(Ticker&&) noexcept = default;
Ticker& Ticker::operator=(Ticker&&) noexcept = default;
Ticker::~Ticker() = default;

}  // namespace lode::parallel
