#include <algorithm>
#include <array>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/io/engines.h"

namespace lode::io {
namespace {

// Numbers of statfs(2), from the kernel's own headers and file systems.
constexpr std::uint32_t kNetworkFileSystems[] = {
    0x6969,      // NFS
    0x517B,      // SMB
    0xFF534D42,  // CIFS
    0xFE534D42,  // SMB2
    0x00C36400,  // Ceph
    0x01021997,  // 9p
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS
    0x65735546,  // FUSE: sshfs, s3fs, gcsfuse and their like
    0x5346414F,  // AFS
    0x19830326,  // BeeGFS
};
constexpr std::uint64_t kNetworkPieceBytes = kMiB;
constexpr std::uint64_t kSamples = 4096;

bool is_network(std::int64_t file_system) {
  return file_system >= 0 &&
         std::ranges::find(kNetworkFileSystems, file_system) != std::end(kNetworkFileSystems);
}

// Share of the files that is in the page cache, from pages spread evenly over them; 0 where the
// system does not tell.
double resident_share(SourceReader& reader) {
  std::uint64_t total_bytes = 0;
  for (std::size_t i = 0; i < reader.num_files(); ++i) total_bytes += reader.file(i).file().bytes;
  const std::uint64_t step_bytes = std::max<std::uint64_t>(kBlockBytes, total_bytes / kSamples);
  std::uint64_t seen = 0;
  std::uint64_t resident = 0;
  std::uint64_t next = step_bytes / 2;  // from the beginning of the file at hand
  for (std::size_t i = 0; i < reader.num_files(); ++i) {
    SourceHandle& file = reader.file(i);
    for (; next < file.file().bytes; next += step_bytes) {
      unsigned char page = 0;
      if (!file.look(next / kBlockBytes, std::span(&page, 1))) return 0;
      resident += page;
      ++seen;
    }
    next -= file.file().bytes;
  }
  return seen == 0 ? 0 : static_cast<double>(resident) / static_cast<double>(seen);
}

class Chooser {
 public:
  Chooser(std::span<const SourceFile> files, const ReadPolicy& policy, SystemCalls& calls)
      : files_(files), policy_(policy), calls_(calls) {
    settings_.num_threads = policy.num_threads;
    settings_.most_bytes_at_once = policy.most_bytes_at_once;
    settings_.try_depths = policy.try_depths;
  }

  Result<std::unique_ptr<ReadEngine>> make() {
    switch (policy_.kind) {
      case IoKind::kAuto:
        return automatic();
      case IoKind::kUring:
        LODE_TRY_STATUS(open(Way::kPastCache));
        return make_uring_engine(reader_, settings_);
      case IoKind::kThreads:
        LODE_TRY_STATUS(open(Way::kPastCache));
        return threads(true, "as asked");
      case IoKind::kBuffered:
        LODE_TRY_STATUS(open(Way::kOnlyThroughCache));
        return threads(false, "as asked");
    }
    return Error{.code = Code::kUsage, .thing = "way to read", .wanted = "a known one"};
  }

 private:
  Status open(Way way) {
    reader_ = std::make_unique<SourceReader>(files_, calls_);
    return reader_->open(way);
  }

  Result<std::unique_ptr<ReadEngine>> threads(bool direct, std::string reason) {
    settings_.direct = direct;
    settings_.reason = std::move(reason);
    return make_threads_engine(std::move(reader_), settings_);
  }

  Result<std::unique_ptr<ReadEngine>> automatic() {
    if (on_network(files_, calls_)) {
      LODE_TRY_STATUS(open(Way::kOnlyThroughCache));
      settings_.piece_bytes = kNetworkPieceBytes;
      return threads(false, "the files are on a network file system");
    }
    LODE_TRY_STATUS(open(Way::kPastCache));
    const double share = resident_share(*reader_);
    if (share > 0.5) {
      LODE_TRY_STATUS(open(Way::kThroughCache));
      return threads(true, fmt::format("{:.0f} % of the files are in the page cache", 100 * share));
    }
    if (reader_->num_direct_files() * 2 <= reader_->num_files()) {
      return threads(false, "the file system has no reads past the page cache");
    }
    settings_.reason = "local files, not in the page cache";
    auto engine = make_uring_engine(reader_, settings_);
    if (engine) return engine;
    return threads(true, fmt::format("io_uring refused: {}", engine.error().found));
  }

  std::span<const SourceFile> files_;
  const ReadPolicy& policy_;
  SystemCalls& calls_;
  EngineSettings settings_;
  std::unique_ptr<SourceReader> reader_;
};

constexpr std::array<std::pair<std::string_view, IoKind>, 4> kNames = {
    {{"auto", IoKind::kAuto},
     {"uring", IoKind::kUring},
     {"threads", IoKind::kThreads},
     {"buffered", IoKind::kBuffered}}};

}  // namespace

std::string_view name(IoKind kind) noexcept {
  for (const auto& [word, named] : kNames) {
    if (named == kind) return word;
  }
  return "";
}

Result<IoKind> parse_io_kind(std::string_view word) {
  for (const auto& [name, kind] : kNames) {
    if (name == word) return kind;
  }
  return Error{.code = Code::kUsage,
               .thing = "way to read",
               .wanted = "auto, uring, threads or buffered",
               .found = std::string(word)};
}

bool on_network(std::span<const SourceFile> files, SystemCalls& calls) {
  if (files.empty()) return false;
  return is_network(calls.file_system(files.front().path));
}

Result<std::unique_ptr<ReadEngine>> make_read_engine(std::span<const SourceFile> files,
                                                     const ReadPolicy& policy, SystemCalls& calls) {
  return Chooser(files, policy, calls).make();
}

}  // namespace lode::io
