#include "lode/kernels/scalar/fast_dot.h"

#include <cmath>

#include "lode/kernels/activation.h"
#include "lode/kernels/scalar/decode.h"

// The law of the fast kernels. Weight codes are integers here (an E2M1 code is its value doubled:
// 0 1 2 3 4 6 8 12 and their negatives), activations are packed int8. For every row and token one
// f32 chain over the parts of k in rising order, a part being what lies under one weight scale and
// one activation scale (MXFP4 and I8: 32 k, NVFP4: 16):
//
//   sum = sum over the part of code * activation code                 exact, in 32-bit integers
//   acc = fma(float(sum), part_scale * activation_scale, acc)
//
// and at the end y = acc * unit, with the matrix scale: acc * (unit * value), or
// (acc * unit) / value.
//
//          part_scale                                                 unit
//   MXFP4  the e8m0 code as an fp32 exponent field: code 0 (2^-127)   1/2
//          becomes 0 and 255 (NaN) infinity
//   NVFP4  the e4m3 value / 256; NaN codes are +-480                  128
//   I8     the f32 scale                                              1
//
// E4M3 takes f32 activations. Its part is a group under one weight scale; sum is what exact_dot
// makes of the unscaled codes of the group (four chains from zero, k = chain mod 4, joined), and
//
//   acc = fma(sum, scale, acc)
//
// and y = acc, with a matrix scale acc * value or acc / value.
//
// /256 is how e4m3 bits read when they are moved into an fp16, subnormals included.

namespace lode::kernels::scalar {
namespace {

LODE_KERNEL_INLINE float part_scale(PanelKind kind, const std::byte* stored) noexcept {
  if (kind == PanelKind::kI8) return load<float>(stored);
  const std::uint32_t code = load<std::uint8_t>(stored);
  if (kind == PanelKind::kMxfp4) return __builtin_bit_cast(float, code << 23);
  return formats::decode_f16(static_cast<std::uint16_t>((code & 0x80u) << 8 | (code & 0x7Fu) << 7));
}

LODE_KERNEL_INLINE float finish(PanelKind kind, const MatrixScale& scale, float sum) noexcept {
  const float unit = kind == PanelKind::kI8 ? 1.0F : kind == PanelKind::kMxfp4 ? 0.5F : 128.0F;
  if (scale.rule == formats::TensorScale::kMultiplier) return sum * (unit * scale.value);
  if (scale.rule == formats::TensorScale::kDivisor) return (sum * unit) / scale.value;
  return sum * unit;
}

/// The weight code at position k of a super-block, and where in the packed codes its partner lies.
LODE_KERNEL_INLINE std::int32_t integer_code(const PanelShape& shape, const SuperBlock& block,
                                             std::size_t row, std::size_t k) noexcept {
  const CodePlace at = code_place(shape, block, row, k);
  if (shape.kind == PanelKind::kI8) return load<std::int8_t>(at.word + at.index);
  return static_cast<std::int32_t>(2.0F * formats::decode_e2m1(e2m1_code(at)));
}
LODE_KERNEL_INLINE std::size_t packed_place(PanelKind kind, std::size_t k) noexcept {
  return kind == PanelKind::kI8 ? k : k / 8 * 8 + k % 8 / 2 + k % 2 * 4;
}

float super_block_sum(const PanelDot& call, const SuperBlock& block, std::size_t row,
                      const PackedBlock* x, float acc) noexcept {
  const PanelShape& shape = call.shape;
  const std::size_t part = shape.group_k < kActivationBlock ? shape.group_k : kActivationBlock;
  for (std::size_t begin = 0; begin < block.k; begin += part) {
    const std::size_t end = begin + part < block.k ? begin + part : block.k;
    const PackedBlock& partner = x[begin / kActivationBlock];
    std::int32_t sum = 0;
    for (std::size_t k = begin; k < end; ++k) {
      sum += integer_code(shape, block, row, k) *
             partner.codes[packed_place(shape.kind, k % kActivationBlock)];
    }
    const std::byte* stored = scale_place(shape, block, begin / shape.group_k, row);
    const float scale = part_scale(shape.kind, stored) * partner.scale;
    acc = std::fma(static_cast<float>(sum), scale, acc);
  }
  return acc;
}

float row_dot(const PanelDot& call, const std::byte* panel, std::size_t row,
              const PackedBlock* x) noexcept {
  float acc = 0.0F;
  for (std::size_t begin = 0; begin < call.k; begin += kSuperBlockK) {
    acc = super_block_sum(call, super_block(call.shape, panel, begin, call.k), row, x, acc);
    x += kSuperBlockK / kActivationBlock;
  }
  return finish(call.shape.kind, call.scale, acc);
}

/// The groups of one super-block of E4M3.
float add_e4m3_groups(const PanelDot& call, const SuperBlock& block, std::size_t row,
                      const float* x, float acc) noexcept {
  const std::size_t group_k = call.shape.group_k;
  for (std::size_t begin = 0; begin < block.k; begin += group_k) {
    const std::size_t end = begin + group_k < block.k ? begin + group_k : block.k;
    float chains[4] = {};
    for (std::size_t k = begin; k < end; ++k) {
      const float code = code_value(PanelKind::kE4m3, code_place(call.shape, block, row, k));
      chains[k % 4] = std::fma(code, x[k], chains[k % 4]);
    }
    const float sum = (chains[0] + chains[1]) + (chains[2] + chains[3]);
    acc = std::fma(sum, load<float>(scale_place(call.shape, block, begin / group_k, row)), acc);
  }
  return acc;
}

float e4m3_row_dot(const PanelDot& call, const std::byte* panel, std::size_t row,
                   const float* x) noexcept {
  float acc = 0.0F;
  for (std::size_t begin = 0; begin < call.k; begin += kSuperBlockK) {
    const SuperBlock block = super_block(call.shape, panel, begin, call.k);
    acc = add_e4m3_groups(call, block, row, x + begin, acc);
  }
  return apply(call.scale, acc);
}

}  // namespace

void e4m3_fast_dot(const PanelDot& call) noexcept {
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    const std::byte* bytes = call.panels + panel * call.panel_stride_bytes;
    for (std::size_t t = 0; t < call.num_tokens; ++t) {
      const auto* x = reinterpret_cast<const float*>(activation_row(call, t));
      float* y = call.y + t * call.y_stride + panel * kPanelRows;
      for (std::size_t row = 0; row < kPanelRows; ++row) y[row] = e4m3_row_dot(call, bytes, row, x);
    }
  }
}

void fast_dot(const PanelDot& call) noexcept {
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    const std::byte* bytes = call.panels + panel * call.panel_stride_bytes;
    for (std::size_t t = 0; t < call.num_tokens; ++t) {
      const PackedBlock* x = packed_row(activation_row(call, t));
      float* y = call.y + t * call.y_stride + panel * kPanelRows;
      for (std::size_t row = 0; row < kPanelRows; ++row) y[row] = row_dot(call, bytes, row, x);
    }
  }
}

}  // namespace lode::kernels::scalar
