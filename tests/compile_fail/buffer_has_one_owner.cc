// Two owners of the same bytes would give them back twice.
// Refused: deleted
#include <utility>

#include "lode/memory/buffer.h"

lode::memory::Buffer f(lode::memory::Buffer& buffer) {
#ifdef LODE_MUST_FAIL
  return buffer;
#else
  return std::move(buffer);
#endif
}
