#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "lode/base/check.h"

namespace lode::prepared {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

/// Writes fixed records: numbers little-endian, texts in fields filled up with zeros.
class RecordWriter {
 public:
  template <class T>
  void number(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void text(std::string_view value, std::size_t field_bytes) {
    LODE_CHECK(value.size() < field_bytes, "a name longer than its field");
    const std::size_t at = bytes_.size();
    bytes_.resize(at + field_bytes);
    std::memcpy(bytes_.data() + at, value.data(), value.size());
  }
  void raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  /// Zeros up to this many bytes in all.
  void fill_to(std::size_t bytes) {
    LODE_CHECK(bytes >= bytes_.size(), "a record longer than its size");
    bytes_.resize(bytes);
  }
  std::size_t size() const noexcept { return bytes_.size(); }
  const std::vector<std::byte>& bytes() const noexcept { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads them. Beyond the end there are zeros, and `overran` says so.
class RecordReader {
 public:
  explicit RecordReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T value{};
    const std::span<const std::byte> field = take(sizeof value);
    if (!field.empty()) std::memcpy(&value, field.data(), sizeof value);
    return value;
  }
  /// Up to the first zero of the field.
  std::string_view text(std::size_t field_bytes) {
    const std::span<const std::byte> field = take(field_bytes);
    const auto end = std::find(field.begin(), field.end(), std::byte{0});
    return {static_cast<const char*>(static_cast<const void*>(field.data())),
            static_cast<std::size_t>(end - field.begin())};
  }
  void skip(std::size_t bytes) { take(bytes); }
  bool overran() const noexcept { return overran_; }
  std::size_t at() const noexcept { return at_; }

 private:
  std::span<const std::byte> take(std::size_t bytes) {
    if (bytes > bytes_.size() - at_) {
      overran_ = true;
      return {};
    }
    at_ += bytes;
    return bytes_.subspan(at_ - bytes, bytes);
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool overran_ = false;
};

}  // namespace lode::prepared
