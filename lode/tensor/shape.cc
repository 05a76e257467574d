#include "lode/tensor/shape.h"

#include "lode/base/fmt.h"

namespace lode::tensor {

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.extents(), ", "));
}

}  // namespace lode::tensor
