// Experts that are too large to be held come in windows: of any size, the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
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

constexpr testing_support::SyntheticShape kSmallExperts{
    .layers = 1, .experts = 2, .hidden = 256, .intermediate = 384};
// Chunks of 2 MiB end within experts, and within windows of them.
constexpr testing_support::SyntheticShape kLargerExperts{
    .layers = 1, .experts = 5, .hidden = 512, .intermediate = 640};

class WindowsOf : public testing::Test {
 protected:
  explicit WindowsOf(const Way& way) : way_(way) {}

  struct Made {
    Status status;
    std::vector<std::uint32_t> crcs;
    std::vector<LayerLosses> losses;
  };

  EngineChoice choice() const {
    targets::Options options;
    options.online = way_.online;
    return {.target = way_.target, .options = options};
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
    Status made = stream_engine(plan, weights_->binding(),
                                {ledger, **engine, sink, nullptr, start, &findings});
    if (made) {
      EXPECT_EQ(ledger.stages(), expected);
    }
    return {std::move(made), sink.crcs(), findings.losses};
  }

  void write(testing_support::SyntheticShape shape) {
    shape.storage = way_.storage;
    shape.bias = way_.bias;
    weights_.emplace(shape, folder_.path() / "model.safetensors");
  }

  Way way_;
  testing_support::FoldersInMemory in_memory_;
  TempFolder folder_;
  std::optional<SyntheticWeights> weights_;
};

class ExpertWindows : public WindowsOf, public testing::WithParamInterface<Way> {
 protected:
  ExpertWindows() : WindowsOf(GetParam()) {}
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
  EXPECT_TRUE(wanted.status) << to_string(wanted.status.error());
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
  const std::vector<std::uint32_t> all = make(*whole).crcs;
  const std::uint64_t chunks = whole->banks[0].bytes / ChunkRun::kChunkBytes;
  for (const std::uint64_t chunk : {chunks / 3, chunks - 1}) {
    const std::uint64_t at = chunk * ChunkRun::kChunkBytes;
    const EngineStart start{0, at, false};
    const std::vector<std::uint32_t> rest(all.begin() + static_cast<std::ptrdiff_t>(chunk),
                                          all.end());
    EXPECT_EQ(make(*whole, start).crcs, rest) << at;
    EXPECT_EQ(make(*small, start).crcs, rest) << at;
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

// Of each expert one block whose numbers are too small for a scale of DeepGEMM's, in gate, up and
// down.
class WindowsThatLose : public WindowsOf {
 protected:
  WindowsThatLose() : WindowsOf({ExpertStorage::kFp8Block, Target::kDeepgemm}) {
    write(kLargerExperts);
    std::fstream file(weights_->path(), std::ios::in | std::ios::out | std::ios::binary);
    constexpr std::array<char, 2> kTiny{1, 0};  // BF16
    for (const ExpertSource& expert : weights_->binding().experts[0]) {
      for (const MatrixSource* matrix : {&expert.gate, &expert.up, &expert.down}) {
        file.seekp(static_cast<std::streamoff>(matrix->scales.offset_bytes));
        file.write(kTiny.data(), kTiny.size());
      }
    }
  }
  std::uint64_t flushed(const Made& made) const {
    EXPECT_LE(made.losses.size(), 1U);
    return made.losses.empty() ? 0 : made.losses[0].counts.of(targets::Loss::kFlushedScales);
  }
};

TEST_F(WindowsThatLose, TellWhatWholeExpertsTellAndNothingTwice) {
  const auto whole = plan(kRoomy);
  const auto small = plan({.whole_bytes = 0, .window_bytes = 1});
  ASSERT_TRUE(whole && small);
  const std::uint64_t all = flushed(make(*whole));
  EXPECT_EQ(all, 3 * kLargerExperts.experts);
  EXPECT_EQ(flushed(make(*small)), all);
  // Of an earlier stream's experts only the one that it had not finished is counted again.
  for (std::uint64_t at = 0; at < whole->banks[0].bytes; at += ChunkRun::kChunkBytes) {
    const std::uint64_t rest = flushed(make(*whole, {0, at, false}));
    EXPECT_LE(rest, all) << at;
    EXPECT_EQ(flushed(make(*small, {0, at, false})), rest) << at;
  }
}

TEST_F(WindowsThatLose, AreRefusedInTheSameWords) {
  const auto whole = plan(kRoomy);
  const auto small = plan({.whole_bytes = 0, .window_bytes = 1});
  ASSERT_TRUE(whole && small);
  const EngineStart strict{0, 0, true};
  const Made of_whole = make(*whole, strict), of_windows = make(*small, strict);
  ASSERT_FALSE(of_whole.status);
  ASSERT_FALSE(of_windows.status);
  EXPECT_EQ(of_whole.status.error().found,
            "2 " + std::string(targets::info(targets::Loss::kFlushedScales).meaning))
      << to_string(of_whole.status.error());
  EXPECT_EQ(to_string(of_windows.status.error()), to_string(of_whole.status.error()));
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
