#include "lode/checkpoint/index_file.h"

#include <algorithm>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/checkpoint/file_source.h"

namespace lode::checkpoint {
namespace {

constexpr std::uint64_t kMaxIndexBytes = 100'000'000;
constexpr std::size_t kMaxShards = 100'000;
constexpr std::string_view kShardSuffix = ".safetensors";

Error bad_index(std::string thing, std::string wanted, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

// The index is small in kinds: strings inside weight_map, and total_size inside metadata. All else
// is passed over, whatever it is.
class IndexHandler final : public json::Handler {
 public:
  explicit IndexHandler(IndexFile& index) : index_(index) {}

  Status begin_object() override {
    if (in_weight_map()) return bad_index("weight_map", "file names", "an object");
    if (depth_ == 1 && section_ == "weight_map") has_weight_map_ = true;
    ++depth_;
    return {};
  }
  Status name(std::string_view name) override {
    if (depth_ == 1) section_ = name;
    if (depth_ == 2) name_ = name;
    return {};
  }
  Status end_object() override {
    --depth_;
    return {};
  }
  Status begin_array() override {
    if (depth_ == 0) return bad_index("the index", "an object", "an array");
    if (in_weight_map()) return bad_index("weight_map", "file names", "an array");
    ++depth_;
    return {};
  }
  Status end_array() override {
    --depth_;
    return {};
  }
  Status scalar(json::Value value) override {
    if (in_weight_map()) return entry(value);
    if (depth_ == 2 && section_ == "metadata" && name_ == "total_size" && value.as_int()) {
      index_.total_bytes = static_cast<std::uint64_t>(*value.as_int());
    }
    return {};
  }

  Status finish() {
    if (!has_weight_map_) return bad_index("the index", "an object weight_map", "none");
    std::ranges::sort(index_.entries, {}, &IndexFile::Entry::tensor);
    return {};
  }

 private:
  bool in_weight_map() const { return depth_ == 2 && section_ == "weight_map"; }

  Status entry(const json::Value& value) {
    const std::string* shard = value.as_string();
    const std::string thing = fmt::format("tensor {} in weight_map", printable(name_));
    if (shard == nullptr) return bad_index(thing, "a file name", std::string(value.kind()));
    if (!is_plain_basename(*shard) || !shard->ends_with(kShardSuffix)) {
      return bad_index(thing, "a plain file name of letters, digits, '.', '_', '-' in .safetensors",
                       fmt::format("\"{}\"", printable(*shard)));
    }
    const auto next = static_cast<std::uint32_t>(shard_ids_.size());
    const auto [known, is_new] = shard_ids_.emplace(*shard, next);
    if (is_new && next >= kMaxShards) {
      return bad_index("the index", fmt::format("at most {} shards", kMaxShards), "more");
    }
    if (is_new) index_.shard_names.push_back(*shard);
    index_.entries.push_back({.tensor = index_.arena.keep_name(name_), .shard = known->second});
    return {};
  }

  IndexFile& index_;
  std::unordered_map<std::string, std::uint32_t> shard_ids_;
  int depth_ = 0;
  std::string section_;
  std::string name_;
  bool has_weight_map_ = false;
};

class TextSource final : public json::Source {
 public:
  explicit TextSource(std::string_view text) : text_(text) {}
  Result<std::string_view> next() override { return std::exchange(text_, {}); }

 private:
  std::string_view text_;
};

}  // namespace

std::optional<std::uint32_t> IndexFile::shard_of(std::string_view tensor) const noexcept {
  const auto entry = std::ranges::lower_bound(entries, tensor, {}, &Entry::tensor);
  if (entry == entries.end() || entry->tensor != tensor) return std::nullopt;
  return entry->shard;
}

Result<IndexFile> parse_index_file(json::Source& source) {
  IndexFile index;
  IndexHandler handler(index);
  LODE_TRY_STATUS(json::parse_streaming(source, handler, {.max_bytes = kMaxIndexBytes}));
  LODE_TRY_STATUS(handler.finish());
  return index;
}

Result<IndexFile> parse_index_file(std::string_view text) {
  TextSource source(text);
  return parse_index_file(source);
}

Result<std::optional<IndexFile>> read_index_file(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kIndexFileName;
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    return std::optional<IndexFile>();
  }
  LODE_TRY(const InputFile file, InputFile::open(path));
  FileSource source(file, 0, file.identity().bytes);
  Result<IndexFile> index = parse_index_file(source);
  if (!index) return at(printable(file.path()), std::move(index).error());
  return std::optional<IndexFile>(*std::move(index));
}

}  // namespace lode::checkpoint
