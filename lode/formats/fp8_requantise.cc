#include "lode/formats/fp8_requantise.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "lode/base/bytes.h"
#include "lode/formats/f16.h"

namespace lode::formats {
namespace {

constexpr float kLowestE4m3 = -kE4m3Max;

float round_to_f16(float value) noexcept { return decode_f16(encode_f16(value)); }

/// Nothing where it does not fit into 64 bits.
std::optional<std::uint64_t> sum(std::span<const std::uint64_t> counts) noexcept {
  std::optional<std::uint64_t> total = 0;
  for (const std::uint64_t count : counts) {
    if (total) total = checked_add(*total, count);
  }
  return total;
}

Status check_shards(std::span<const std::uint64_t> shard_rows, std::span<const float> scales) {
  if (!scales.empty() && shard_rows.size() == scales.size()) return {};
  return Error{.code = Code::kInvalidSource,
               .thing = "scales of the shards of a matrix",
               .wanted = "one for each of " + std::to_string(shard_rows.size()) + " shards",
               .found = std::to_string(scales.size())};
}

}  // namespace

void map_codes(const CodeMap& map, const std::byte* codes, std::size_t n, std::byte* out) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = static_cast<std::byte>(map.of[std::to_integer<std::size_t>(codes[i])]);
  }
}

CodeMap requantise_map(float from, float to, ScaleRounding rounding) noexcept {
  const float factor = rounding == ScaleRounding::kToF16 ? round_to_f16(from) : from;
  const float inverse = 1.0F / to;
  CodeMap map;
  for (std::size_t code = 0; code < 256; ++code) {
    const float value = round_to_f16(decode_e4m3(static_cast<std::uint8_t>(code)) * factor);
    map.of[code] = quantise_static(value, inverse);
  }
  return map;
}

float largest_scale(std::span<const float> scales) noexcept {
  if (scales.empty()) return 0.0F;
  const auto larger = [](float a, float b) { return std::fmax(a, b); };
  return std::accumulate(scales.begin() + 1, scales.end(), scales.front(), larger);
}

Result<float> requantise_shards(std::span<std::byte> codes, std::uint64_t k,
                                std::span<const std::uint64_t> shard_rows,
                                std::span<const float> scales, ScaleRounding rounding) {
  LODE_TRY_STATUS(check_shards(shard_rows, scales));
  const std::optional<std::uint64_t> rows = sum(shard_rows);
  const std::optional<std::uint64_t> bytes = rows ? checked_mul(*rows, k) : std::nullopt;
  if (!bytes || *bytes != codes.size()) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "codes of a matrix",
                 .wanted = rows ? std::to_string(*rows) + " rows of " + std::to_string(k) : "",
                 .found = std::to_string(codes.size()) + " bytes"};
  }
  const float largest = largest_scale(scales);
  if (!(scales.back() > kLowestE4m3)) return largest;
  std::uint64_t first = 0;
  for (std::size_t shard = 0; shard < scales.size(); ++shard) {
    const auto part = codes.subspan(first * k, shard_rows[shard] * k);
    map_codes(requantise_map(scales[shard], largest, rounding), part.data(), part.size(),
              part.data());
    first += shard_rows[shard];
  }
  return largest;
}

Result<std::vector<float>> channelwise_scales(std::span<const std::uint64_t> shard_rows,
                                              std::span<const float> scales) {
  LODE_TRY_STATUS(check_shards(shard_rows, scales));
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  const std::optional<std::uint64_t> rows = sum(shard_rows);
  if (!rows || *rows > kMost) {
    return Error{.code = Code::kInvalidSource,
                 .thing = "rows of the shards of a matrix",
                 .wanted = "at most 2^31",
                 .found = rows ? std::to_string(*rows) : "more than 2^64"};
  }
  std::vector<float> out;
  out.reserve(*rows);
  for (std::size_t shard = 0; shard < scales.size(); ++shard) {
    out.insert(out.end(), shard_rows[shard], scales[shard]);
  }
  return out;
}

CodeMap fnuz_map() noexcept {
  CodeMap map;
  std::iota(map.of.begin(), map.of.end(), std::uint8_t{0});
  map.of[0x80] = 0;
  return map;
}

}  // namespace lode::formats
