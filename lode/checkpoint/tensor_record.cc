#include "lode/checkpoint/tensor_record.h"

#include <algorithm>
#include <cstring>

#include "lode/base/fmt.h"

namespace lode::checkpoint {
namespace {

constexpr std::size_t kPageBytes = std::size_t{64} * 1024;
constexpr std::size_t kMaxPrintedBytes = 200;
constexpr std::size_t kNodeBytes = 64;  // of a tree node and its small allocation, about

}  // namespace

std::uint64_t num_elements(const TensorRecord& tensor) noexcept {
  std::uint64_t count = 1;
  for (const std::uint64_t dim : tensor.dims) count *= dim;
  return count;
}

std::string dims_text(std::span<const std::uint64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::string describe(const TensorRecord& tensor) {
  return fmt::format("{} {}", printable(tensor.dtype), dims_text(tensor.dims));
}

std::string printable(std::string_view name) {
  const bool cut = name.size() > kMaxPrintedBytes;
  if (cut) {
    std::size_t keep = kMaxPrintedBytes;
    while (keep > 0 && (static_cast<unsigned char>(name[keep]) & 0xC0) == 0x80) --keep;
    name = name.substr(0, keep);
  }
  std::string text(name);
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return cut ? text + "..." : text;
}

std::string_view RecordArena::keep_name(std::string_view name) {
  if (name.size() > free_.size()) {
    const std::size_t bytes = std::max(kPageBytes, name.size());
    pages_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
    free_ = {pages_.back().get(), bytes};
    held_bytes_ += bytes;
  }
  char* const kept = free_.data();
  if (!name.empty()) std::memcpy(kept, name.data(), name.size());
  free_ = free_.subspan(name.size());
  return {kept, name.size()};
}

std::string_view RecordArena::keep_dtype(std::string_view dtype) {
  auto found = dtypes_.find(dtype);
  if (found == dtypes_.end()) {
    found = dtypes_.emplace(dtype).first;
    held_bytes_ += kNodeBytes + dtype.size();
  }
  return *found;
}

std::span<const std::uint64_t> RecordArena::keep_dims(std::span<const std::uint64_t> dims) {
  if (dims.empty()) return {};
  const auto [shape, is_new] = shapes_.emplace(dims.begin(), dims.end());
  if (is_new) held_bytes_ += kNodeBytes + dims.size_bytes();
  return *shape;
}

}  // namespace lode::checkpoint
