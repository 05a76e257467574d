#include "lode/kernels/avx512/install.h"

#include "lode/kernels/avx512/fast_dot.h"

namespace lode::kernels::avx512 {

void install(KernelTable& table) noexcept {
  table.fast_dot[static_cast<std::size_t>(PanelKind::kMxfp4)] = mxfp4_fast_dot;
  table.fast_dot[static_cast<std::size_t>(PanelKind::kNvfp4)] = nvfp4_fast_dot;
  table.fast_dot[static_cast<std::size_t>(PanelKind::kI8)] = i8_fast_dot;
}

}  // namespace lode::kernels::avx512
