#include "lode/prepared/checkpoint.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"

namespace lode::prepared {
namespace {

constexpr std::array<std::string_view, 4> kVerificationNames = {"none", "header", "sampled",
                                                                "full"};
constexpr std::string_view kJournal = "journal.bin";
constexpr std::string_view kPrepareAgain = "prepare the checkpoint again: lode prepare DIR OUT";
constexpr std::size_t kPieceBytes = 256 * kKiB;

bool is_there(const std::filesystem::path& path) {
  std::error_code absent;
  return std::filesystem::exists(path, absent);
}

Error damaged(const std::filesystem::path& path, std::string wanted, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = path.string(),
          .wanted = std::move(wanted),
          .found = std::move(found),
          .hint = std::string(kPrepareAgain)};
}

Error unfinished(const std::filesystem::path& folder) {
  return {
      .code = Code::kInvalidSource,
      .thing = folder.string(),
      .wanted = "a prepared checkpoint that is finished",
      .found = "no manifest.json",
      .hint = fmt::format("`lode prepare DIR {}` goes on where it was stopped", folder.string())};
}

Result<std::vector<std::byte>> read_whole(const std::filesystem::path& path, std::uint64_t bytes) {
  LODE_TRY(const auto file, checkpoint::InputFile::open(path));
  if (file.identity().bytes != bytes) {
    return damaged(path, fmt::format("{} bytes", bytes), fmt::format("{}", file.identity().bytes));
  }
  std::vector<std::byte> content(static_cast<std::size_t>(bytes));
  LODE_TRY_STATUS(file.read_into(0, content));
  return content;
}

Result<Manifest> read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestFile;
  LODE_TRY(const std::optional<std::string> text,
           checkpoint::read_small_file(path, kMostManifestBytes));
  if (!text) return unfinished(folder);
  auto manifest = decode_manifest(*text);
  if (!manifest) return at(path.string(), std::move(manifest).error());
  LODE_TRY_STATUS(check_runnable(*manifest));
  return manifest;
}

Result<std::vector<std::byte>> read_index(const std::filesystem::path& folder,
                                          const Manifest& manifest) {
  const std::filesystem::path path = folder / kIndexFile;
  if (manifest.index_bytes > kMostIndexBytes) {
    return damaged(path, fmt::format("at most {} bytes", kMostIndexBytes),
                   fmt::format("{}", manifest.index_bytes));
  }
  return read_whole(path, manifest.index_bytes);
}

Status check_root(const Checkpoint& checkpoint, std::span<const std::byte> index) {
  const io::Sha256::Digest& wanted = checkpoint.manifest.root_sha256;
  if (io::sha256(index) == wanted) return {};
  return damaged(checkpoint.folder / kIndexFile, fmt::format("SHA-256 {}", io::to_hex(wanted)),
                 "another");
}

Status check_target(const Checkpoint& checkpoint) {
  const std::string_view target = targets::name(checkpoint.index.choice.target);
  if (checkpoint.manifest.target == target) return {};
  return damaged(checkpoint.folder / kIndexFile,
                 fmt::format("target {}, as the manifest says", checkpoint.manifest.target),
                 std::string(target));
}

Status check_sizes(const Checkpoint& checkpoint) {
  std::uint64_t mapped = 0;
  for (const loader::StagePlan& stage : checkpoint.index.stages) mapped += stage.mapped_bytes;
  const Manifest& manifest = checkpoint.manifest;
  if (mapped != manifest.weight_bytes) {
    return damaged(checkpoint.folder / kManifestFile, fmt::format("{} bytes of weights", mapped),
                   fmt::format("{}", manifest.weight_bytes));
  }
  if (file_bytes(checkpoint.index.sections) == manifest.data_file_bytes) return {};
  return damaged(checkpoint.folder / kManifestFile, "data files as long as the index's sections",
                 "others");
}

// Manifest and index; the index is looked at before it is taken apart.
Result<Checkpoint> read_head(const std::filesystem::path& folder, bool look_at_root) {
  Checkpoint checkpoint;
  checkpoint.folder = folder;
  LODE_TRY(checkpoint.manifest, read_manifest(folder));
  LODE_TRY(const std::vector<std::byte> bytes, read_index(folder, checkpoint.manifest));
  if (look_at_root) LODE_TRY_STATUS(check_root(checkpoint, bytes));
  auto index = decode(bytes);
  if (!index) return at((folder / kIndexFile).string(), std::move(index).error());
  checkpoint.index = *std::move(index);
  LODE_TRY_STATUS(check_target(checkpoint));
  LODE_TRY_STATUS(check_sizes(checkpoint));
  return checkpoint;
}

}  // namespace

