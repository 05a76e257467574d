// Experts that are too large to be held come in windows: of any size, the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lode/loader/checksum_sink.h"
#include "lode/loader/engine_plan.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/execute.h"
#include "lode/loader/plan.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/synthetic_weights.h"

namespace lode::loader {
namespace {

using targets::Target;
using testing_support::ExpertStorage;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

struct Way {
  ExpertStorage storage;
  Target target;
  const char* online = "";
  bool bias = false;
};

std::string name_of(const Way& way) {
  std::string name(targets::name(way.target));
  name += std::to_string(static_cast<int>(way.storage)) + "_" + way.online;
  std::ranges::replace(name, '-', '_');
  return name;
}

// Two layers, so that memory is used again.
constexpr testing_support::SyntheticShape kSmallExperts{
    .layers = 2, .experts = 2, .hidden = 256, .intermediate = 384};
// Chunks of 2 MiB end within experts, and within windows of them.
constexpr testing_support::SyntheticShape kLargerExperts{
    .layers = 1, .experts = 5, .hidden = 512, .intermediate = 640};

class ExpertWindows : public testing::TestWithParam<Way> {
 protected:
  struct Made {
    std::vector<std::uint32_t> crcs;
    std::vector<LayerLosses> losses;
  };

  EngineChoice choice() const {
    targets::Options options;
    options.online = GetParam().online;
    return {.target = GetParam().target, .options = options};
  }
  Result<EnginePlan> plan(const ExpertScratch& scratch) {
    return plan_engine(weights_->binding(), choice(), 2, scratch);
  }
  Made make(const EnginePlan& plan, const EngineStart& start = {}) {
    const auto index = weights_->index();
    const auto dense =
        plan_load(weights_->binding(), weights_->spec(), *index, {.io = io::IoKind::kBuffered});
    EXPECT_TRUE(dense);
    auto engine = make_engine(*dense);
    EXPECT_TRUE(engine);
    memory::Ledger ledger(kGiB);
    ChecksumSink sink;
    EngineFindings findings;
    const auto expected = expected_engine_stages(plan, start, {});
    const Status made = stream_engine(plan, weights_->binding(),
                                      {ledger, **engine, sink, nullptr, start, &findings});
    EXPECT_TRUE(made) << to_string(made.error());
    EXPECT_EQ(ledger.stages(), expected);
    return {sink.crcs(), findings.losses};
  }

  void write(testing_support::SyntheticShape shape) {
    shape.storage = GetParam().storage;
    shape.bias = GetParam().bias;
    weights_.emplace(shape, folder_.path() / "model.safetensors");
  }

