#include "lode/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/checkpoint/file_source.h"
#include "lode/checkpoint/header_handler.h"
#include "lode/json/json.h"

namespace lode::checkpoint {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::string_view kLfsPointer = "version ";  // how a Git LFS pointer begins

Error bad_file(std::string wanted, std::string found, std::string hint = "") {
  return {.code = Code::kInvalidSource,
          .thing = "safetensors file",
          .wanted = std::move(wanted),
          .found = std::move(found),
          .hint = std::move(hint)};
}

Error bad_tensor(const TensorRecord& tensor, std::string wanted, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = fmt::format("tensor {}", printable(tensor.name)),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

// The first eight bytes: how long the header is. The file must be long enough for it.
Result<std::uint64_t> header_bytes(std::span<const std::byte> first, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || first.size() < kLengthBytes) {
    return bad_file("at least 8 bytes", fmt::format("{} bytes", file_bytes),
                    "too small, an incomplete download");
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(first[i]);
  }
  if (length > kMaxHeaderBytes) {
    const bool is_pointer = std::memcmp(first.data(), kLfsPointer.data(), kLengthBytes) == 0;
    return bad_file(fmt::format("a header of at most {} bytes", kMaxHeaderBytes),
                    fmt::format("header too large, {} bytes", length),
                    is_pointer ? "looks like a Git LFS pointer: fetch the file itself" : "");
  }
  if (length > file_bytes - kLengthBytes) {
    return bad_file(fmt::format("{} bytes for the header and more", length + kLengthBytes),
                    fmt::format("{} bytes", file_bytes), "bad header length, or cut short");
  }
  return length;
}

// Bytes that shape and dtype ask for.
Result<std::uint64_t> bytes_of_shape(const TensorRecord& tensor) {
  std::optional<std::uint64_t> count = 1;
  for (const std::uint64_t dim : tensor.dims) {
    count = count ? checked_mul(*count, dim) : std::nullopt;
  }
  const auto bits = count ? checked_mul(*count, formats::info(*tensor.format).bits) : std::nullopt;
  if (!bits) return bad_tensor(tensor, "a size that 64 bits hold", "shape " + describe(tensor));
  for (const std::uint64_t dim : tensor.dims) {
    if (dim > kMaxDimension) {
      return bad_tensor(tensor, fmt::format("dimensions up to {}", kMaxDimension),
                        "shape " + describe(tensor));
    }
  }
  if (*bits % 8 != 0) {
    return bad_tensor(tensor, "whole bytes", fmt::format("{} = {} bits", describe(tensor), *bits));
  }
  if (tensor.is(formats::Format::kE2m1) && !tensor.dims.empty() && tensor.dims.back() % 2 != 0) {
    return bad_tensor(tensor, "an even last dimension of F4", describe(tensor));
  }
  return *bits / 8;
}

// No gap, no overlap, sizes as the shapes say, and the file ends where the last tensor does.
// `file_offset` still counts from the start of the data.
Status check_cover(std::span<const TensorRecord> tensors, std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  for (const TensorRecord& tensor : tensors) {
    if (tensor.file_offset != end) {
      return bad_tensor(tensor, fmt::format("its data to begin at byte {}", end),
                        fmt::format("{} at byte {}", tensor.file_offset < end ? "overlap" : "a gap",
                                    tensor.file_offset));
    }
    if (tensor.format) {
      LODE_TRY(const std::uint64_t bytes, bytes_of_shape(tensor));
      if (bytes != tensor.bytes) {
        return bad_tensor(tensor, fmt::format("{} bytes for {}", bytes, describe(tensor)),
                          fmt::format("data_offsets of {} bytes", tensor.bytes));
      }
    }
    end += tensor.bytes;  // cannot overflow: it is the end that the header states
    if (end > data_bytes) {
      return bad_tensor(tensor, fmt::format("data up to byte {}", end),
                        fmt::format("{} bytes of data, file cut short", data_bytes));
    }
  }
  if (end == data_bytes) return {};
  return bad_file(fmt::format("{} bytes of data", end), fmt::format("{} bytes", data_bytes),
                  "bytes after the last tensor");
}

// Gives the parser a header in memory, piece by piece.
class SpanSource final : public json::Source {
 public:
  explicit SpanSource(std::span<const std::byte> text) : text_(text) {}
  Result<std::string_view> next() override {
    const auto piece = text_.first(std::min(text_.size(), buffer_.size()));
    text_ = text_.subspan(piece.size());
    if (!piece.empty()) std::memcpy(buffer_.data(), piece.data(), piece.size());
    return std::string_view(buffer_.data(), piece.size());
  }

 private:
  std::span<const std::byte> text_;
  std::array<char, 4096> buffer_;
};

Result<ShardHeader> parse(json::Source& source, std::uint64_t length, std::uint64_t file_bytes,
                          RecordArena& arena) {
  ShardHeader header;
  HeaderHandler handler(header, arena);
  LODE_TRY_STATUS(json::parse_streaming(source, handler, {.max_bytes = kMaxHeaderBytes}));
  LODE_TRY_STATUS(handler.finish());
  std::ranges::sort(header.tensors, [](const TensorRecord& a, const TensorRecord& b) {
    return a.file_offset != b.file_offset ? a.file_offset < b.file_offset : a.bytes < b.bytes;
  });
  header.data_offset = kLengthBytes + length;
  LODE_TRY_STATUS(check_cover(header.tensors, file_bytes - header.data_offset));
  for (TensorRecord& tensor : header.tensors) tensor.file_offset += header.data_offset;
  return header;
}

}  // namespace

Result<ShardHeader> parse_header(std::span<const std::byte> prefix, std::uint64_t file_bytes,
                                 RecordArena& arena) {
  LODE_TRY(const std::uint64_t length, header_bytes(prefix, file_bytes));
  if (length > prefix.size() - kLengthBytes) {
    return bad_file(fmt::format("a header of {} bytes", length),
                    fmt::format("{} bytes of it", prefix.size() - kLengthBytes));
  }
  SpanSource source(prefix.subspan(kLengthBytes, static_cast<std::size_t>(length)));
  return parse(source, length, file_bytes, arena);
}

Result<ShardHeader> read_header(const InputFile& file, RecordArena& arena) {
  const std::uint64_t file_bytes = file.identity().bytes;
  std::array<std::byte, kLengthBytes> first{};
  const auto there = static_cast<std::size_t>(std::min<std::uint64_t>(file_bytes, kLengthBytes));
  LODE_TRY_STATUS(file.read_into(0, std::span(first).first(there)));
  Result<std::uint64_t> length = header_bytes(std::span(first).first(there), file_bytes);
  if (!length) return at(printable(file.path()), std::move(length).error());
  FileSource source(file, kLengthBytes, *length);
  Result<ShardHeader> header = parse(source, *length, file_bytes, arena);
  if (!header && header.error().code == Code::kInvalidSource) {
    return at(printable(file.path()), std::move(header).error());
  }
  return header;
}

}  // namespace lode::checkpoint
