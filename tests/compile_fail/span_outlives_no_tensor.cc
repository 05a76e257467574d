// What is written into a tensor that is gone at the end of the line is lost, or worse.
// Refused: deleted
#include <cstddef>

#include "lode/tensor/tensor.h"

lode::tensor::Tensor make();

void f() {
#ifdef LODE_MUST_FAIL
  make().mutate().bytes()[0] = std::byte{1};
#else
  lode::tensor::Tensor tensor = make();
  tensor.mutate().bytes()[0] = std::byte{1};
#endif
}
