#include "lode/parallel/small_thread.h"

#include <csignal>
#include <utility>

#include "lode/base/check.h"

namespace lode::parallel {
namespace {

void* run_body(void* body) {
  (*static_cast<std::function<void()>*>(body))();
  return nullptr;
}

bool create(pthread_t* thread, std::function<void()>* body, std::size_t stack_bytes) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  sigset_t others, before;
  sigfillset(&others);
  // What a thread's own instruction causes is its own to handle: blocked, it ends the process
  // unheard.
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&others, own);
  pthread_sigmask(SIG_SETMASK, &others, &before);  // the new thread inherits the mask
  const bool created = pthread_attr_setstacksize(&attributes, stack_bytes) == 0 &&
                       pthread_create(thread, &attributes, run_body, body) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return created;
}

}  // namespace

SmallThread::SmallThread(SmallThread&& other) noexcept
    : body_(std::move(other.body_)), thread_(other.thread_) {}

SmallThread& SmallThread::operator=(SmallThread&& other) noexcept {
  if (this == &other) return *this;
  join();
  body_ = std::move(other.body_);
  thread_ = other.thread_;
  return *this;
}

SmallThread::~SmallThread() { join(); }

SmallThread SmallThread::start(const char* name, std::function<void()> body,
                               std::size_t stack_bytes) {
  SmallThread started;
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  if (!create(&started.thread_, owned.get(), stack_bytes)) return started;
  started.body_ = std::move(owned);
  pthread_setname_np(started.thread_, name);
  return started;
}

void SmallThread::join() noexcept {
  if (!joinable()) return;
  LODE_CHECK(pthread_join(thread_, nullptr) == 0, "a thread can be joined once, by another one");
  body_.reset();
}

}  // namespace lode::parallel
