#include "lode/kernels/avx512/install.h"

#include "lode/kernels/avx512/exact_dot.h"
#include "lode/kernels/avx512/fast_dot.h"
#include "lode/kernels/avx512/marlin.h"
#include "lode/kernels/avx512/numbers.h"
#include "lode/kernels/avx512/online.h"
#include "lode/kernels/avx512/relayout.h"
#include "lode/kernels/avx512/vectors.h"

namespace lode::kernels::avx512 {

void install(KernelTable& table, bool intel) noexcept {
  const Prefetch prefetch = intel ? Prefetch::kYes : Prefetch::kNo;
  install_exact_dot(table, prefetch);
  install_fast_dot(table, prefetch);
  install_vectors(table);
  install_relayout(table);
  install_scales(table);
  install_marlin(table);
  install_marlin_scales(table);
  install_numbers(table);
  install_online(table);
}

}  // namespace lode::kernels::avx512
