#include "lode/engine/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/engine/stage_json.h"
#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

TEST(Inventory, CountsEveryByteOfTheFilesOnceByDtype) {
  const Source source = source_of(story_folder());
  std::uint64_t bytes = 0;
  std::uint64_t tensors = 0;
  std::uint64_t last = ~std::uint64_t{0};
  for (const DtypeShare& share : dtype_shares(source.index)) {
    EXPECT_LE(share.bytes, last) << "not the largest first";
    last = share.bytes;
    bytes += share.bytes;
    tensors += share.num_tensors;
  }
  EXPECT_EQ(bytes, source.index.tensor_bytes());
  EXPECT_EQ(tensors, source.index.tensors().size());
}

// Where every tensor has a role of its own, roles and files have the same bytes.
TEST(Inventory, CountsEveryByteOfTheFilesOnceByRole) {
  for (const std::string name : {"models/qwen3_moe", "quantised/modelopt_nvfp4",
                                 "quantised/bf16_per_expert", "quantised/gptoss_mxfp4"}) {
    const Source source = source_of(golden_folder(name));
    std::uint64_t bytes = 0;
    for (const RoleShare& share : role_shares(source.binding)) bytes += share.bytes;
    // Scales of the activations have no role in a run whose activations are not FP4.
    std::uint64_t ignored = 0;
    for (const checkpoint::TensorRecord& tensor : source.index.tensors()) {
      if (tensor.name.ends_with("input_scale")) ignored += tensor.bytes;
    }
    EXPECT_EQ(bytes + ignored, source.index.tensor_bytes()) << name;
  }
}

TEST(StageJson, HasEveryTagAndTheSameFormForAPlanAndARun) {
  memory::StageUse stage{.name = "layer 0", .peak_total_bytes = 7};
  stage.peak_bytes[0] = 5;
  stage.held_bytes[1] = 2;
  const std::string text = json::dump(as_json(std::span(&stage, 1)));
  EXPECT_EQ(text,
            "[{\"name\":\"layer 0\",\"held_bytes\":{\"weights\":0,\"kv_cache\":2,\"staging\":0,"
            "\"scratch\":0,\"metadata\":0,\"page_tables\":0},\"peak_bytes\":{\"weights\":5,"
            "\"kv_cache\":0,\"staging\":0,\"scratch\":0,\"metadata\":0,\"page_tables\":0},"
            "\"peak_total_bytes\":7}]");
}

}  // namespace
}  // namespace lode::engine
