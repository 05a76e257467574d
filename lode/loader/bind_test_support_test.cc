#include "lode/loader/bind_test_support.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>

namespace lode::loader {
namespace {

using formats::Format;

std::uint32_t crc32(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ (0xEDB88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

std::uint64_t width_of(Format format) { return formats::info(format).bits / 8; }

}  // namespace

BoundNumbers::BoundNumbers(const checkpoint::TensorIndex& index) {
  for (const checkpoint::Shard& shard : index.shards()) {
    std::ifstream file(shard.path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto bytes = std::as_bytes(std::span(text));
    shards_.emplace_back(bytes.begin(), bytes.end());
  }
}

std::span<const std::byte> BoundNumbers::bytes(std::uint32_t shard, std::uint64_t offset,
                                               std::uint64_t count) const {
  return std::span(shards_.at(shard)).subspan(offset, count);
}

std::span<const std::byte> BoundNumbers::cell(const Region& region, std::uint64_t row,
                                              std::uint64_t unit, std::uint64_t width) const {
  const std::uint64_t place =
      region.order == Order::kRowsFirst
          ? row * region.outer_stride_bytes + unit * width
          : unit * region.outer_stride_bytes + row * region.inner_step_bytes;
  return bytes(region.shard, region.offset_bytes + place, width);
}

std::vector<std::byte> BoundNumbers::codes_of(const MatrixSource& source) const {
  const bool pairs = source.encoding.element == Format::kE2m1;
  const std::uint64_t width = pairs ? 1 : width_of(source.encoding.element);
  const std::uint64_t units = pairs ? source.k / 2 : source.k;
  std::vector<std::byte> codes;
  for (std::uint64_t row = 0; row < source.rows; ++row) {
    for (std::uint64_t unit = 0; unit < units; ++unit) {
      const auto found = cell(source.codes, row, unit, width);
      codes.insert(codes.end(), found.begin(), found.end());
    }
  }
  return codes;
}

// As f32 for FP8, as stored for FP4; a row of scales for each row of the matrix.
std::vector<std::byte> BoundNumbers::scales_of(const MatrixSource& source) const {
  const std::uint64_t width = width_of(source.stored_scale_format);
  const std::uint32_t block = source.encoding.block_rows;
  std::vector<std::byte> scales;
  for (std::uint64_t row = 0; row < source.rows; ++row) {
    const std::uint64_t stored = source.row_origin + row * source.row_step;
    const std::uint64_t scale_row = block == formats::kWhole ? 0 : stored / block;
    for (std::uint64_t unit = 0; unit < formats::scale_columns(source.encoding, source.k); ++unit) {
      auto found = cell(source.scales, scale_row, unit, width);
      if (source.encoding.scale == source.stored_scale_format) {
        scales.insert(scales.end(), found.begin(), found.end());
        continue;
      }
      const auto number = std::bit_cast<std::array<std::byte, 4>>(
          formats::number_at(source.stored_scale_format, found, 0));
      scales.insert(scales.end(), number.begin(), number.end());
    }
  }
  return scales;
}

std::vector<float> BoundNumbers::matrix(const MatrixSource& source) const {
  const std::vector<std::byte> codes = codes_of(source);
  formats::EncodedMatrix encoded{.encoding = source.encoding,
                                 .rows = source.rows,
                                 .k = source.k,
                                 .codes = codes,
                                 .scales = {}};
  std::vector<std::byte> scales;
  if (source.encoding.has_scale) {
    scales = scales_of(source);
    encoded.scales = scales;
    encoded.encoding.block_rows = 1;
  }
  if (source.encoding.tensor_scale != formats::TensorScale::kNone) {
    encoded.tensor_scale = formats::number_at(
        Format::kF32, bytes(source.matrix_scale_shard, source.matrix_scale_offset_bytes, 4), 0);
  }
  const Status checked = formats::check_matrix(encoded);
  EXPECT_TRUE(checked) << to_string(checked.error());
  std::vector<float> numbers(source.rows * source.k);
  for (std::uint64_t row = 0; row < source.rows && checked; ++row) {
    formats::dequantise_row(encoded, row, std::span(numbers).subspan(row * source.k, source.k));
  }
  return numbers;
}

std::vector<float> BoundNumbers::vector(const VectorSource& source) const {
  std::vector<float> numbers;
  for (std::uint64_t index = 0; index < source.count; ++index) {
    numbers.push_back(
        formats::number_at(source.format,
                           bytes(source.shard, source.offset_bytes + index * source.step_bytes,
                                 width_of(source.format)),
                           0));
  }
  return numbers;
}

std::uint32_t crc32_of_f32(std::vector<float> numbers) {
  for (float& number : numbers) number += 0.0F;  // -0 + 0 is +0
  return crc32(std::as_bytes(std::span(numbers)));
}

std::uint32_t crc32_of_bf16(const std::vector<float>& numbers) {
  std::vector<std::uint16_t> halves;
  for (const float number : numbers) {
    halves.push_back(
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number + 0.0F) >> 16U));
  }
  return crc32(std::as_bytes(std::span(halves)));
}

// The check value of the CRC that zlib and gzip use.
TEST(BoundNumbers, CountsCrc32AsZlibDoes) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32(std::as_bytes(std::span(digits))), 0xCBF43926U);
}

}  // namespace lode::loader
