#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/io/read_engine.h"
#include "lode/memory/buffer.h"
#include "tests/support/page_cache.h"

namespace lode::io {

/// What the file at `path` is now.
inline SourceFile stamp(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  const auto to_ns = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
  };
  return {path,
          status.st_dev,
          status.st_ino,
          static_cast<std::uint64_t>(status.st_size),
          to_ns(status.st_mtim),
          to_ns(status.st_ctim)};
}

/// A file of known bytes, on disk and out of the page cache.
class TestSource {
 public:
  explicit TestSource(std::string path, std::uint64_t bytes = 5 * kMiB + 123)
      : path_(std::move(path)), bytes_(bytes) {
    write();
  }
  ~TestSource() { std::filesystem::remove(path_); }
  TestSource(const TestSource&) = delete;
  TestSource& operator=(const TestSource&) = delete;

  static std::byte expected(std::uint64_t offset) {
    return static_cast<std::byte>(offset * 7 + offset / 256 + offset / 65'521);
  }

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const { return bytes_; }

  void write() const {
    std::string text(bytes_, '\0');
    for (std::uint64_t i = 0; i < bytes_; ++i) text[i] = std::to_integer<char>(expected(i));
    std::ofstream(path_, std::ios::binary) << text;
    testing_support::drop_from_page_cache(path_);
  }

 private:
  std::string path_;
  std::uint64_t bytes_;
};

/// Memory for requests that can be read past the page cache: each lies as its bytes lie in the file
/// and has its blocks for itself. Between them stands a byte that nobody may change.
class Blocks {
 public:
  static constexpr std::byte kUntouched{0xA5};

  explicit Blocks(std::uint64_t bytes) : ledger_(2 * bytes + 4 * kMiB) {
    auto made = memory::make_buffer(ledger_, memory::Tag::kStaging, bytes, "blocks of a test");
    EXPECT_TRUE(made);
    buffer_ = *std::move(made);
    std::fill(all().begin(), all().end(), kUntouched);
  }

  std::span<std::byte> all() { return buffer_.mutate(); }
  std::span<std::byte> take(std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t begin = next_ + offset % kBlockBytes;
    next_ = align_up(begin + bytes, kBlockBytes) + kBlockBytes;  // a block that is nobody's
    return all().subspan(begin, bytes);
  }
  /// Whether the blocks that are nobody's are as they were.
  bool untouched_after(std::span<const std::byte> taken) {
    const auto end = static_cast<std::uint64_t>(taken.data() + taken.size() - all().data());
    const auto block = all().subspan(align_up(end, kBlockBytes), kBlockBytes);
    return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == kUntouched; });
  }

 private:
  memory::Ledger ledger_;
  memory::Buffer buffer_;
  std::uint64_t next_ = 0;
};

/// Reads one range and waits for it.
inline Status read_one(ReadEngine& engine, std::uint64_t offset, std::span<std::byte> out,
                       bool owns_blocks) {
  engine.submit({0, offset, out, 0, owns_blocks});
  return engine.wait().status;
}

inline void expect_bytes(std::span<const std::byte> out, std::uint64_t offset) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], TestSource::expected(offset + i)) << offset << " + " << i;
  }
}

}  // namespace lode::io
