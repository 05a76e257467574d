#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "lode/base/result.h"
#include "lode/io/read_engine.h"
#include "lode/memory/page_residency.h"

namespace lode::io {

/// By which descriptor a file is opened.
enum class Way : std::uint8_t {
  kPastCache,         // direct reads, or through the cache where the system has none
  kThroughCache,      // most of it is there; direct reads are tried where it is not
  kOnlyThroughCache,  // no direct reads
};

/// An open source file: one descriptor for reads past the page cache or one for reads through it,
/// and the other where it comes to be needed. Thread-safe; closed when it ends.
class SourceHandle {
 public:
  SourceHandle(const SourceFile& file, SystemCalls& calls) : file_(file), calls_(calls) {}
  SourceHandle(const SourceHandle&) = delete;
  SourceHandle& operator=(const SourceHandle&) = delete;
  ~SourceHandle();

  /// Errors: kSourceChanged where it is not the file that is meant; kIo.
  Status open(Way way);

  const SourceFile& file() const noexcept { return file_; }
  /// Whether direct reads are worth trying.
  bool is_direct() const noexcept { return direct_.load(std::memory_order_relaxed); }
  /// The system did refuse one.
  void refuse_direct() noexcept { direct_.store(false, std::memory_order_relaxed); }

  /// Errors: those of `open`.
  Result<int> descriptor(bool direct);

  /// Which pages are in the cache: false where the system does not say.
  bool look(std::uint64_t first_page, std::span<unsigned char> resident);
  void drop_cache(std::uint64_t offset_bytes, std::uint64_t bytes);

  /// Errors: kSourceChanged where the path no longer leads to the file that was opened, or it was
  /// changed; kIo.
  Status check_unchanged();

 private:
  Result<int> open_one(int flags);
  Status compare(const FileStatus& status) const;
  int any_descriptor();

  SourceFile file_;
  SystemCalls& calls_;
  std::atomic<bool> direct_ = false;
  std::mutex mutex_;  // of what follows, which is made once
  int through_cache_ = -1;
  int past_cache_ = -1;
  bool asked_ = false;
  std::optional<memory::PageResidency> residency_;
};

/// The error of a file that is no longer what it was.
Error source_changed(const std::string& path, std::string found);

}  // namespace lode::io
