#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/input_file.h"
#include "lode/json/json.h"

namespace lode::checkpoint {

/// JSON text inside a file, handed to the parser in pieces of 256 KiB.
class FileSource final : public json::Source {
 public:
  FileSource(const InputFile& file, std::uint64_t begin, std::uint64_t bytes)
      : file_(file), at_(begin), left_(bytes) {}

  /// Errors: as InputFile::read_into.
  Result<std::string_view> next() override {
    buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(left_, kPieceBytes)));
    if (!buffer_.empty()) {
      LODE_TRY_STATUS(file_.read_into(at_, std::as_writable_bytes(std::span(buffer_))));
    }
    at_ += buffer_.size();
    left_ -= buffer_.size();
    return std::string_view(buffer_.data(), buffer_.size());
  }

 private:
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{256} * 1024;

  const InputFile& file_;
  std::uint64_t at_;
  std::uint64_t left_;
  std::vector<char> buffer_;
};

}  // namespace lode::checkpoint
