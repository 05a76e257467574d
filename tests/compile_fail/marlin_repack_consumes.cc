// A repack where the weights lie would change a tensor that its owner still believes in.
// Refused: cannot bind|no matching|no known conversion
#include <utility>

#include "lode/layout/marlin_repack.h"

lode::layout::MarlinTensors f(const lode::layout::MarlinRepack& repack,
                              lode::layout::MarlinTensors tensors, std::span<std::byte> scratch) {
#ifdef LODE_MUST_FAIL
  return lode::layout::run(repack, tensors, scratch);
#else
  return lode::layout::run(repack, std::move(tensors), scratch);
#endif
}
