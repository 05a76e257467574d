#include "lode/kernels/avx512/install.h"

namespace lode::kernels::avx512 {

void install(KernelTable& table) noexcept { (void)table; }

}  // namespace lode::kernels::avx512
