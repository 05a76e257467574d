#include "lode/ops/rows.h"

#include <algorithm>

#include "lode/base/bytes.h"

namespace lode::ops {
namespace {

using kernels::ActivationForm;
constexpr std::array kPackedForms = {ActivationForm::kI8Fp4, ActivationForm::kI8Plain};
constexpr std::size_t kTaskBytes = 192 * kKiB;

std::size_t packed_index(ActivationForm form) noexcept {
  return form == ActivationForm::kI8Fp4 ? 0 : 1;
}

}  // namespace

std::size_t panels_per_task(std::size_t num_panels, std::size_t panel_bytes, std::size_t threads) {
  const std::size_t by_bytes = kTaskBytes / std::max<std::size_t>(panel_bytes, 1);
  const std::size_t by_threads = num_panels / (4 * std::max<std::size_t>(threads, 1));
  return std::clamp<std::size_t>(std::min(by_bytes, by_threads), 1, kMaxTaskPanels);
}

const std::byte* Rows::data(ActivationForm form) const noexcept {
  if (form == ActivationForm::kF32) return std::as_bytes(f32).data();
  return packed[packed_index(form)].data();
}

std::size_t Rows::stride_bytes(ActivationForm form) const noexcept {
  if (form == ActivationForm::kF32) return stride * sizeof(float);
  return kernels::activation_row_bytes(form, k);
}

Rows carve_rows(memory::Carver& carver, std::size_t capacity, std::size_t k, Mode mode) {
  Rows rows;
  rows.k = k;
  rows.stride = align_up(k, kernels::kLineBytes / sizeof(float));
  rows.f32 = carver.take<float>(capacity * rows.stride);
  if (mode == Mode::kExact) return rows;
  for (const ActivationForm form : kPackedForms) {
    rows.packed[packed_index(form)] =
        carver.take<std::byte>(capacity * kernels::activation_row_bytes(form, k));
  }
  return rows;
}

void pack_row(const Compute& compute, const Rows& rows, std::size_t index, Forms forms) noexcept {
  for (const ActivationForm form : kPackedForms) {
    if (!forms.has(form)) continue;
    std::byte* out = rows.packed[packed_index(form)].data() +
                     index * kernels::activation_row_bytes(form, rows.k);
    compute.table->pack_activation(form, rows.row(index).data(), rows.k, out);
  }
}

void pack_rows(const Compute& compute, const Rows& rows, std::size_t num_rows,
               Forms forms) noexcept {
  if (!forms.has(ActivationForm::kI8Fp4) && !forms.has(ActivationForm::kI8Plain)) return;
  for_each(compute, num_rows,
           [&](std::size_t index, std::size_t) noexcept { pack_row(compute, rows, index, forms); });
}

}  // namespace lode::ops
