// index.bin of a prepared checkpoint, and whether it is that of a model. Sums would keep the fuzzer
// at the door: the last four bytes and those of the header are put right first.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "lode/base/check.h"
#include "lode/families/model_spec.h"
#include "lode/io/checksum.h"
#include "lode/prepared/chunk_check.h"
#include "lode/prepared/format.h"
#include "lode/prepared/model_fit.h"

namespace {

using namespace lode;

constexpr std::size_t kHeaderBytes = 128;

void put_sum(std::vector<std::byte>& bytes, std::size_t end) {
  const std::uint32_t sum = io::crc32c(std::span(bytes).first(end));
  std::memcpy(bytes.data() + end, &sum, sizeof sum);
}

families::ModelSpec small_spec() {
  families::ModelSpec spec;
  spec.num_layers = 1;
  spec.hidden = 128;
  spec.vocab = 64;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 32;
  spec.expert_intermediate = 64;
  spec.router.num_experts = 2;
  spec.router.top_k = 1;
  spec.layers.resize(1);
  return spec;
}

void check_index(const prepared::Index& index) {
  LODE_CHECK(prepared::decode(prepared::encode(index)), "what was read can be written and read");
  std::uint64_t chunk = 0;
  for (const prepared::Section& section : index.sections) {
    LODE_CHECK(section.first_chunk == chunk, "chunks one after another");
    LODE_CHECK(section.num_chunks() > 0 && &prepared::section_of(index, chunk) == &section,
               "every chunk has its section");
    LODE_CHECK(section.stage_idx < index.stages.size(), "every section has its stage");
    LODE_CHECK(!prepared::section_name(index, section).empty(), "and a name");
    chunk += section.num_chunks();
  }
  for (const loader::StagePlan& stage : index.stages) {
    for (const loader::TensorPlace& place : stage.places) {
      LODE_CHECK(place.offset_bytes <= stage.slab_bytes &&
                     place.bytes <= stage.slab_bytes - place.offset_bytes,
                 "places lie in their slab");
    }
  }
  static_cast<void>(prepared::check_model(index.stages, small_spec()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  if (size >= kHeaderBytes + 4) {
    put_sum(bytes, kHeaderBytes - 4);
    put_sum(bytes, size - 4);
  }
  const auto index = prepared::decode(bytes);
  if (index) check_index(*index);
  return 0;
}
