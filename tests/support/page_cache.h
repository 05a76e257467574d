#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lode::testing_support {

/// Writes a file out and drops it from the page cache: dirty pages cannot be dropped.
inline void drop_from_page_cache(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

/// Brings bytes [begin, end) of a file into the page cache, and no others.
inline void bring_into_page_cache(const std::filesystem::path& path, std::uint64_t begin,
                                  std::uint64_t end) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
  std::vector<char> bytes(end - begin);
  const auto got = ::pread(file, bytes.data(), bytes.size(), static_cast<off_t>(begin));
  static_cast<void>(got);
  ::close(file);
}

}  // namespace lode::testing_support
