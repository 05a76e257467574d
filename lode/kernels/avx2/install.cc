#include "lode/kernels/avx2/install.h"

namespace lode::kernels::avx2 {

void install(KernelTable& table) noexcept { (void)table; }

}  // namespace lode::kernels::avx2
