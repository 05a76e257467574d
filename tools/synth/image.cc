#include "tools/synth/image.h"

#include <algorithm>
#include <cstring>

#include "lode/formats/bf16.h"
#include "lode/formats/dequantise.h"
#include "lode/formats/quantise.h"

namespace lode::synth {
namespace {

using formats::Encoding;

/// Rows handled at a time: about 1M numbers, whole blocks of rows.
std::uint64_t step_of(const MatrixId& matrix) {
  constexpr std::uint64_t kNumbers = std::uint64_t{1} << 20;
  return std::max<std::uint64_t>(1, kNumbers / matrix.columns / 128) * 128;
}

/// Where row r of matrix m stands among the rows of gate and up laid together.
struct Order {
  std::uint64_t rows;  // of each matrix
  std::uint64_t matrices;
  bool interleaved;

  std::uint64_t of(std::uint64_t matrix, std::uint64_t row) const {
    return interleaved ? row * matrices + matrix : matrix * rows + row;
  }
};

void copy_rows(std::span<const std::byte> from, const Order& order, std::uint64_t matrix,
               std::uint64_t first, std::vector<std::byte>& to) {
  if (from.empty()) return;  // no scales
  const std::uint64_t stride = to.size() / (order.rows * order.matrices);
  for (std::uint64_t row = 0; row * stride < from.size(); ++row) {
    std::memcpy(to.data() + order.of(matrix, first + row) * stride, from.data() + row * stride,
                stride);
  }
}

/// Turns [rows, columns] of `unit` bytes into [columns, rows].
void transpose(std::vector<std::byte>& bytes, std::uint64_t rows, std::uint64_t unit) {
  const std::uint64_t columns = bytes.size() / (rows * unit);
  std::vector<std::byte> turned(bytes.size());
  constexpr std::uint64_t kTile = 64;
  for (std::uint64_t row0 = 0; row0 < rows; row0 += kTile) {
    const std::uint64_t row_end = std::min(rows, row0 + kTile);
    for (std::uint64_t column = 0; column < columns; ++column) {
      for (std::uint64_t row = row0; row < row_end; ++row) {
        std::memcpy(turned.data() + (column * rows + row) * unit,
                    bytes.data() + (row * columns + column) * unit, unit);
      }
    }
  }
  bytes = std::move(turned);
}

Image empty_image(const Job& job) {
  const std::uint64_t rows = job.rows * job.matrices.size();
  const std::uint64_t columns = job.matrices.front().columns;
  Image image;
  image.codes.resize(rows * formats::row_bytes(job.encoding, columns));
  if (has_block_scales(job.encoding)) {
    image.scales.resize(job.matrices.size() *
                        formats::scales_bytes(job.encoding, job.rows, columns));
  }
  return image;
}

Order order_of(const Job& job, bool scales) {
  const std::uint64_t rows = scales ? formats::scale_rows(job.encoding, job.rows) : job.rows;
  return {rows, job.matrices.size(), job.interleaved};
}

void finish(const Job& job, Image& image) {
  if (!job.transposed) return;
  const std::uint64_t rows = job.rows * job.matrices.size();
  const std::uint64_t bits = formats::info(job.encoding.element).bits;
  transpose(image.codes, rows, std::max<std::uint64_t>(1, bits / 8));
  if (has_block_scales(job.encoding)) transpose(image.scales, rows, 1);
}

std::vector<std::byte> as_bf16(std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t code = formats::encode_bf16(values[i]);
    std::memcpy(bytes.data() + 2 * i, &code, 2);
  }
  return bytes;
}

}  // namespace

Result<formats::Quantised> QuantisingMaker::make(const Job& job, const MatrixId& matrix,
                                                 std::uint64_t first_row,
                                                 std::uint64_t count) const {
  std::vector<float> values(count * matrix.columns);
  LODE_TRY_STATUS(source_.rows(matrix, first_row, values));
  if (!job.rule) return formats::Quantised{.encoding = job.encoding, .codes = as_bf16(values)};
  LODE_TRY(formats::Quantised done, formats::quantise({*job.rule, values, count, matrix.columns,
                                                       formats::Format::kBf16, amax_}));
  if (job.encoding.has_scale && !has_block_scales(job.encoding)) {
    std::memcpy(&done.tensor_scale, done.scales.data(), sizeof done.tensor_scale);
    done.scales.clear();
  }
  if (done.encoding == job.encoding) return done;
  return Error{.code = Code::kUnsupported,
               .thing = std::string(formats::info(*job.rule).name),
               .wanted = "a rule whose scales do not depend on the format of the weights"};
}

Result<Image> make_image(const Job& job, const RowMaker& maker) {
  Image image = empty_image(job);
  for (std::uint64_t which = 0; which < job.matrices.size(); ++which) {
    const MatrixId& matrix = job.matrices[which];
    const std::uint64_t step = step_of(matrix);
    for (std::uint64_t row = 0; row < job.rows; row += step) {
      const std::uint64_t count = std::min(step, job.rows - row);
      LODE_TRY(const formats::Quantised part, maker.make(job, matrix, job.first_row + row, count));
      copy_rows(part.codes, order_of(job, false), which, row, image.codes);
      const std::uint64_t first_scale = formats::scale_rows(job.encoding, row);
      copy_rows(part.scales, order_of(job, true), which, first_scale, image.scales);
      image.tensor_scale = part.tensor_scale;
    }
  }
  finish(job, image);
  return image;
}

Result<float> largest_of(const std::vector<MatrixId>& matrices, const FloatSource& source) {
  float largest = 0.0F;
  std::vector<float> values;
  for (const MatrixId& matrix : matrices) {
    const std::uint64_t step = step_of(matrix);
    for (std::uint64_t row = 0; row < matrix.rows; row += step) {
      values.resize(std::min(step, matrix.rows - row) * matrix.columns);
      LODE_TRY_STATUS(source.rows(matrix, row, values));
      largest = std::max(largest, formats::largest_magnitude(values));
    }
  }
  return largest;
}

}  // namespace lode::synth
