#include "lode/prepared/out_folder.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"

namespace lode::prepared {
namespace {

constexpr std::uint64_t kMostJournalBytes = kGiB;

bool is_data_file(const std::string& name) {
  return name.starts_with("weights-") && name.ends_with(".bin");
}

Error no_folder(const std::filesystem::path& there) {
  std::error_code fault;
  const bool is_file = std::filesystem::is_regular_file(there, fault);
  return Error{.code = Code::kUsage,
               .thing = there.string(),
               .wanted = "a folder, or nothing yet",
               .found = is_file ? "a file" : "something else"};
}

bool holds(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<std::optional<JournalState>> read_state(const OutputFile& journal) {
  LODE_TRY(const std::uint64_t size, journal.size());
  if (size > kMostJournalBytes) return std::optional<JournalState>();
  std::vector<std::byte> bytes(size);
  LODE_TRY(const std::size_t count, journal.read(bytes, 0));
  return read_journal(std::span(bytes).first(count));
}

Status check_ours(const std::filesystem::path& out, const std::vector<std::string>& names,
                  bool force) {
  const bool ours = holds(names, kJournalFile) || (force && holds(names, kManifestFile));
  if (names.empty() || ours) return {};
  return Error{.code = Code::kUsage,
               .thing = out.string(),
               .wanted = "an empty folder, or one that lode prepare has begun to fill",
               .found = fmt::format("\"{}\" in it", names.front())};
}

}  // namespace

Result<std::vector<std::string>> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code fault;
  if (!std::filesystem::exists(folder, fault)) return names;
  if (!std::filesystem::is_directory(folder, fault)) return no_folder(folder);
  auto entry = std::filesystem::directory_iterator(folder, fault);
  for (; !fault && entry != std::filesystem::directory_iterator(); entry.increment(fault)) {
    names.push_back(entry->path().filename().string());
  }
  if (!fault) return names;
  return Error{.code = Code::kIo,
               .thing = folder.string(),
               .wanted = "the names in it",
               .found = fault.message()};
}

Result<OutState> look_at_out(io::SystemCalls& calls, const std::filesystem::path& out, bool force) {
  LODE_TRY(const std::vector<std::string> names, names_in(out));
  LODE_TRY_STATUS(check_ours(out, names, force));
  OutState state;
  for (const std::string& name : names) {
    io::FileStatus file;
    if (!is_data_file(name) || calls.status_of((out / name).string(), file) < 0) continue;
    state.data_disk_bytes += file.disk_bytes;
  }
  if (!holds(names, kJournalFile)) return state;
  LODE_TRY(const OutputFile journal,
           OutputFile::open_to_read(calls, (out / kJournalFile).string()));
  LODE_TRY(state.journal, read_state(journal));
  return state;
}

std::filesystem::path nearest_folder(const std::filesystem::path& out) {
  std::error_code fault;
  std::filesystem::path folder = std::filesystem::absolute(out, fault).lexically_normal();
  while (!std::filesystem::is_directory(folder, fault) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  return folder;
}

Result<OutFolder> OutFolder::take(io::SystemCalls& calls, const std::filesystem::path& out,
                                  bool force) {
  LODE_TRY(const std::vector<std::string> names, names_in(out));
  LODE_TRY_STATUS(check_ours(out, names, force));
  LODE_TRY_STATUS(make_folder(calls, out.string()));
  OutFolder folder;
  folder.is_new = !holds(names, kJournalFile);
  LODE_TRY(folder.journal,
           OutputFile::open(calls, (out / kJournalFile).string(), OutputFile::Way::kBuffered));
  LODE_TRY_STATUS(folder.journal.lock());
  LODE_TRY(folder.state, read_state(folder.journal));
  return folder;
}

Status check_out(const std::filesystem::path& source, const std::filesystem::path& out) {
  if (out.empty()) {
    return Error{.code = Code::kUsage,
                 .thing = "OUT",
                 .wanted = "the name of a folder to write to",
                 .found = "an empty name"};
  }
  std::error_code fault;
  const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(out, fault));
  if (is_there && !std::filesystem::is_directory(out, fault)) return no_folder(out);
  const auto from = std::filesystem::weakly_canonical(source, fault);
  const auto to = std::filesystem::weakly_canonical(out, fault);
  const auto [end, unused] = std::mismatch(from.begin(), from.end(), to.begin(), to.end());
  if (end != from.end()) return {};
  return Error{.code = Code::kUsage,
               .thing = out.string(),
               .wanted = "a folder of its own",
               .found = to == from ? "the source's folder" : "one within the source's folder"};
}

Result<std::optional<Manifest>> read_manifest(const std::filesystem::path& out,
                                              bool damaged_is_none) {
  LODE_TRY(const std::optional<std::string> text,
           checkpoint::read_small_file(out / kManifestFile, kMostManifestBytes));
  if (!text) return std::optional<Manifest>();
  Result<Manifest> manifest = decode_manifest(*text);
  if (manifest) return std::optional<Manifest>(*std::move(manifest));
  if (damaged_is_none) return std::optional<Manifest>();
  return at(out.string(), std::move(manifest).error());
}

Status check_same(const JournalState& state, const Fingerprint& now, const std::string& out) {
  const bool times_count = !state.holes_up_to_stage;  // holes change them
  const bool settings = state.fingerprint.settings == now.settings;
  const bool sources = state.fingerprint.sources == now.sources &&
                       (!times_count || state.fingerprint.source_times == now.source_times);
  if (settings && sources) return {};
  return Error{.code = settings ? Code::kSourceChanged : Code::kUsage,
               .thing = out,
               .wanted = settings ? "the files that it was begun from"
                                  : "the settings that it was begun with",
               .found = "others",
               .hint = "--force begins again and drops what was made"};
}

Status clear_folder(io::SystemCalls& calls, const std::filesystem::path& out) {
  const auto remove = [&](const std::string& name) {
    return remove_file(calls, (out / name).string());
  };
  LODE_TRY_STATUS(remove(std::string(kManifestFile)));
  LODE_TRY_STATUS(sync_folder(calls, out.string()));
  LODE_TRY(const std::vector<std::string> names, names_in(out));
  for (const std::string& name : names) {
    if (is_data_file(name) || name == kIndexFile || name.ends_with(".part")) {
      LODE_TRY_STATUS(remove(name));
    }
  }
  return {};
}

}  // namespace lode::prepared
