// Whoever has a view reads; the word `mutate` stands where a tensor changes.
// Refused: read-only|assign|no viable overloaded
#include <cstddef>

#include "lode/tensor/tensor.h"

void f(lode::tensor::Tensor& tensor) {
#ifdef LODE_MUST_FAIL
  tensor.view().bytes()[0] = std::byte{1};
#else
  tensor.mutate().bytes()[0] = std::byte{1};
#endif
}
