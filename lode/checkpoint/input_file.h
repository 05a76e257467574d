#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"

namespace lode::checkpoint {

/// What tells whether a file is still the one that was opened.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;

  bool operator==(const FileIdentity&) const = default;
};

/// A regular file, open for reading. Links are followed (the hub's cache is made of links), but
/// what they lead to must be a regular file. Nothing waits on a pipe or a device.
class InputFile {
 public:
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  /// Errors: kInvalidSource naming the path where there is no such file or it is not a regular
  /// one; kIo where the system refuses.
  static Result<InputFile> open(const std::filesystem::path& path);

  const std::string& path() const noexcept { return path_; }
  const FileIdentity& identity() const noexcept { return identity_; }

  /// Fills `out` with the bytes from `offset` on.
  ///
  /// Shapes: out [bytes]
  /// Errors: kSourceChanged where the file ends before; kIo where the system refuses.
  Status read_into(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  InputFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  int descriptor_ = -1;
  std::string path_;
  FileIdentity identity_;
};

/// Errors: kSourceChanged naming the path where it no longer is the file of `identity`.
Status check_unchanged(const std::filesystem::path& path, const FileIdentity& identity);

/// The text of a small file (config, index); none where there is no such file.
///
/// Errors: kInvalidSource where it is larger than `max_bytes` or no regular file; kIo.
Result<std::optional<std::string>> read_small_file(const std::filesystem::path& path,
                                                   std::uint64_t max_bytes);

/// Whether `name` may name a shard: letters, digits, '.', '_' and '-', no leading dot, at most 255
/// bytes. Nothing that walks out of its folder passes.
bool is_plain_basename(std::string_view name) noexcept;

}  // namespace lode::checkpoint
