#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lode/base/result.h"

namespace lode::memory {

/// What the kernel says a process holds.
struct ProcessBytes {
  std::uint64_t anonymous_bytes = 0;
  std::uint64_t shared_bytes = 0;  // shared memory, not mapped files
  std::uint64_t page_table_bytes = 0;
  std::uint64_t file_bytes = 0;  // mapped files that are in memory, the program's own among them

  std::uint64_t total() const noexcept { return anonymous_bytes + shared_bytes + page_table_bytes; }
  friend bool operator==(const ProcessBytes&, const ProcessBytes&) = default;
};

/// RssAnon, RssShmem, RssFile and VmPTE of a /proc/PID/status; nothing where one of them is
/// missing.
std::optional<ProcessBytes> parse_process_status(std::string_view text);

/// Anonymous, Pss_Shmem and Pss_File of a /proc/PID/smaps_rollup, which counts pages one by one
/// instead of trusting the counters of status; page tables are not in it.
std::optional<ProcessBytes> parse_smaps_rollup(std::string_view text);

/// Held bytes of this process above what it held when the probe was made: the left side of the
/// contract, but for the page cache (`resident_bytes`).
class HeldProbe {
 public:
  /// Takes the baseline. Make it before the checkpoint is opened.
  ///
  /// Errors: kUnsupported where the system does not say.
  static Result<HeldProbe> make();

  /// The same probe for a process that maps weights (memory/mapped_file.h): their pages are page
  /// cache that it causes, so pages of mapped files count as held, too.
  HeldProbe with_mapped_files() const {
    HeldProbe probe = *this;
    probe.count_files_ = true;
    return probe;
  }

  /// Cheap enough for hundreds a second; counters may lag by a few pages a thread.
  /// Errors: kIo, kUnsupported.
  Result<std::uint64_t> held_bytes() const;

  /// Counted page by page: milliseconds a GiB.
  /// Errors: kIo, kUnsupported.
  Result<std::uint64_t> exact_held_bytes() const;

 private:
  HeldProbe(const ProcessBytes& baseline, const ProcessBytes& exact_baseline)
      : baseline_(baseline), exact_baseline_(exact_baseline) {}
  std::uint64_t above(const ProcessBytes& bytes, const ProcessBytes& baseline) const noexcept;

  ProcessBytes baseline_;
  ProcessBytes exact_baseline_;
  bool count_files_ = false;
};

/// All that this process holds by the kernel's counters: anonymous, shared, page tables, and mapped
/// files, its own code among them. No baseline is taken off.
/// Errors: kIo, kUnsupported.
Result<std::uint64_t> process_total_bytes();

/// Bytes of a file that are in the page cache.
///
/// Errors: kIo where the file cannot be opened or mapped, or its file system has no pages to ask
///         for; kUnsupported where it is another user's, of which the kernel does not say.
Result<std::uint64_t> resident_bytes(const std::string& path);

}  // namespace lode::memory
