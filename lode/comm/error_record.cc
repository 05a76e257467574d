#include "lode/comm/error_record.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace lode::comm {
namespace {

constexpr std::size_t kMaxPartBytes = 400;
constexpr std::array kParts = {&Error::thing, &Error::wanted, &Error::found, &Error::where,
                               &Error::hint};
static_assert(1 + kParts.size() * (2 + kMaxPartBytes) <= kErrorRecordBytes);

std::string_view cut(std::string_view part) {
  if (part.size() <= kMaxPartBytes) return part;
  std::size_t keep = kMaxPartBytes;
  while (keep > 0 && (static_cast<unsigned char>(part[keep]) & 0xC0) == 0x80) --keep;
  return part.substr(0, keep);
}

std::optional<std::string> read_part(std::span<const std::byte>& rest) {
  if (rest.size() < 2) return std::nullopt;
  const auto bytes =
      std::to_integer<std::size_t>(rest[0]) + 256 * std::to_integer<std::size_t>(rest[1]);
  rest = rest.subspan(2);
  if (bytes > std::min(rest.size(), kMaxPartBytes)) return std::nullopt;
  std::string part(bytes, '\0');
  if (bytes > 0) std::memcpy(part.data(), rest.data(), bytes);
  rest = rest.subspan(bytes);
  return part;
}

}  // namespace

ErrorRecord write_error_record(const Error& error) {
  ErrorRecord record{};
  record[0] = static_cast<std::byte>(error.code);
  std::size_t at = 1;
  for (const auto part : kParts) {
    const std::string_view text = cut(error.*part);
    record[at] = static_cast<std::byte>(text.size() % 256);
    record[at + 1] = static_cast<std::byte>(text.size() / 256);
    std::memcpy(record.data() + at + 2, text.data(), text.size());
    at += 2 + text.size();
  }
  return record;
}

Error read_error_record(std::span<const std::byte> record) {
  const Error unreadable{.thing = "the error of another rank", .found = "a damaged record of it"};
  if (record.empty() || std::to_integer<std::size_t>(record[0]) >= code_table().size()) {
    return unreadable;
  }
  Error error{.code = static_cast<Code>(record[0])};
  std::span<const std::byte> rest = record.subspan(1);
  for (const auto part : kParts) {
    auto text = read_part(rest);
    if (!text) return unreadable;
    error.*part = std::move(*text);
  }
  return error;
}

}  // namespace lode::comm
