#pragma once

#include <algorithm>
#include <vector>

#include "lode/kernels/test_panels.h"

namespace lode::kernels {

/// x rows in some form, as a kernel reads them.
struct TestActivations {
  TestActivations(const KernelTable& table, ActivationForm form, const std::vector<float>& x,
                  std::size_t k)
      : stride_bytes(activation_row_bytes(form, k)),
        bytes(std::max<std::size_t>(x.size() / k, 1) * stride_bytes) {
    for (std::size_t row = 0; row < x.size() / k; ++row) {
      table.pack_activation(form, &x[row * k], k, bytes.data() + row * stride_bytes);
    }
  }
  std::size_t stride_bytes;
  Lines bytes;
};

/// What one kernel makes of a matrix and activations: [rows.size()][matrix.rows()].
inline std::vector<float> run_dot(PanelDotFn dot, TestMatrix& matrix, const TestActivations& x,
                                  const std::vector<std::uint32_t>& rows) {
  const std::size_t width = matrix.rows() + 3;  // a stride that is no line
  std::vector<float> wide(rows.size() * width, -77.0F);
  PanelDot call;
  call.shape = matrix.shape();
  call.scale = matrix.scale;
  call.panels = matrix.panels();
  call.panel_stride_bytes = matrix.shape().panel_bytes(matrix.k());
  call.num_panels = matrix.num_panels();
  call.k = matrix.k();
  call.x = x.bytes.data();
  call.x_stride_bytes = x.stride_bytes;
  call.rows = rows.data();
  call.num_tokens = rows.size();
  call.y = wide.data();
  call.y_stride = width;
  dot(call);
  std::vector<float> y;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    const auto row = wide.begin() + static_cast<std::ptrdiff_t>(t * width);
    y.insert(y.end(), row, row + static_cast<std::ptrdiff_t>(matrix.rows()));
    for (std::size_t i = matrix.rows(); i < width; ++i) {
      if (wide[t * width + i] != -77.0F) y.clear();  // wrote outside its rows: no answer
    }
  }
  return y;
}

inline std::vector<std::uint32_t> first_rows(std::size_t n) {
  std::vector<std::uint32_t> rows(n);
  for (std::size_t i = 0; i < n; ++i) rows[i] = static_cast<std::uint32_t>(i);
  return rows;
}

/// Index of the first number that differs, or -1.
inline std::ptrdiff_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_number(a[i], b[i])) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

inline constexpr PanelKind kAllKinds[] = {PanelKind::kF32,  PanelKind::kF16, PanelKind::kBf16,
                                          PanelKind::kE4m3, PanelKind::kI8,  PanelKind::kMxfp4,
                                          PanelKind::kNvfp4};
inline constexpr std::size_t kLengths[] = {1,  3,  8,   15,  16,  31,  32,  37,  48,  64,
                                           96, 97, 128, 129, 136, 144, 160, 255, 512, 2880};

inline const char* name_of(PanelKind kind) {
  constexpr const char* kNames[] = {"F32", "F16", "Bf16", "E4m3", "I8", "Mxfp4", "Nvfp4"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace lode::kernels
