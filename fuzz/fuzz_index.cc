// A folder's index file and the headers of its shards. The input is the index's text, a NUL byte,
// and then two shards, each led by two bytes of length.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lode/base/check.h"
#include "lode/checkpoint/index_builder.h"
#include "lode/checkpoint/index_file.h"
#include "lode/checkpoint/linear_storage.h"
#include "lode/checkpoint/safetensors.h"

namespace {

using namespace lode::checkpoint;

void check_index(const TensorIndex& index, const IndexFile* promised) {
  std::string_view before;
  for (const TensorRecord& tensor : index.tensors()) {
    LODE_CHECK(&tensor == index.tensors().data() || before < tensor.name, "names are distinct");
    before = tensor.name;
    LODE_CHECK(index.find(tensor.name) == &tensor, "every tensor is found by its name");
    const auto module = tensor.name.substr(0, tensor.name.rfind('.'));
    for (const auto& storage :
         {detect_linear(index, module, {}), detect_fused(index, module, {})}) {
      if (!storage) continue;
      LODE_CHECK(storage->values != nullptr && storage->rows > 0 && storage->columns > 0,
                 "a storage has values");
      LODE_CHECK(contradiction(*storage, module, {}).value_or("x") != "", "a sentence");
    }
  }
  (void)index.nearest_name("model.layers.0.mlp.gate.weight");
  if (promised == nullptr) return;
  for (const IndexFile::Entry& entry : promised->entries) {
    LODE_CHECK(index.find(entry.tensor)->shard_id == entry.shard, "the index's copy counts");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::span<const std::uint8_t> rest(data, size);
  const auto text_end = std::ranges::find(rest, std::uint8_t{0});
  const std::string text(rest.begin(), text_end);
  rest = rest.subspan(text.size());
  if (!rest.empty()) rest = rest.subspan(1);
  auto promised = parse_index_file(text);

  IndexBuilder builder;
  for (std::size_t shard = 0; shard < 2; ++shard) {
    if (rest.size() < 2) break;
    const std::size_t length = rest[0] | static_cast<std::size_t>(rest[1]) << 8;
    const auto file = rest.subspan(2).first(std::min(length, rest.size() - 2));
    rest = rest.subspan(2 + file.size());
    const auto header = parse_header(std::as_bytes(file), file.size(), builder.arena());
    if (!header) return 0;
    builder.add({.name = "s" + std::to_string(shard), .path = "", .identity = {}}, *header);
  }
  const bool usable = promised && promised->shard_names.size() <= 2;
  const IndexFile* const index_file = usable ? &*promised : nullptr;
  const auto index = std::move(builder).finish(index_file);
  if (index) check_index(*index, index_file);
  return 0;
}
