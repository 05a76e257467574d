// The header of a safetensors file: whatever the bytes, a header that is accepted keeps every
// promise that readers rely on.
#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/check.h"
#include "lode/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lode::checkpoint;
  RecordArena arena;
  const auto file = std::as_bytes(std::span(data, size));
  const auto header = parse_header(file, size, arena);
  if (!header) return 0;
  std::uint64_t end = header->data_offset;
  for (const TensorRecord& tensor : header->tensors) {
    LODE_CHECK(tensor.file_offset == end, "tensors lie one after another");
    end += tensor.bytes;
    LODE_CHECK(end <= size, "tensors lie inside the file");
    if (tensor.format) {
      const std::uint64_t bits = num_elements(tensor) * lode::formats::info(*tensor.format).bits;
      LODE_CHECK(bits == 8 * tensor.bytes, "bytes are what shape and dtype ask for");
    }
  }
  LODE_CHECK(end == size, "nothing lies after the last tensor");
  return 0;
}
