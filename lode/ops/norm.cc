#include "lode/ops/norm.h"

namespace lode::ops {

void rms_norm_rows(const Compute& compute, const Norm& norm, const Rows& x, const Rows& out,
                   std::size_t num_rows, Forms forms) noexcept {
  for_each(compute, num_rows, [&](std::size_t index, std::size_t) noexcept {
    compute.table->rms_norm(x.row(index).data(), norm.weight.data(), norm.eps, out.k,
                            out.row(index).data());
    pack_row(compute, out, index, forms);
  });
}

void rms_norm_heads(const Compute& compute, const Norm& norm, std::span<float> heads) noexcept {
  const std::size_t width = norm.weight.size();
  for (std::size_t first = 0; first < heads.size(); first += width) {
    float* head = heads.data() + first;
    compute.table->rms_norm(head, norm.weight.data(), norm.eps, width, head);
  }
}

}  // namespace lode::ops
