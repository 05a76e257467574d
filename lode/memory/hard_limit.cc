#include "lode/memory/hard_limit.h"

#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"

namespace lode::memory {
namespace {

std::atomic<std::uint64_t> limit_of_process = 0;  // 0: none

}  // namespace

Result<std::uint64_t> data_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::uint64_t kib = 0;
  while (status >> word) {
    if (word == "VmData:" && status >> kib) return kib * kKiB;
  }
  return Error{.code = Code::kUnsupported,
               .thing = "/proc/self/status",
               .wanted = "a line VmData",
               .found = "none"};
}

Status set_hard_limit(std::uint64_t bytes) {
  rlimit limit{};
  bool done = getrlimit(RLIMIT_DATA, &limit) == 0;
  if (done && (limit.rlim_max == RLIM_INFINITY || bytes < limit.rlim_max)) limit.rlim_cur = bytes;
  done = done && setrlimit(RLIMIT_DATA, &limit) == 0;
  if (!done) {
    return Error{.code = Code::kIo,
                 .thing = "hard limit",
                 .wanted = fmt::format("RLIMIT_DATA of {} bytes", bytes),
                 .found = std::strerror(errno)};
  }
  limit_of_process.store(bytes);
  return {};
}

std::optional<std::uint64_t> hard_limit_bytes() noexcept {
  const std::uint64_t bytes = limit_of_process.load();
  if (bytes == 0) return std::nullopt;
  return bytes;
}

Code code_of_refused_memory(Code otherwise) noexcept {
  return hard_limit_bytes() ? Code::kBudgetViolated : otherwise;
}

}  // namespace lode::memory
