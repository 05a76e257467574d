#include "lode/checkpoint/tensor_index.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/checkpoint/index_builder.h"
#include "lode/checkpoint/index_file.h"
#include "lode/checkpoint/nearest_name.h"

namespace lode::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::size_t kMaxListed = 5;

// Up to five names, and how many more.
std::string few_of(std::span<const std::string> names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) {
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  if (names.size() > kMaxListed) text += fmt::format(" and {} more", names.size() - kMaxListed);
  return text;
}

// All *.safetensors at the top of the folder, sorted.
Result<std::vector<std::string>> list_weights(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(kSuffix)) names.push_back(name);
  }
  if (error) {
    return Error{
        .code = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory
                    ? Code::kInvalidSource
                    : Code::kIo,
        .thing = printable(folder.string()),
        .wanted = "a checkpoint folder",
        .found = error.message()};
  }
  std::ranges::sort(names);
  return names;
}

// Without an index: the one file, or else all that is not another copy under other names.
std::vector<std::string> choose_without_index(const std::vector<std::string>& listed) {
  if (std::ranges::binary_search(listed, kSingleFile)) return {std::string(kSingleFile)};
  std::vector<std::string> chosen;
  std::ranges::copy_if(listed, std::back_inserter(chosen), [](const std::string& name) {
    return is_plain_basename(name) && !name.starts_with("consolidated");
  });
  return chosen;
}

Status check_present(const fs::path& folder, std::span<const std::string> names) {
  std::vector<std::string> missing;
  std::error_code ignored;
  std::ranges::copy_if(names, std::back_inserter(missing), [&](const std::string& name) {
    return !fs::exists(folder / name, ignored);
  });
  if (missing.empty()) return {};
  return Error{.code = Code::kInvalidSource,
               .thing = printable(folder.string()),
               .wanted = fmt::format("all {} shards that its index names", names.size()),
               .found = fmt::format("{} missing: {}", missing.size(), few_of(missing)),
               .hint = "the download is incomplete"};
}

Status add_shard(IndexBuilder& builder, const fs::path& path) {
  LODE_TRY(const InputFile file, InputFile::open(path));
  LODE_TRY(const ShardHeader header, read_header(file, builder.arena()));
  builder.add({.name = path.filename().string(), .path = file.path(), .identity = file.identity()},
              header);
  return {};
}

void note_left_aside(IndexBuilder& builder, const std::vector<std::string>& listed,
                     std::vector<std::string> chosen) {
  std::ranges::sort(chosen);
  std::vector<std::string> aside;
  std::ranges::set_difference(listed, chosen, std::back_inserter(aside));
  if (!aside.empty()) builder.note("files left aside: " + few_of(aside));
}

}  // namespace

const TensorRecord* TensorIndex::find(std::string_view name) const noexcept {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &TensorRecord::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

Result<const TensorRecord*> TensorIndex::want(std::string_view name) const {
  const TensorRecord* const tensor = find(name);
  if (tensor == nullptr) {
    const std::string nearest = nearest_name(name);
    return Error{.code = Code::kInvalidSource,
                 .thing = fmt::format("tensor {}", printable(name)),
                 .wanted = "it in the checkpoint",
                 .found = "no tensor of that name",
                 .hint = nearest.empty() ? "" : fmt::format("nearest is {}", printable(nearest))};
  }
  if (!tensor->format) {
    return Error{.code = Code::kUnsupported,
                 .thing = fmt::format("tensor {}", printable(name)),
                 .wanted = "a dtype that lode knows",
                 .found = printable(tensor->dtype),
                 .where = shard_of(*tensor).name};
  }
  return tensor;
}

std::span<const TensorRecord> TensorIndex::with_prefix(std::string_view prefix) const noexcept {
  const auto begin = std::ranges::lower_bound(tensors_, prefix, {}, &TensorRecord::name);
  const auto end = std::partition_point(begin, tensors_.end(), [&](const TensorRecord& tensor) {
    return tensor.name.starts_with(prefix);
  });
  return {begin, end};
}

std::string TensorIndex::nearest_name(std::string_view name) const {
  constexpr std::size_t kMaxWork = 100'000'000;
  constexpr std::size_t kMaxNameBytes = 512;
  std::string_view best;
  std::size_t limit = std::min(name.size(), kMaxNameBytes) / 3;
  std::size_t work = 0;
  for (const TensorRecord& tensor : tensors_) {
    if (limit == 0 || work > kMaxWork || name.size() > kMaxNameBytes) break;
    if (tensor.name.size() > kMaxNameBytes) continue;
    work += 2 * limit * std::min(name.size(), tensor.name.size());
    if (const auto distance = edit_distance(name, tensor.name, limit)) {
      best = tensor.name;
      limit = *distance - (*distance == 0 ? 0 : 1);
    }
  }
  return std::string(best);
}

std::uint64_t TensorIndex::tensor_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const TensorRecord& tensor : tensors_) bytes += tensor.bytes;
  return bytes;
}

std::size_t TensorIndex::held_bytes() const noexcept {
  std::size_t bytes = arena_.held_bytes() + tensors_.capacity() * sizeof(TensorRecord);
  for (const Shard& shard : shards_) bytes += sizeof(Shard) + shard.name.size() + shard.path.size();
  for (const std::string& note : notes_) bytes += sizeof(std::string) + note.size();
  return bytes;
}

Result<TensorIndex> open_index(const fs::path& folder) {
  LODE_TRY(const std::vector<std::string> listed, list_weights(folder));
  LODE_TRY(const std::optional<IndexFile> promised, read_index_file(folder));
  const std::vector<std::string> names =
      promised ? promised->shard_names : choose_without_index(listed);
  if (names.empty() && !promised) {
    return Error{.code = Code::kInvalidSource,
                 .thing = printable(folder.string()),
                 .wanted = "model.safetensors, or shards and their index",
                 .found = "no weights"};
  }
  LODE_TRY_STATUS(check_present(folder, names));
  IndexBuilder builder;
  if (promised) builder.expect(promised->entries.size());
  for (const std::string& name : names) LODE_TRY_STATUS(add_shard(builder, folder / name));
  note_left_aside(builder, listed, names);
  return std::move(builder).finish(promised ? &*promised : nullptr);
}

Result<TensorIndex> open_file(const fs::path& file) {
  IndexBuilder builder;
  LODE_TRY_STATUS(add_shard(builder, file));
  return std::move(builder).finish(nullptr);
}

Result<std::vector<std::byte>> read_tensor(const TensorIndex& index, const TensorRecord& tensor) {
  const Shard& shard = index.shard_of(tensor);
  LODE_TRY(const InputFile file, InputFile::open(shard.path));
  if (file.identity() != shard.identity) {
    return Error{.code = Code::kSourceChanged,
                 .thing = printable(shard.path),
                 .wanted = "the file that was indexed",
                 .found = "another, or a later change"};
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
  LODE_TRY_STATUS(file.read_into(tensor.file_offset, bytes));
  return bytes;
}

}  // namespace lode::checkpoint
