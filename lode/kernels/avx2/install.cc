#include "lode/kernels/avx2/install.h"

#include "lode/kernels/avx2/exact_dot.h"
#include "lode/kernels/avx2/fast_dot.h"
#include "lode/kernels/avx2/vectors.h"

namespace lode::kernels::avx2 {

void install(KernelTable& table) noexcept {
  install_exact_dot(table);
  install_fast_dot(table);
  install_vectors(table);
}

}  // namespace lode::kernels::avx2