  TempFolder folder_;
  std::optional<SyntheticWeights> weights_;
};

constexpr ExpertScratch kRoomy{.whole_bytes = kGiB, .window_bytes = kGiB};
// From one unit at once to a few windows an expert.
constexpr std::uint64_t kSmall[] = {1, 200 * kKiB};

bool same(const std::vector<LayerLosses>& a, const std::vector<LayerLosses>& b) {
  return std::ranges::equal(a, b, [](const LayerLosses& one, const LayerLosses& other) {
    return one.layer == other.layer && one.counts == other.counts;
  });
}

TEST_P(ExpertWindows, GiveTheBytesOfWholeExperts) {
  write(kSmallExperts);
  const auto whole = plan(kRoomy);
  ASSERT_TRUE(whole) << to_string(whole.error());
  EXPECT_EQ(whole->window_bytes, 0U);
  const Made wanted = make(*whole);
  for (const std::uint64_t bytes : kSmall) {
    const auto small = plan({.whole_bytes = 0, .window_bytes = bytes});
    ASSERT_TRUE(small);
    EXPECT_GT(small->window_bytes, 0U);
    const Made made = make(*small);
    EXPECT_EQ(made.crcs, wanted.crcs) << bytes;
    EXPECT_TRUE(same(made.losses, wanted.losses)) << bytes;
  }
}

TEST_P(ExpertWindows, GoOnWhereAnEarlierStreamEnded) {
  write(kLargerExperts);
  const auto whole = plan(kRoomy);
  const auto small = plan({.whole_bytes = 0, .window_bytes = 300 * kKiB});
  ASSERT_TRUE(whole && small);
  for (std::uint64_t at = 0; at < whole->banks[0].bytes; at += 2 * ChunkRun::kChunkBytes) {
    const EngineStart start{0, at, false};
    EXPECT_EQ(make(*small, start).crcs, make(*whole, start).crcs) << at;
  }
}

TEST_P(ExpertWindows, HoldNoMoreThanTheyMayOrOneUnitNeeds) {
  write(kLargerExperts);
  const auto least = plan({.whole_bytes = 0, .window_bytes = 1});
  ASSERT_TRUE(least);
  for (const std::uint64_t bytes : {300 * kKiB, 500 * kKiB, 1 * kMiB}) {
    const auto small = plan({.whole_bytes = 0, .window_bytes = bytes});
    ASSERT_TRUE(small);
    EXPECT_LE(small->window_bytes, std::max(bytes, least->window_bytes)) << bytes;
    EXPECT_LE(small->refined_bytes, std::max(bytes, least->refined_bytes)) << bytes;
  }
}

constexpr Way kWays[] = {
    {ExpertStorage::kNvfp4, Target::kMarlin},
    {ExpertStorage::kNvfp4, Target::kFlashinferCutlass},
    {ExpertStorage::kNvfp4, Target::kFlashinferTrtllm},
    {ExpertStorage::kNvfp4, Target::kFlashinferB12x},
    {ExpertStorage::kNvfp4, Target::kVllmCutlass},
    {ExpertStorage::kNvfp4Transposed, Target::kMarlin},
    {ExpertStorage::kNvfp4Transposed, Target::kFlashinferCutlass},
    {ExpertStorage::kMxfp4Interleaved, Target::kMarlin, "", true},
    {ExpertStorage::kMxfp4Interleaved, Target::kFlashinferCutlass, "", true},
    {ExpertStorage::kMxfp4Interleaved, Target::kFlashinferTrtllm, "", true},
    {ExpertStorage::kMxfp4Interleaved, Target::kDeepgemm, "", true},
    {ExpertStorage::kFp8Block, Target::kMarlin},
    {ExpertStorage::kFp8Block, Target::kFlashinferTrtllm},
    {ExpertStorage::kFp8Block, Target::kDeepgemm},
    {ExpertStorage::kFp8Tensor, Target::kMarlin},
    {ExpertStorage::kFp8Tensor, Target::kVllmCutlass},
    {ExpertStorage::kBf16, Target::kFlashinferTrtllm},
    {ExpertStorage::kBf16Transposed, Target::kFlashinferTrtllm},
    {ExpertStorage::kBf16, Target::kVllmCutlass, "fp8-tensor"},
    {ExpertStorage::kBf16, Target::kMarlin, "fp8-tensor"},
    {ExpertStorage::kBf16, Target::kMarlin, "fp8-channel"},
    {ExpertStorage::kBf16Transposed, Target::kMarlin, "fp8-channel"},
    {ExpertStorage::kBf16, Target::kVllmCutlass, "fp8-channel"},
    {ExpertStorage::kBf16, Target::kMarlin, "fp8-block"},
    {ExpertStorage::kBf16, Target::kDeepgemm, "fp8-block"},
    {ExpertStorage::kBf16, Target::kFlashinferTrtllm, "fp8-block"},
    {ExpertStorage::kBf16, Target::kFlashinferTrtllm, "mxfp8"},
    {ExpertStorage::kBf16, Target::kMarlin, "mxfp8"},
    {ExpertStorage::kBf16, Target::kFlashinferB12x, "mxfp4"},
    {ExpertStorage::kBf16, Target::kMarlin, "mxfp4"},
    {ExpertStorage::kBf16, Target::kFlashinferCutlass, "nvfp4"},
    {ExpertStorage::kBf16Transposed, Target::kMarlin, "nvfp4"},
};
INSTANTIATE_TEST_SUITE_P(EveryWay, ExpertWindows, testing::ValuesIn(kWays),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace lode::loader
