#pragma once

#include <cstddef>
#include <span>

#include "lode/ops/rows.h"
#include "lode/tensor/tensor.h"

namespace lode::ops {

/// A weight matrix in panels, as kernels want it: pointers into somebody else's bytes.
struct Matrix {
  kernels::PanelShape shape;
  kernels::MatrixScale scale;
  const std::byte* panels = nullptr;
  std::size_t panel_stride_bytes = 0;
  std::size_t rows = 0;
  std::size_t k = 0;

  std::size_t num_panels() const noexcept {
    return (rows + kernels::kPanelRows - 1) / kernels::kPanelRows;
  }
};

/// The matrix of a kPanels tensor.
///
/// Shapes: view [rows, k].
Matrix matrix(const tensor::TensorView& view);

/// Gate and up of a kGateUpPanels tensor: panel n of one lies beside panel n of the other.
///
/// Shapes: view [2, rows, k].
struct GateUp {
  Matrix gate;
  Matrix up;
};
GateUp gate_up(const tensor::TensorView& view);

/// Calls the kernel on panels [first, first + count) of `weight` for rows of x.
///
/// Shapes: y [num_rows][y_stride], columns 0 .. count * 16 - 1 written; `row_ids` names the rows of
///         x, or is null: rows first_row, first_row + 1, ...
struct PanelCall {
  std::size_t first_panel = 0;
  std::size_t num_panels = 0;
  std::size_t first_row = 0;
  const std::uint32_t* row_ids = nullptr;
  std::size_t num_rows = 0;
};
void multiply(const Compute& compute, const Matrix& weight, const Rows& x, const PanelCall& call,
              std::span<float> y, std::size_t y_stride) noexcept;

/// Both halves of a pair on pairs of panels [first, first + count), read as one rising stream where
/// the memory lies so. Gate panel n of the call fills columns 32 n .., up panel n columns 32 n + 16
/// ..
///
/// Shapes: y [num_rows][y_stride], columns 0 .. count * 32 - 1 written.
void multiply_pairs(const Compute& compute, const GateUp& pair, const Rows& x,
                    const PanelCall& call, std::span<float> y, std::size_t y_stride) noexcept;

/// One product y = x W^T + bias, or y += that.
///
/// Shapes: y [num_rows][y_stride], columns 0 .. rows-1 written; bias [rows] or empty.
struct LinearJob {
  const Matrix* weight = nullptr;
  std::span<const float> bias;
  std::span<float> y;
  std::size_t y_stride = 0;
  bool add = false;
};

/// The forms that `weight` reads.
Forms forms_of(const Compute& compute, const Matrix& weight) noexcept;

/// All jobs on rows [0, num_rows) of the same x, in one fork. x must hold the forms they read.
/// The bits of a row depend on that row and the weights alone.
void linear(const Compute& compute, const Rows& x, std::size_t num_rows,
            std::span<const LinearJob> jobs) noexcept;

}  // namespace lode::ops
