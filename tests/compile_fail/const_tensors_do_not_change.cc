// A const tensor gives no writable bytes.
// Refused: discards qualifiers|const
#include <cstddef>

#include "lode/tensor/tensor.h"

#ifdef LODE_MUST_FAIL
void f(const lode::tensor::Tensor& tensor) {
#else
void f(lode::tensor::Tensor& tensor) {
#endif
  tensor.mutate().bytes()[0] = std::byte{1};
}
