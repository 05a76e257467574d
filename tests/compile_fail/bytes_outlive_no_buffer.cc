// The bytes of a buffer that is gone at the end of the line are nobody's.
// Refused: deleted
#include <cstddef>
#include <span>

#include "lode/memory/buffer.h"

lode::memory::Buffer make();

std::size_t f() {
#ifdef LODE_MUST_FAIL
  const std::span<const std::byte> bytes = make().bytes();
#else
  const lode::memory::Buffer buffer = make();
  const std::span<const std::byte> bytes = buffer.bytes();
#endif
  return bytes.size();
}
