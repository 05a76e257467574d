#include "lode/kernels/avx2/install.h"

#include "lode/kernels/avx2/exact_dot.h"
#include "lode/kernels/avx2/fast_dot.h"
#include "lode/kernels/avx2/marlin.h"
#include "lode/kernels/avx2/mixed_rows.h"
#include "lode/kernels/avx2/numbers.h"
#include "lode/kernels/avx2/online.h"
#include "lode/kernels/avx2/relayout.h"
#include "lode/kernels/avx2/vectors.h"

namespace lode::kernels::avx2 {

void install(KernelTable& table) noexcept {
  install_exact_dot(table);
  install_fast_dot(table);
  install_vectors(table);
  install_relayout(table);
  install_scales(table);
  install_marlin(table);
  install_marlin_scales(table);
  install_mixed_rows(table);
  install_numbers(table);
  install_online(table);
}

}  // namespace lode::kernels::avx2
