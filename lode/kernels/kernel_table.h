#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lode/base/result.h"
#include "lode/formats/fp8_requantise.h"
#include "lode/formats/online_pieces.h"
#include "lode/kernels/marlin_tile.h"
#include "lode/kernels/mixed_rows.h"
#include "lode/kernels/panel.h"
#include "lode/kernels/relayout.h"

namespace lode::kernels {

/// How a matrix's second-level scale is applied to a block scale before the codes are multiplied:
/// s * value, s / value, or not at all. Only NVFP4 has one.
struct MatrixScale {
  float value = 1.0F;
  formats::TensorScale rule = formats::TensorScale::kNone;
};

/// One call of a panel kernel: y[t][p*16 + r] = sum over k of w[p][r][k] * x[row_of(t)][k].
///
/// Shapes:  panels [num_panels][panel_bytes], panel_stride_bytes apart, 64-byte aligned;
///          x rows of k numbers in the form the kernel wants (f32, or packed int8:
///          `activation_row_bytes`), x_stride_bytes apart, row_of(t) = rows[t], or t if `rows` is
///          null; y [num_tokens][y_stride] floats with y_stride >= 16 * num_panels.
///
/// What y[t] is does not depend on the other tokens, nor on which panels share the call.
struct PanelDot {
  PanelShape shape{};
  MatrixScale scale{};
  const std::byte* panels = nullptr;
  std::size_t panel_stride_bytes = 0;
  std::size_t num_panels = 0;
  std::size_t k = 0;
  const std::byte* x = nullptr;
  std::size_t x_stride_bytes = 0;
  const std::uint32_t* rows = nullptr;
  std::size_t num_tokens = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;
};
using PanelDotFn = void (*)(const PanelDot&) noexcept;

/// What a fast kernel wants its activations to be.
enum class ActivationForm : std::uint8_t {
  kF32,     // k floats
  kI8Fp4,   // int8 in blocks of 32 with an f32 scale, in the order of E2M1 lines
  kI8Plain  // the same in rising k, for 8-bit codes
};

/// Bytes of one activation row of `k` numbers in `form`, whole 64-byte lines (activation.h says
/// what lies where).
LODE_KERNEL_INLINE constexpr std::size_t activation_row_bytes(ActivationForm form,
                                                              std::size_t k) noexcept {
  const std::size_t blocks = (k + 31) / 32;
  const std::size_t bytes = form == ActivationForm::kF32 ? 4 * k : blocks * (32 + 4 + 8);
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

/// All kernels of one ISA. `scalar::install` fills the table; a better ISA overwrites what it
/// improves. Pure functions of pointers and counts: no allocation, threads, logging or globals.
struct KernelTable {
  std::string_view isa;

  /// The law: weights decoded to f32 exactly (block multiplier formed first), then summed with
  /// fused multiply-adds in four chains, chain c taking k = c mod 4 in rising order, joined as
  /// (0 + 1) + (2 + 3). Activations are f32. Every ISA gives the same bits (of a NaN: that it is
  /// one). Wants IEEE subnormals: MXCSR without FTZ and DAZ.
  PanelDotFn exact_dot[kNumPanelKinds] = {};

  /// The fastest deterministic way, activations in `fast_form`; what it sums and in which order is
  /// said in scalar/fast_dot.cc, and every ISA gives the same bits here too.
  PanelDotFn fast_dot[kNumPanelKinds] = {};
  ActivationForm fast_form[kNumPanelKinds] = {};

  /// One row of k floats to `form` at `out`, all of its bytes written.
  void (*pack_activation)(ActivationForm form, const float* x, std::size_t k,
                          std::byte* out) noexcept = nullptr;

  /// Row r of one panel as floats, exactly: for embedding look-ups and for tests.
  void (*decode_row)(const PanelShape& shape, const MatrixScale& scale, const std::byte* panel,
                     std::size_t row, std::size_t k, float* out) noexcept = nullptr;

  /// Sum of a[i] * b[i] in 16 chains (i mod 16), fused, joined in halves: c[i] += c[i + 8] for
  /// i < 8, then 4, 2, 1.
  float (*dot)(const float* a, const float* b, std::size_t n) noexcept = nullptr;
  /// out[i] = fma(scale, x[i], out[i]).
  void (*add_scaled)(float scale, const float* x, std::size_t n, float* out) noexcept = nullptr;
  /// The same two where one side is stored as f16 (the KV cache of the fast mode).
  float (*dot_f16)(const float* a, const std::uint16_t* b, std::size_t n) noexcept = nullptr;
  void (*add_scaled_f16)(float scale, const std::uint16_t* x, std::size_t n,
                         float* out) noexcept = nullptr;
  void (*to_f16)(const float* x, std::size_t n, std::uint16_t* out) noexcept = nullptr;  // RNE

  /// out[i] = (x[i] * (1 / sqrt(dot(x, x) / n + eps))) * weight[i].
  void (*rms_norm)(const float* x, const float* weight, float eps, std::size_t n,
                   float* out) noexcept = nullptr;

  /// What a load does to bytes; every ISA makes the same ones. All code lines, or scale lines, of
  /// the tile's super-blocks are written, zeros where the tile has no row or no k.
  void (*rows_to_lines)(const CodeTile& tile) noexcept = nullptr;   // rows first
  void (*units_to_lines)(const CodeTile& tile) noexcept = nullptr;  // k first
  ScaleBytesSeen (*scales_to_lines)(const ScaleTile& tile) noexcept = nullptr;
  /// Rows to a column of Marlin tiles; every byte of the tiles is written.
  void (*rows_to_marlin)(const MarlinColumn& column) noexcept = nullptr;
  /// Two rows of FP4 codes to two rows of the SM90 kernels.
  void (*mix_rows)(const MixedRows& rows) noexcept = nullptr;
  /// Rows of block scales to columns, through tables.
  void (*scales_to_columns)(const ScaleColumns& scales) noexcept = nullptr;

  /// Bytes looked up in a table of 256.
  formats::MapCodesFn map_codes = nullptr;

  /// n numbers of F32, F16, BF16, E4M3 or E5M2, `step_bytes` apart, as floats. The bits of a NaN
  /// are some NaN's.
  void (*widen)(formats::Format from, const std::byte* source, std::size_t step_bytes,
                std::size_t n, float* out) noexcept = nullptr;
  /// Of y = x * factor, n <= 128 floats: s = max|y| / 127 and codes rint(y / s), to even, within
  /// +-127; zeros where s is zero and beyond n. Returns s; NaN, and any codes, where some y is not
  /// finite.
  /// Shapes:  codes [128].
  float (*quantise_i8)(const float* x, float factor, std::size_t n,
                       std::int8_t* codes) noexcept = nullptr;
  /// Codes of 128 numbers as engines quantise them online; every ISA gives the same.
  formats::pieces::EncodeFn encode_piece = nullptr;
};

/// The tables that this machine can run, plainest first: scalar, avx2, avx512.
std::span<const KernelTable> available() noexcept;

/// The table in use: the one that `force` named, else the one that LODE_ISA names, else the best.
/// Ask once a call of an operation, not once a task.
/// Errors: kUnsupported listing the choices when LODE_ISA names none of them.
Result<const KernelTable*> active();
/// For work of which every table makes the same bytes and which cannot fail: the plainest where
/// LODE_ISA names none. Whoever opens a model has refused that name before.
const KernelTable& active_or_plainest();

/// Uses the table named `isa` from now on; an empty name undoes that.
/// Errors: kUnsupported listing the choices.
Status force(std::string_view isa);

}  // namespace lode::kernels
