#include "lode/memory/held_probe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/memory/buffer.h"
#include "lode/memory/page_residency.h"

namespace lode::memory {
namespace {

constexpr const char* kStatusPath = "/proc/self/status";
constexpr const char* kRollupPath = "/proc/self/smaps_rollup";
constexpr std::uint64_t kWindowBytes = 256 * kMiB;

// The number of "Name:   123 kB", in bytes.
std::optional<std::uint64_t> kib_field(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    line.remove_prefix(name.size() + 1);
    const std::size_t digit = line.find_first_not_of(" \t");
    if (digit == std::string_view::npos) return std::nullopt;
    std::uint64_t kib = 0;
    const auto [rest, fault] = std::from_chars(line.data() + digit, line.data() + line.size(), kib);
    const std::string_view unit(rest, static_cast<std::size_t>(line.data() + line.size() - rest));
    if (fault != std::errc{} || unit != " kB") return std::nullopt;
    return checked_mul(kib, kKiB);
  }
  return std::nullopt;
}

Error system_error(std::string_view thing, std::string_view call) {
  return {.code = Code::kIo,
          .thing = std::string(thing),
          .wanted = std::string(call),
          .found = std::strerror(errno)};
}

Error unknown_form(std::string_view path) {
  return {.code = Code::kUnsupported,
          .thing = std::string(path),
          .wanted = "what this process holds, in kB",
          .found = "another form"};
}

class Descriptor {
 public:
  explicit Descriptor(const char* path) : number_(::open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const noexcept { return number_; }

 private:
  int number_;
};

Result<std::string> read_proc(const char* path) {
  const Descriptor file(path);
  if (file.number() < 0) return system_error(path, "open");
  std::string text;
  char part[4096];
  for (;;) {
    const auto got = ::read(file.number(), part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, "read");
    if (got == 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

Result<ProcessBytes> now() {
  LODE_TRY(const std::string text, read_proc(kStatusPath));
  const auto bytes = parse_process_status(text);
  if (!bytes) return unknown_form(kStatusPath);
  return *bytes;
}

Result<ProcessBytes> exact_now() {
  LODE_TRY(const std::string text, read_proc(kRollupPath));
  auto bytes = parse_smaps_rollup(text);
  if (!bytes) return unknown_form(kRollupPath);
  LODE_TRY(const ProcessBytes counters, now());
  bytes->page_table_bytes = counters.page_table_bytes;
  return *bytes;
}

std::uint64_t growth(std::uint64_t now, std::uint64_t before) noexcept {
  return now - std::min(now, before);
}

// Pages of [offset, offset + bytes) that are resident.
Result<std::uint64_t> resident_pages(const Descriptor& file, std::uint64_t offset,
                                     std::uint64_t bytes) {
  void* const window =
      ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.number(), static_cast<off_t>(offset));
  if (window == MAP_FAILED) return system_error("page cache", "mmap");
  std::vector<unsigned char> pages(ceil_div(bytes, kPageBytes));
  const int refused = ::mincore(window, bytes, pages.data());
  ::munmap(window, bytes);
  if (refused != 0) return system_error("page cache", "mincore");
  std::uint64_t resident = 0;
  for (const unsigned char page : pages) resident += page & 1U;
  return resident;
}

}  // namespace

std::optional<ProcessBytes> parse_process_status(std::string_view text) {
  const auto anonymous = kib_field(text, "RssAnon");
  const auto shared = kib_field(text, "RssShmem");
  const auto tables = kib_field(text, "VmPTE");
  const auto files = kib_field(text, "RssFile");
  if (!anonymous || !shared || !tables || !files) return std::nullopt;
  return ProcessBytes{*anonymous, *shared, *tables, *files};
}

std::optional<ProcessBytes> parse_smaps_rollup(std::string_view text) {
  const auto anonymous = kib_field(text, "Anonymous");
  const auto shared = kib_field(text, "Pss_Shmem");
  const auto files = kib_field(text, "Pss_File");
  if (!anonymous || !shared || !files) return std::nullopt;
  return ProcessBytes{*anonymous, *shared, 0, *files};
}

std::uint64_t HeldProbe::above(const ProcessBytes& bytes,
                               const ProcessBytes& baseline) const noexcept {
  const std::uint64_t files = count_files_ ? growth(bytes.file_bytes, baseline.file_bytes) : 0;
  return growth(bytes.total(), baseline.total()) + files;
}

Result<HeldProbe> HeldProbe::make() {
  LODE_TRY(const ProcessBytes exact, exact_now());
  LODE_TRY(const ProcessBytes counters, now());
  return HeldProbe(counters, exact);
}

Result<std::uint64_t> HeldProbe::held_bytes() const {
  LODE_TRY(const ProcessBytes bytes, now());
  return above(bytes, baseline_);
}

Result<std::uint64_t> HeldProbe::exact_held_bytes() const {
  LODE_TRY(const ProcessBytes bytes, exact_now());
  return above(bytes, exact_baseline_);
}

Result<std::uint64_t> process_total_bytes() {
  LODE_TRY(const ProcessBytes bytes, now());
  return bytes.total() + bytes.file_bytes;
}

Result<std::uint64_t> resident_bytes(const std::string& path) {
  const Descriptor file(path.c_str());
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) return system_error(path, "open");
  if (!may_see_residency(file.number())) {
    return Error{.code = Code::kUnsupported,
                 .thing = path,
                 .wanted = "its pages in the page cache",
                 .found = "a file of another user, of which the kernel does not say"};
  }
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t resident = 0;
  for (std::uint64_t offset = 0; offset < bytes; offset += kWindowBytes) {
    LODE_TRY(const std::uint64_t pages,
             resident_pages(file, offset, std::min(kWindowBytes, bytes - offset)));
    resident += pages * kPageBytes;
  }
  return resident;
}

}  // namespace lode::memory
