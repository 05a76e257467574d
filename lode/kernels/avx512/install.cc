#include "lode/kernels/avx512/install.h"

#include "lode/kernels/avx512/fast_dot.h"

namespace lode::kernels::avx512 {

void install(KernelTable& table, bool intel) noexcept {
  const Prefetch prefetch = intel ? Prefetch::kYes : Prefetch::kNo;
  install_fast_dot(table, prefetch);
}

}  // namespace lode::kernels::avx512
