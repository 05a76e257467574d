#include "lode/engine/load_recorder.h"

#include <gtest/gtest.h>

#include <numeric>

#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

families::ModelSpec spec_of(std::uint32_t layers, std::uint32_t experts) {
  families::ModelSpec spec;
  spec.num_layers = layers;
  spec.router.num_experts = experts;
  return spec;
}

TEST(LoadRecorder, CountsIdsByLayerAndPassesByTheFirstLayer) {
  LoadRecorder recorder(spec_of(3, 4));
  const std::vector<std::int32_t> first = {0, 3, 3, 1}, none = {-1, 4, 2, -1};
  recorder.routes(1, {}, first, {});  // layer 0 has no experts
  recorder.routes(2, {}, none, {});
  recorder.routes(1, {}, first, {});
  recorder.routes(2, {}, first, {});
  const BalanceLoads loads = recorder.loads();
  EXPECT_EQ(loads.steps, 2.0);
  EXPECT_EQ(loads.loads, (std::vector<float>{0, 0, 0, 0, 2, 2, 0, 4, 1, 1, 1, 2}));
}

TEST(LoadRecorder, CountsEveryTokenOfAGenerationTopKTimes) {
  const TestEngine test = start_engine(story_folder(), {});
  const families::ModelSpec& spec = test.engine->source().spec;
  LoadRecorder recorder(spec);
  Request request;
  request.prompt_ids = {1, 2, 3};
  request.max_new_tokens = 5;
  request.sampling.temperature = 0;
  ASSERT_TRUE(test.engine->generate(request, nullptr, &recorder));
  const BalanceLoads loads = recorder.loads();
  const float sum = std::accumulate(loads.loads.begin(), loads.loads.end(), 0.0F);
  EXPECT_EQ(sum, static_cast<float>((3 + 4) * spec.router.top_k * spec.num_layers));
  EXPECT_EQ(loads.steps, 5.0);
}

}  // namespace
}  // namespace lode::engine
