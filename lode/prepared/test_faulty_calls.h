#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <set>
#include <string>

#include "lode/io/system_calls.h"

namespace lode::prepared {

/// An error of FaultyCalls that is none: the process is killed.
inline constexpr int kKilled = 0;

/// Answers in the system's place: with `error` to the `refused_idx`-th call of those that change
/// what is on the disk, and to all after it where it `stays`.
class FaultyCalls final : public io::SystemCalls {
 public:
  FaultyCalls(std::uint64_t refused_idx, int error, bool stays)
      : refused_idx_(refused_idx), error_(error), stays_(stays) {}

  bool refused() const { return next_idx_ > refused_idx_; }
  const std::set<std::string>& seen() const { return seen_; }

  std::int64_t pwrite(int file, std::span<const std::byte> bytes, std::uint64_t at) override {
    return refuse("pwrite") ? -error_ : io::SystemCalls::pwrite(file, bytes, at);
  }
  int allocate(int file, std::uint64_t at, std::uint64_t bytes) override {
    return refuse("allocate") ? -error_ : io::SystemCalls::allocate(file, at, bytes);
  }
  int truncate(int file, std::uint64_t bytes) override {
    return refuse("truncate") ? -error_ : io::SystemCalls::truncate(file, bytes);
  }
  int sync_data(int file) override {
    return refuse("sync_data") ? -error_ : io::SystemCalls::sync_data(file);
  }
  int sync(int file) override { return refuse("sync") ? -error_ : io::SystemCalls::sync(file); }
  int rename(const std::string& from, const std::string& to) override {
    return refuse("rename") ? -error_ : io::SystemCalls::rename(from, to);
  }
  int unlink(const std::string& path) override {
    return refuse("unlink") ? -error_ : io::SystemCalls::unlink(path);
  }
  int make_folder(const std::string& path) override {
    return refuse("make_folder") ? -error_ : io::SystemCalls::make_folder(path);
  }
  int punch_hole(int file, std::uint64_t at, std::uint64_t bytes) override {
    return refuse("punch_hole") ? -error_ : io::SystemCalls::punch_hole(file, at, bytes);
  }
  int open(const std::string& path, int flags, unsigned mode) override {
    return refuse("open") ? -error_ : io::SystemCalls::open(path, flags, mode);
  }

 private:
  bool refuse(const char* call) {
    const std::uint64_t idx = next_idx_++;
    if (idx == refused_idx_ && error_ == kKilled) ::raise(SIGKILL);
    if (idx == refused_idx_) seen_.insert(call);
    return idx == refused_idx_ || (stays_ && idx > refused_idx_);
  }

  std::uint64_t refused_idx_;
  int error_;
  bool stays_;
  std::atomic<std::uint64_t> next_idx_ = 0;
  std::set<std::string> seen_;
};

}  // namespace lode::prepared
