#include "lode/kernels/scalar/exact_dot.h"

#include <cmath>

#include "lode/kernels/activation.h"
#include "lode/kernels/scalar/decode.h"

namespace lode::kernels::scalar {

void decode_super_block_row(const PanelShape& shape, const MatrixScale& scale,
                            const SuperBlock& block, std::size_t row, float* out) noexcept {
  for (std::size_t k = 0; k < block.k; ++k) {
    const float value = code_value(shape.kind, code_place(shape, block, row, k));
    if (shape.scale_bytes == 0) {
      out[k] = value;
    } else {
      const std::byte* stored = scale_place(shape, block, k / shape.group_k, row);
      out[k] = value * multiplier(shape.kind, scale, stored);
    }
  }
}

void decode_row(const PanelShape& shape, const MatrixScale& scale, const std::byte* panel,
                std::size_t row, std::size_t k, float* out) noexcept {
  for (std::size_t begin = 0; begin < k; begin += kSuperBlockK) {
    decode_super_block_row(shape, scale, super_block(shape, panel, begin, k), row, out + begin);
  }
}

namespace {

constexpr std::size_t kTokens = 8;  // share one decoded super-block

struct Chains {
  float of[4] = {};
  void add(const float* weights, const float* x, std::size_t n) noexcept {
    for (std::size_t k = 0; k < n; ++k) of[k % 4] = std::fma(weights[k], x[k], of[k % 4]);
  }
  float sum() const noexcept { return (of[0] + of[1]) + (of[2] + of[3]); }
};

/// One row of one panel for tokens [first, first + kTokens).
void row_of_tokens(const PanelDot& call, std::size_t panel, std::size_t row,
                   std::size_t first) noexcept {
  const std::byte* bytes = call.panels + panel * call.panel_stride_bytes;
  const std::size_t left = call.num_tokens - first;
  const std::size_t tokens = left < kTokens ? left : kTokens;
  Chains chains[kTokens];
  for (std::size_t begin = 0; begin < call.k; begin += kSuperBlockK) {
    const SuperBlock block = super_block(call.shape, bytes, begin, call.k);
    float weights[kSuperBlockK];
    decode_super_block_row(call.shape, call.scale, block, row, weights);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto* x = reinterpret_cast<const float*>(activation_row(call, first + t));
      chains[t].add(weights, x + begin, block.k);
    }
  }
  for (std::size_t t = 0; t < tokens; ++t) {
    call.y[(first + t) * call.y_stride + panel * kPanelRows + row] = chains[t].sum();
  }
}

}  // namespace

void exact_dot(const PanelDot& call) noexcept {
  for (std::size_t panel = 0; panel < call.num_panels; ++panel) {
    for (std::size_t row = 0; row < kPanelRows; ++row) {
      for (std::size_t t = 0; t < call.num_tokens; t += kTokens) {
        row_of_tokens(call, panel, row, t);
      }
    }
  }
}

}  // namespace lode::kernels::scalar
