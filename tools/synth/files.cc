#include "tools/synth/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/json/json.h"

namespace lode::synth {
namespace {

Error failed(std::string_view what, const std::string& path) {
  const int number = errno;
  return Error{.code = number == ENOSPC ? Code::kNoSpace : Code::kIo,
               .thing = std::string(what),
               .found = std::strerror(number),
               .where = path};
}

/// The header: its length, the tensors of the shard, spaces up to where the data shall begin.
std::string header_of(const Recipe& recipe, const Plan& plan, std::uint64_t shard) {
  json::Object tensors{{"__metadata__", json::object({{"format", "pt"}})}};
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.shard != shard) continue;
    json::Array dims;
    for (const std::uint64_t dim : tensor.dims) dims.emplace_back(dim);
    json::Array offsets{tensor.offset, tensor.offset + tensor.bytes};
    tensors.emplace_back(tensor.name, json::object({{"dtype", tensor.dtype},
                                                    {"shape", std::move(dims)},
                                                    {"data_offsets", std::move(offsets)}}));
  }
  std::string text = json::dump(json::Value(std::move(tensors)));
  text.append((8 - text.size() % 8) % 8, ' ');
  if (recipe.unaligned) text.append(3, ' ');
  return text;
}

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<OutputFile> OutputFile::make(const std::filesystem::path& path, std::uint64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (descriptor < 0) return failed("making a file", path.string());
  OutputFile file(descriptor, path.string());
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    return failed("making a file of its size", path.string());
  }
  return file;
}

Status OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed("writing", path_);
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

std::string shard_name(std::uint64_t shard, std::uint64_t shards) {
  if (shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

Result<Shards> Shards::make(const std::filesystem::path& folder, const Recipe& recipe,
                            const Plan& plan) {
  std::vector<std::uint64_t> data_bytes(recipe.shards);
  for (const PlannedTensor& tensor : plan.tensors) data_bytes[tensor.shard] += tensor.bytes;
  Shards shards;
  for (std::uint64_t shard = 0; shard < recipe.shards; ++shard) {
    const std::string header = header_of(recipe, plan, shard);
    const std::uint64_t data_offset = 8 + header.size();
    LODE_TRY(OutputFile file, OutputFile::make(folder / shard_name(shard, recipe.shards),
                                               data_offset + data_bytes[shard]));
    const std::uint64_t length = header.size();
    LODE_TRY_STATUS(file.write_at(0, std::as_bytes(std::span(&length, 1))));
    LODE_TRY_STATUS(file.write_at(8, std::as_bytes(std::span(header))));
    shards.files_.push_back(std::move(file));
    shards.data_offsets_.push_back(data_offset);
  }
  return shards;
}

Status Shards::write(const PlannedTensor& tensor, std::uint64_t offset,
                     std::span<const std::byte> bytes) const {
  const std::uint64_t data_offset = data_offsets_[tensor.shard];
  return files_[tensor.shard].write_at(data_offset + tensor.offset + offset, bytes);
}

Status write_text(const std::filesystem::path& path, std::string_view text) {
  LODE_TRY(const OutputFile file, OutputFile::make(path, 0));
  return file.write_at(0, std::as_bytes(std::span(text)));
}

}  // namespace lode::synth
