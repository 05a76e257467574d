#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lode::testing_support {

/// For tests that write much: temporary folders in memory, where there are such.
class FoldersInMemory {
 public:
  FoldersInMemory() {
    const char* const set = std::getenv("TMPDIR");
    before_ = set == nullptr ? "" : set;
    if (before_.empty() && std::filesystem::is_directory("/dev/shm")) {
      ::setenv("TMPDIR", "/dev/shm", 1);
    }
  }
  FoldersInMemory(const FoldersInMemory&) = delete;
  FoldersInMemory& operator=(const FoldersInMemory&) = delete;
  ~FoldersInMemory() {
    if (before_.empty()) ::unsetenv("TMPDIR");
  }

 private:
  std::string before_;
};

/// A folder that is gone when the test is over.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lode-test-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::ofstream(file, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }
  /// A file that is `header` and then holes up to `file_bytes`.
  std::filesystem::path write_sparse(std::string_view name, std::string_view header,
                                     std::uint64_t file_bytes) const {
    const std::filesystem::path file = write(name, header);
    std::filesystem::resize_file(file, file_bytes);
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// Eight bytes of length, the header's text, and `data_bytes` zeros.
inline std::string with_header(std::string_view header, std::size_t data_bytes) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i) {
    file += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xFF);
  }
  file += header;
  file.append(data_bytes, '\0');
  return file;
}

struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> dims;
  std::uint64_t bytes;
};

/// The header's text for these tensors, one after another from byte 0, and their bytes together.
inline std::pair<std::string, std::uint64_t> header_of(const std::vector<TensorEntry>& tensors) {
  std::string text = "{";
  std::uint64_t at = 0;
  for (const TensorEntry& tensor : tensors) {
    if (at != 0 || text.size() > 1) text += ',';
    text += "\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
      text += (i == 0 ? "" : ",") + std::to_string(tensor.dims[i]);
    }
    text += "],\"data_offsets\":[" + std::to_string(at) + ",";
    at += tensor.bytes;
    text += std::to_string(at) + "]}";
  }
  return {text + "}", at};
}

/// A whole file for them, all zeros.
inline std::string shard_of(const std::vector<TensorEntry>& tensors) {
  const auto [header, bytes] = header_of(tensors);
  return with_header(header, static_cast<std::size_t>(bytes));
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace lode::testing_support
