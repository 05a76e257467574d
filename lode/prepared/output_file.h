#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "lode/base/result.h"
#include "lode/io/system_calls.h"

namespace lode::prepared {

/// A file that we write. Where the file system can, whole pages go past the page cache; where it
/// cannot, what was written is written out and dropped behind, 8 MiB at a time. Move-only; closed
/// when it ends.
class OutputFile {
 public:
  enum class Way { kDirect, kBuffered };

  OutputFile() = default;
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  /// Opens a file, makes it where there is none.
  /// Errors: kIo, kNoSpace naming the file.
  static Result<OutputFile> open(io::SystemCalls& calls, std::string path, Way way);

  /// Opens a file that is there, and never writes to it.
  /// Errors: kIo naming the file.
  static Result<OutputFile> open_to_read(io::SystemCalls& calls, std::string path);

  bool is_open() const noexcept { return descriptor_ >= 0; }
  const std::string& path() const noexcept { return path_; }

  /// Shapes: bytes [n]
  /// Errors: kIo, kNoSpace naming the file.
  Status write(std::span<const std::byte> bytes, std::uint64_t offset_bytes);
  /// Reads up to `out.size()` bytes; says how many there are.
  /// Shapes: out [n]
  /// Errors: kIo.
  Result<std::size_t> read(std::span<std::byte> out, std::uint64_t offset_bytes) const;
  /// Blocks for a range; a file system that cannot promise them is not an error.
  /// Errors: kNoSpace, kIo.
  Status allocate(std::uint64_t offset_bytes, std::uint64_t bytes);
  /// Errors: kIo, kNoSpace.
  Status truncate(std::uint64_t bytes);
  /// What was written is on the disk when this returns.
  /// Errors: kIo, kNoSpace; what was written since the last time may be lost then.
  Status sync_data();
  /// Keeps others out for as long as the file is open here.
  /// Errors: kIo where somebody else has it.
  Status lock();
  /// Errors: kIo.
  Result<std::uint64_t> size() const;

 private:
  OutputFile(io::SystemCalls& calls, std::string path, int descriptor)
      : calls_(&calls), path_(std::move(path)), descriptor_(descriptor) {}
  Status drop_behind(std::uint64_t offset_bytes, std::uint64_t bytes);

  io::SystemCalls* calls_ = nullptr;
  std::string path_;
  int descriptor_ = -1;
  bool direct_ = false;
};

/// Sees to it that names made, renamed and removed in a folder are on the disk.
/// Errors: kIo.
Status sync_folder(io::SystemCalls& calls, const std::string& folder);

/// Puts a whole small file in its place at once: written beside it, synced, renamed, and the folder
/// synced. Before and after a crash there is the old file or the new one.
/// Errors: kIo, kNoSpace.
Status replace_file(io::SystemCalls& calls, const std::string& folder, const std::string& name,
                    std::span<const std::byte> bytes);

/// Puts a file in the place of another name, whatever has that; sync_folder brings it to the disk.
/// Errors: kIo, kNoSpace.
Status rename_file(io::SystemCalls& calls, const std::string& from, const std::string& to);

/// Removes a file; none of that name is well, too.
/// Errors: kIo.
Status remove_file(io::SystemCalls& calls, const std::string& path);

/// Makes a folder, and those that it is to lie in, and lets each one's parent know on the disk; one
/// that is there is well, too.
/// Errors: kIo, kNoSpace.
Status make_folder(io::SystemCalls& calls, const std::string& path);

}  // namespace lode::prepared
