#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "lode/io/system_calls.h"

namespace lode::testing_support {

/// Asks the system, but for the calls that a plan of faults answers in its place.
class FaultySystemCalls : public io::SystemCalls {
 public:
  enum class Call : std::uint8_t {
    kOpen,
    kRead,
    kWrite,
    kStatus,  // of a descriptor or a path
    kAlignment,
    kFileSystem,
    kFreeBytes,
    kAllocate,
    kPunchHole,
    kTruncate,
    kSyncData,
    kSync,
    kRename,
    kUnlink,
    kMakeFolder,
    kAllowUring,
    kEnterUring,
    kUringRead,
    kNumCalls,
  };

  /// The `first`th call of this kind (from 1 on) and `times - 1` after it are answered by `answer`,
  /// if that is not 0; reads and writes of more than `most_bytes` are cut short.
  struct Fault {
    Call call{};
    std::uint64_t first = 1;
    std::uint64_t times = 1;
    std::int64_t answer = 0;  // -errno; for kFileSystem and kAlignment any number
    std::uint64_t most_bytes = ~std::uint64_t{0};
    std::uint64_t delay_us = 0;
  };
  static constexpr std::uint64_t kAlways = ~std::uint64_t{0};

  FaultySystemCalls() = default;
  explicit FaultySystemCalls(std::vector<Fault> faults) : faults_(std::move(faults)) {}
  void add(const Fault& fault) {
    const std::scoped_lock lock(mutex_);
    faults_.push_back(fault);
  }

  /// Forgets faults and counts.
  void clear() {
    const std::scoped_lock lock(mutex_);
    faults_.clear();
    std::fill(std::begin(counts_), std::end(counts_), 0);
  }

  /// How often a kind of call was made.
  std::uint64_t count(Call call) const {
    const std::scoped_lock lock(mutex_);
    return counts_[static_cast<std::size_t>(call)];
  }

  int open(const std::string& path, int flags, unsigned mode) override {
    return ask(Call::kOpen, [&] { return SystemCalls::open(path, flags, mode); });
  }
  std::int64_t pread(int descriptor, std::span<std::byte> out, std::uint64_t offset) override {
    const Met met = meet(Call::kRead);
    if (met.answer != 0) return met.answer;
    return SystemCalls::pread(descriptor, out.first(met.at_most(out.size())), offset);
  }
  std::int64_t pwrite(int descriptor, std::span<const std::byte> bytes,
                      std::uint64_t offset) override {
    const Met met = meet(Call::kWrite);
    if (met.answer != 0) return met.answer;
    return SystemCalls::pwrite(descriptor, bytes.first(met.at_most(bytes.size())), offset);
  }
  int status(int descriptor, io::FileStatus& status) override {
    return ask(Call::kStatus, [&] { return SystemCalls::status(descriptor, status); });
  }
  int status_of(const std::string& path, io::FileStatus& status) override {
    return ask(Call::kStatus, [&] { return SystemCalls::status_of(path, status); });
  }
  int direct_alignment(int descriptor) override {
    return ask(Call::kAlignment, [&] { return SystemCalls::direct_alignment(descriptor); });
  }
  std::int64_t file_system(const std::string& path) override {
    const Met met = meet(Call::kFileSystem);
    return met.answer != 0 ? met.answer : SystemCalls::file_system(path);
  }
  std::int64_t free_bytes(const std::string& folder) override {
    const Met met = meet(Call::kFreeBytes);
    return met.answer != 0 ? met.answer : SystemCalls::free_bytes(folder);
  }
  int allocate(int descriptor, std::uint64_t offset, std::uint64_t bytes) override {
    return ask(Call::kAllocate, [&] { return SystemCalls::allocate(descriptor, offset, bytes); });
  }
  int punch_hole(int descriptor, std::uint64_t offset, std::uint64_t bytes) override {
    return ask(Call::kPunchHole,
               [&] { return SystemCalls::punch_hole(descriptor, offset, bytes); });
  }
  int truncate(int descriptor, std::uint64_t bytes) override {
    return ask(Call::kTruncate, [&] { return SystemCalls::truncate(descriptor, bytes); });
  }
  int sync_data(int descriptor) override {
    return ask(Call::kSyncData, [&] { return SystemCalls::sync_data(descriptor); });
  }
  int sync(int descriptor) override {
    return ask(Call::kSync, [&] { return SystemCalls::sync(descriptor); });
  }
  int rename(const std::string& from, const std::string& to) override {
    return ask(Call::kRename, [&] { return SystemCalls::rename(from, to); });
  }
  int unlink(const std::string& path) override {
    return ask(Call::kUnlink, [&] { return SystemCalls::unlink(path); });
  }
  int make_folder(const std::string& path) override {
    return ask(Call::kMakeFolder, [&] { return SystemCalls::make_folder(path); });
  }
  int allow_uring() override {
    return ask(Call::kAllowUring, [&] { return SystemCalls::allow_uring(); });
  }
  int uring_entered(int answer) override {
    return ask(Call::kEnterUring, [&] { return SystemCalls::uring_entered(answer); });
  }
  int uring_result(int result) override {
    const Met met = meet(Call::kUringRead);
    if (met.answer != 0) return static_cast<int>(met.answer);
    if (result <= 0) return result;
    return static_cast<int>(met.at_most(static_cast<std::uint64_t>(result)));
  }

 private:
  struct Met {
    std::int64_t answer = 0;
    std::uint64_t most_bytes = kAlways;
    std::uint64_t at_most(std::uint64_t bytes) const { return std::min(bytes, most_bytes); }
  };

  Met meet(Call call) {
    Met met;
    std::uint64_t delay_us = 0;
    {
      const std::scoped_lock lock(mutex_);
      const std::uint64_t number = ++counts_[static_cast<std::size_t>(call)];
      for (const Fault& fault : faults_) {
        if (fault.call != call || number < fault.first || number - fault.first >= fault.times) {
          continue;
        }
        if (fault.answer != 0) met.answer = fault.answer;
        met.most_bytes = std::min(met.most_bytes, fault.most_bytes);
        delay_us += fault.delay_us;
      }
    }
    if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    return met;
  }

  template <class Ask>
  int ask(Call call, const Ask& system) {
    const Met met = meet(call);
    return met.answer != 0 ? static_cast<int>(met.answer) : system();
  }

  mutable std::mutex mutex_;
  std::vector<Fault> faults_;
  std::uint64_t counts_[static_cast<std::size_t>(Call::kNumCalls)] = {};
};

}  // namespace lode::testing_support
