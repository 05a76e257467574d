#include "lode/kernels/scalar/install.h"

#include "lode/kernels/scalar/exact_dot.h"
#include "lode/kernels/scalar/fast_dot.h"
#include "lode/kernels/scalar/marlin.h"
#include "lode/kernels/scalar/mixed_rows.h"
#include "lode/kernels/scalar/numbers.h"
#include "lode/kernels/scalar/pack_activation.h"
#include "lode/kernels/scalar/relayout.h"
#include "lode/kernels/scalar/vectors.h"

namespace lode::kernels::scalar {

void install(KernelTable& table) noexcept {
  for (std::size_t kind = 0; kind < kNumPanelKinds; ++kind) {
    table.exact_dot[kind] = exact_dot;
    table.fast_dot[kind] = exact_dot;  // where nothing faster is agreed on, f32 activations
    table.fast_form[kind] = ActivationForm::kF32;
  }
  table.fast_dot[static_cast<std::size_t>(PanelKind::kE4m3)] = e4m3_fast_dot;
  for (const PanelKind kind : {PanelKind::kMxfp4, PanelKind::kNvfp4, PanelKind::kI8}) {
    const auto at = static_cast<std::size_t>(kind);
    table.fast_dot[at] = fast_dot;
    table.fast_form[at] =
        kind == PanelKind::kI8 ? ActivationForm::kI8Plain : ActivationForm::kI8Fp4;
  }
  table.pack_activation = pack_activation;
  table.decode_row = decode_row;
  table.dot = dot;
  table.add_scaled = add_scaled;
  table.dot_f16 = dot_f16;
  table.add_scaled_f16 = add_scaled_f16;
  table.to_f16 = to_f16;
  table.rms_norm = rms_norm;
  table.rows_to_lines = rows_to_lines;
  table.units_to_lines = units_to_lines;
  table.scales_to_lines = scales_to_lines;
  table.rows_to_marlin = rows_to_marlin;
  table.mix_rows = mix_rows;
  table.scales_to_columns = scales_to_columns;
  table.map_codes = formats::map_codes;
  table.widen = widen;
  table.quantise_i8 = quantise_i8;
  table.encode_piece = formats::pieces::encode;
}

}  // namespace lode::kernels::scalar
