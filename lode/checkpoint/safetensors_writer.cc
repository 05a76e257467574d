#include "lode/checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/json/json.h"

namespace lode::checkpoint {
namespace {

constexpr std::size_t kAlignment = 8;

Error refused(const std::filesystem::path& path, std::string_view call) {
  const int fault = errno;
  return Error{.code = fault == ENOSPC ? Code::kNoSpace : Code::kIo,
               .thing = path.string(),
               .wanted = std::string(call),
               .found = std::strerror(fault)};
}

// A file that is removed unless it was kept.
class PartialFile {
 public:
  explicit PartialFile(std::filesystem::path path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    if (!kept_) ::unlink(path_.c_str());
  }

  bool open() const noexcept { return descriptor_ >= 0; }
  Status write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return refused(path_, "to write");
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }
  Status keep_as(const std::filesystem::path& path) {
    if (::fsync(descriptor_) != 0) return refused(path_, "to write");
    if (::rename(path_.c_str(), path.c_str()) != 0)
      return refused(path, "to be renamed into place");
    kept_ = true;
    return {};
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool kept_ = false;
};

// Where the file is to be renamed to: links are followed, because a rename would replace the link.
// A device or a pipe must not be replaced by a file.
Result<std::filesystem::path> place_of(const std::filesystem::path& path) {
  std::error_code fault;
  const std::filesystem::file_status status = std::filesystem::status(path, fault);
  if (!std::filesystem::exists(status)) return path;
  if (!std::filesystem::is_regular_file(status)) {
    return Error{.code = Code::kIo,
                 .thing = path.string(),
                 .wanted = "a regular file to replace, or a new name",
                 .found = std::filesystem::is_directory(status) ? "a folder" : "a special file"};
  }
  const std::filesystem::path place = std::filesystem::canonical(path, fault);
  return fault ? path : place;
}

Status check_tensor(const TensorToWrite& tensor, std::set<std::string>& names) {
  std::uint64_t bits = formats::info(tensor.format).bits;
  for (const std::uint64_t dim : tensor.dims) bits = checked_mul(bits, dim).value_or(0);
  if (bits % 8 != 0 || bits / 8 != tensor.bytes.size()) {
    return Error{.code = Code::kUsage,
                 .thing = "tensor " + tensor.name,
                 .wanted = fmt::format("{} bytes for its dims", bits / 8),
                 .found = fmt::format("{}", tensor.bytes.size())};
  }
  if (!names.insert(tensor.name).second) {
    return Error{.code = Code::kUsage, .thing = "tensor " + tensor.name, .found = "given twice"};
  }
  return {};
}

std::string header_text(std::span<const TensorToWrite> tensors) {
  json::Object header;
  std::uint64_t begin = 0;
  for (const TensorToWrite& tensor : tensors) {
    json::Array dims;
    for (const std::uint64_t dim : tensor.dims) dims.emplace_back(dim);
    const std::uint64_t end = begin + tensor.bytes.size();
    header.emplace_back(
        tensor.name,
        json::object({{"dtype", formats::info(tensor.format).safetensors_name},
                      {"shape", std::move(dims)},
                      {"data_offsets", json::Array{json::Value(begin), json::Value(end)}}}));
    begin = end;
  }
  std::string text = json::dump(json::Value(std::move(header)));
  text.resize(align_up(text.size(), kAlignment), ' ');
  return text;
}

}  // namespace

Status write_safetensors(const std::filesystem::path& path,
                         std::span<const TensorToWrite> tensors) {
  static_assert(std::endian::native == std::endian::little, "the length is written as it lies");
  std::set<std::string> names;
  for (const TensorToWrite& tensor : tensors) LODE_TRY_STATUS(check_tensor(tensor, names));

  LODE_TRY(const std::filesystem::path place, place_of(path));
  const std::filesystem::path partial = place.string() + ".partial";
  PartialFile file(partial);
  if (!file.open()) return refused(partial, "to be created");
  const std::string header = header_text(tensors);
  const std::uint64_t header_bytes = header.size();
  LODE_TRY_STATUS(file.write(std::as_bytes(std::span(&header_bytes, 1))));
  LODE_TRY_STATUS(file.write(std::as_bytes(std::span(header))));
  for (const TensorToWrite& tensor : tensors) LODE_TRY_STATUS(file.write(tensor.bytes));
  return file.keep_as(place);
}

}  // namespace lode::checkpoint