std::string_view name(Verification verification) noexcept {
  return kVerificationNames[static_cast<std::size_t>(verification)];
}

Result<Verification> parse_verification(std::string_view word) {
  const auto found = std::find(kVerificationNames.begin(), kVerificationNames.end(), word);
  if (found != kVerificationNames.end()) {
    return static_cast<Verification>(found - kVerificationNames.begin());
  }
  return Error{.code = Code::kUsage,
               .thing = "--verify",
               .wanted = fmt::format("{}", fmt::join(kVerificationNames, ", ")),
               .found = std::string(word)};
}

std::uint64_t Checkpoint::data_bytes() const {
  std::uint64_t bytes = 0;
  for (const Section& section : index.sections) bytes += section.bytes;
  return bytes;
}

std::uint64_t Checkpoint::held_bytes() const {
  std::uint64_t bytes = index.chunk_crcs.capacity() * sizeof(std::uint32_t) +
                        index.sections.capacity() * sizeof(Section) +
                        index.stages.capacity() * sizeof(loader::StagePlan);
  for (const loader::StagePlan& stage : index.stages) {
    bytes += stage.places.capacity() * sizeof(loader::TensorPlace) + stage.name.capacity();
  }
  bytes += manifest.sources.capacity() * (sizeof(SourceShard) + 64);  // with its name
  bytes += manifest.companions.capacity() * (sizeof(Companion) + 64);
  return bytes + files.capacity() * (sizeof(io::SourceFile) + 256);
}

bool is_prepared(const std::filesystem::path& folder) {
  // Others have manifests, too; these names are ours.
  return is_there(folder / kIndexFile) || is_there(folder / kJournal) ||
         is_there(folder / data_file_name(0));
}

Result<Checkpoint> read_head(const std::filesystem::path& folder) {
  return read_head(folder, false);
}

Status check_root(const Checkpoint& checkpoint) {
  LODE_TRY(const std::vector<std::byte> bytes, read_index(checkpoint.folder, checkpoint.manifest));
  return check_root(checkpoint, bytes);
}

Result<io::SourceFile> find_data_file(const Checkpoint& checkpoint, std::size_t file_idx) {
  LODE_TRY(const auto file,
           checkpoint::InputFile::open(checkpoint.folder / data_file_name(file_idx)));
  const checkpoint::FileIdentity& identity = file.identity();
  return io::SourceFile{file.path(),    identity.device,   identity.inode,
                        identity.bytes, identity.mtime_ns, identity.ctime_ns};
}

Status check_size(const Checkpoint& checkpoint, std::size_t file_idx, const io::SourceFile& file) {
  const std::uint64_t wanted = checkpoint.manifest.data_file_bytes[file_idx];
  if (file.bytes == wanted) return {};
  return damaged(file.path, fmt::format("{} bytes", wanted),
                 fmt::format("{}: cut off, or another file", file.bytes));
}

Result<Checkpoint> open(const std::filesystem::path& folder, Verification verification) {
  const bool look = verification != Verification::kNone;
  LODE_TRY(Checkpoint checkpoint, read_head(folder, look));
  for (std::size_t i = 0; i < checkpoint.manifest.data_file_bytes.size(); ++i) {
    LODE_TRY(io::SourceFile file, find_data_file(checkpoint, i));
    LODE_TRY_STATUS(check_size(checkpoint, i, file));
    checkpoint.files.push_back(std::move(file));
  }
  if (!look) return checkpoint;
  for (const Companion& companion : checkpoint.manifest.companions) {
    LODE_TRY_STATUS(check_companion(folder, companion));
  }
  return checkpoint;
}

Status check_companion(const std::filesystem::path& folder, const Companion& companion) {
  LODE_TRY(const auto file, checkpoint::InputFile::open(folder / companion.name));
  if (file.identity().bytes != companion.bytes) {
    return damaged(file.path(), fmt::format("{} bytes", companion.bytes),
                   fmt::format("{}", file.identity().bytes));
  }
  io::Sha256 sum;
  std::vector<std::byte> piece(kPieceBytes);
  for (std::uint64_t offset = 0; offset < companion.bytes; offset += piece.size()) {
    piece.resize(
        static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, companion.bytes - offset)));
    LODE_TRY_STATUS(file.read_into(offset, piece));
    sum.add(piece);
  }
  if (sum.finish() == companion.sha256) return {};
  return damaged(file.path(), fmt::format("SHA-256 {}", io::to_hex(companion.sha256)), "another");
}

}  // namespace lode::prepared
