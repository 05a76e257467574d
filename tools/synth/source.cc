#include "tools/synth/source.h"

#include <cmath>

#include "lode/formats/bf16.h"

namespace lode::synth {
namespace {

/// Sums of four bytes are roughly normal: both halves of `bits`, around 0, with spread 1.
struct Pair {
  float low, high;
};
Pair normal_pair(std::uint64_t bits) noexcept {
  constexpr std::uint64_t kEven = 0x00FF00FF00FF00FFU;
  const std::uint64_t sums = (bits & kEven) + ((bits >> 8) & kEven);  // four sums of two bytes
  const std::uint64_t fours = (sums + (sums >> 16)) & 0x0000FFFF0000FFFFU;
  constexpr float kScale = 1.0F / 147.80F;  // 2 * sqrt((256^2 - 1) / 12)
  const auto low = static_cast<float>(static_cast<std::int32_t>(fours & 0xFFFFU) - 510);
  const auto high = static_cast<float>(static_cast<std::int32_t>(fours >> 32) - 510);
  return {low * kScale, high * kScale};
}

}  // namespace

float spread(const MatrixId& matrix) noexcept {
  const float one_in = 1.0F / std::sqrt(static_cast<float>(matrix.columns));
  switch (matrix.kind) {
    case Kind::kExpert:
    case Kind::kDense:
    case Kind::kHead:
      return one_in;
    case Kind::kRouter:
      return 2.0F * one_in;  // so that experts differ
    case Kind::kEmbedding:
    case Kind::kSinks:
      return 1.0F;
    case Kind::kNorm:
    case Kind::kBias:
      return 0.1F;
  }
  return 0.0F;
}

std::uint64_t row_key(std::uint64_t seed, const MatrixId& matrix, std::uint64_t row) noexcept {
  std::uint64_t key = mixed(seed);
  for (const char letter : matrix.role) {
    key = mixed(key ^ static_cast<std::uint64_t>(static_cast<unsigned char>(letter)));
  }
  key = mixed(key ^ matrix.layer);
  key = mixed(key ^ matrix.expert);
  return mixed(key ^ row);
}

Status HashSource::rows(const MatrixId& matrix, std::uint64_t first_row,
                        std::span<float> out) const {
  const float mean = matrix.kind == Kind::kNorm ? 1.0F : 0.0F;
  const float scale = spread(matrix);
  const std::uint64_t columns = matrix.columns;
  for (std::uint64_t row = 0; row * columns < out.size(); ++row) {
    const std::uint64_t key = row_key(seed_, matrix, first_row + row);
    float* to = out.data() + row * columns;
    for (std::uint64_t column = 0; column < columns; column += 2) {
      const Pair pair = normal_pair(mixed(key + column));
      to[column] = formats::round_to_bf16(mean + scale * pair.low);
      if (column + 1 < columns) to[column + 1] = formats::round_to_bf16(mean + scale * pair.high);
    }
  }
  return {};
}

}  // namespace lode::synth
