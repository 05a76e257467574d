// Gate and up change places in the tensors of whoever gave them up in writing.
// Refused: rvalue reference|no matching function|cannot bind
#include <utility>

#include "lode/layout/half_swap.h"

lode::layout::GateUpTensors f(const lode::layout::HalfSwap& swap,
                              lode::layout::GateUpTensors tensors) {
#ifdef LODE_MUST_FAIL
  return lode::layout::run(swap, tensors);
#else
  return lode::layout::run(swap, std::move(tensors));
#endif
}
