#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lode::testing_support {

/// A safetensors file of unnamed parts, filled with random numbers that are legal in their format.
class SyntheticShard {
 public:
  enum class Fill { kAny, kE8m0, kE4m3, kBf16, kBf16Scale, kF32Scale };

  /// Appends a part; returns where in the file it begins.
  std::uint64_t add(std::uint64_t bytes, Fill fill) {
    parts_.push_back({next_, bytes, fill});
    next_ += bytes;
    return parts_.back().offset;
  }

  void write(const std::filesystem::path& path) const {
    std::string header = "{";
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const std::uint64_t begin = parts_[i].offset - kHeaderBytes;
      if (parts_[i].bytes == 0) continue;
      header += (header.size() > 1 ? ",\"t" : "\"t") + std::to_string(i) +
                "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(parts_[i].bytes) +
                "],\"data_offsets\":[" + std::to_string(begin) + "," +
                std::to_string(begin + parts_[i].bytes) + "]}";
    }
    header += "}";
    header.resize(kHeaderBytes - 8, ' ');
    std::ofstream file(path, std::ios::binary);
    const std::uint64_t header_bytes = header.size();
    char prefix[8];
    std::memcpy(prefix, &header_bytes, 8);
    file.write(prefix, 8) << header;
    std::uint64_t state = 42;
    std::vector<char> block;
    for (const Part& part : parts_) {
      for (std::uint64_t done = 0; done < part.bytes; done += block.size()) {
        block.resize(std::min<std::uint64_t>(1 << 20, part.bytes - done));
        fill(block, part.fill, state);
        file.write(block.data(), static_cast<std::streamsize>(block.size()));
      }
    }
    file.close();
    drop_pages(path);
  }

 private:
  static constexpr std::uint64_t kHeaderBytes = 1 << 20;

  struct Part {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    Fill fill = Fill::kAny;
  };

  static void fill(std::vector<char>& block, Fill how, std::uint64_t& state) {
    for (std::size_t i = 0; i < block.size(); i += 8) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      std::uint64_t word = state ^ (state >> 29);
      switch (how) {
        case Fill::kAny:
          break;
        case Fill::kE8m0:
          word = 0x6060606060606060ULL | (word & 0x1F1F1F1F1F1F1F1FULL);
          break;
        case Fill::kE4m3:
          word &= 0x7777777777777777ULL;
          break;
        case Fill::kBf16:
          word &= 0xBFFFBFFFBFFFBFFFULL;
          break;
        case Fill::kBf16Scale:
          word = 0x3F803F803F803F80ULL | (word & 0x007F007F007F007FULL);
          break;
        case Fill::kF32Scale:
          word = 0x3F8000003F800000ULL | (word & 0x007FFFFF007FFFFFULL);
      }
      std::memcpy(block.data() + i, &word, std::min<std::size_t>(8, block.size() - i));
    }
  }

  /// Written pages are dirty, and dirty pages cannot be dropped.
  static void drop_pages(const std::filesystem::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY);
    ::fsync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }

  std::vector<Part> parts_;
  std::uint64_t next_ = kHeaderBytes;
};

}  // namespace lode::testing_support
