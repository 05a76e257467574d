// The view of a tensor that is gone at the end of the line reads nobody's bytes.
// Refused: deleted
#include <cstddef>

#include "lode/tensor/tensor.h"

lode::tensor::Tensor make();

std::size_t f() {
#ifdef LODE_MUST_FAIL
  const lode::tensor::TensorView view = make().view();
#else
  const lode::tensor::Tensor tensor = make();
  const lode::tensor::TensorView view = tensor.view();
#endif
  return view.bytes().size();
}
