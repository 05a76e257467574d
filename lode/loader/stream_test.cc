#include "lode/loader/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lode/loader/checksum_sink.h"
#include "lode/loader/execute.h"
#include "lode/loader/operation_stream.h"
#include "lode/memory/held_probe.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/sanitizers.h"
#include "tests/support/synthetic_weights.h"

namespace lode::loader {
namespace {

using testing_support::ExpertStorage;
using testing_support::kSanitized;
using testing_support::SyntheticShape;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

constexpr std::uint64_t kRoomy = 4 * kGiB;

// Keeps everything, and checks that it comes in order.
class CollectSink final : public ChunkSink {
 public:
  using Key = std::pair<std::size_t, Slab>;

  explicit CollectSink(const StreamStart& start = {}) : start_(start) {}

  Status put(const ChunkRun& run) override {
    const Key key{run.stage_idx, run.slab};
    auto& bytes = slabs[key];
    const bool first = key == Key{start_.stage_idx, start_.slab};
    EXPECT_EQ(run.offset_bytes, bytes.size() + (first ? start_.offset_bytes : 0));
    EXPECT_EQ(run.offset_bytes % ChunkRun::kChunkBytes, 0U);
    EXPECT_TRUE(order.empty() || order.back() <= key);
    order.push_back(key);
    bytes.insert(bytes.end(), run.bytes.begin(), run.bytes.end());
    if (--puts_left == 0) return Error{.code = Code::kNoSpace, .thing = "the sink"};
    return {};
  }

  std::map<Key, std::vector<std::byte>> slabs;
  std::vector<Key> order;
  std::uint64_t puts_left = ~0ULL;

 private:
  StreamStart start_;
};

struct Model {
  Model(const SyntheticShape& shape, std::uint64_t slot_bytes)
      : source(shape, folder.path() / "model.safetensors") {
    policy.slot_bytes = slot_bytes;
    auto index = source.index();
    auto made = plan_load(source.binding(), source.spec(), *index, policy);
    EXPECT_TRUE(made) << to_string(made.error());
    plan = *std::move(made);
  }

  Status run(ChunkSink& sink, memory::Ledger& ledger, const StreamStart& start = {},
             Progress* progress = nullptr) const {
    LODE_TRY(const auto engine, make_engine(plan));
    return stream(plan, source.binding(), {ledger, *engine, sink, progress, start});
  }

  TempFolder folder;
  SyntheticWeights source;
  LoadPolicy policy;
  LoadPlan plan;
};

void expect_as_loaded(const Model& model, const CollectSink& sink) {
  memory::Ledger ledger(kRoomy);
  const auto engine = make_engine(model.plan);
  ASSERT_TRUE(engine);
  const auto weights = execute(model.plan, model.source.binding(), ledger, **engine);
  ASSERT_TRUE(weights) << to_string(weights.error());
  for (std::size_t i = 0; i < model.plan.stages.size(); ++i) {
    const StagePlan& stage = model.plan.stages[i];
    const auto& dense = sink.slabs.at({i, Slab::kDense});
    EXPECT_EQ(dense.size(), align_up<std::uint64_t>(stage.slab_bytes, 4096));
    std::vector<std::byte> whole(dense.size());
    for (const TensorPlace& place : stage.places) {
      const auto view =
          i == 0 ? weights->model_weight(place.role)
                 : weights->layer_weight(static_cast<std::uint32_t>(stage.layer), place.role);
      std::copy(view.bytes().begin(), view.bytes().end(),
                whole.begin() + static_cast<std::ptrdiff_t>(place.offset_bytes));
    }
    EXPECT_EQ(dense, whole) << stage.name;
    if (!stage.bank) continue;
    const auto bank = weights->experts(static_cast<std::uint32_t>(stage.layer)).bytes;
    EXPECT_TRUE(std::ranges::equal(sink.slabs.at({i, Slab::kBank}), bank)) << stage.name;
  }
}

class EveryStorageStreamed : public testing::TestWithParam<ExpertStorage> {};

TEST_P(EveryStorageStreamed, IsWhatALoadMakesByteForByte) {
  for (const std::uint64_t slot_bytes : {64 * kKiB, 2 * kMiB}) {
    const Model model({GetParam(), 3, 5, 416, 224, 100, true}, slot_bytes);
    CollectSink sink;
    memory::Ledger ledger(kRoomy);
    const Status status = model.run(sink, ledger);
    ASSERT_TRUE(status) << to_string(status.error());
    expect_as_loaded(model, sink);
    EXPECT_EQ(ledger.stages(), expected_stream_stages(model.plan));
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

// Several windows a slab, matrices cut along k and along rows.
TEST_P(EveryStorageStreamed, GoesOnFromEveryChunk) {
  const Model model({GetParam(), 1, 3, 1024, 640, 1500, true}, 64 * kKiB);
  CollectSink whole;
  memory::Ledger ledger(kRoomy);
  ASSERT_TRUE(model.run(whole, ledger));
  expect_as_loaded(model, whole);
  for (const auto& [key, bytes] : whole.slabs) {
    // Some of the bank, every one of the others; few where each costs tenfold.
    const std::uint64_t chunks = (key.second == Slab::kBank ? 3 : 1) * (kSanitized ? 5 : 1);
    const std::uint64_t step = chunks * ChunkRun::kChunkBytes;
    for (std::uint64_t at = 0; at < bytes.size(); at += step) {
      const StreamStart start{key.first, key.second, at};
      CollectSink rest(start);
      memory::Ledger own(kRoomy);
      ASSERT_TRUE(model.run(rest, own, start));
      EXPECT_EQ(own.stages(), expected_stream_stages(model.plan, start));
      auto expected = whole.slabs;
      expected.erase(expected.begin(), expected.find(key));
      auto& first = expected.at(key);
      first.erase(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_EQ(rest.slabs, expected) << key.first << " " << at;
    }
  }
}

TEST_P(EveryStorageStreamed, HasWindowsThatFollowOnEachOtherAndHoldWhatTheySay) {
  for (const std::uint64_t slot_bytes : {64 * kKiB, 2 * kMiB}) {
    const Model model({GetParam(), 2, 9, 1024, 640, 2500, true}, slot_bytes);
    for (std::size_t stage_idx = 0; stage_idx < model.plan.stages.size(); ++stage_idx) {
      const StagePlan& stage = model.plan.stages[stage_idx];
      OperationStream stream(model.plan, model.source.binding(), stage_idx,
                             {.window_bytes = kMiB, .start = {}});
      Window last{.number = ~0ULL, .slab = Slab::kDense, .begin_bytes = 0, .end_bytes = 0};
      bool closed = true;
      while (const auto load = stream.next()) {
        if (closed) {
          EXPECT_EQ(load->window.number, last.number + 1);
          const bool next_slab = load->window.slab != last.slab;
          EXPECT_EQ(load->window.begin_bytes, next_slab ? 0 : last.end_bytes);
          EXPECT_TRUE(!next_slab || last.end_bytes == stage.slab_bytes);
          last = load->window;
        }
        EXPECT_EQ(load->window, last);
        closed = load->closes_window;
        for (const Operation& operation : load->operations) {
          const Reach reach = reach_of({operation});
          EXPECT_GE(reach.begin_bytes, last.begin_bytes);
          EXPECT_LE(reach.end_bytes, last.end_bytes);
        }
      }
      EXPECT_TRUE(closed);
      EXPECT_EQ(last.end_bytes, stage.bank ? stage.bank->bytes() : stage.slab_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Loader, EveryStorageStreamed,
                         testing::Values(ExpertStorage::kNvfp4, ExpertStorage::kNvfp4Transposed,
                                         ExpertStorage::kMxfp4Interleaved, ExpertStorage::kFp8Block,
                                         ExpertStorage::kBf16, ExpertStorage::kBf16Transposed));

TEST(Stream, HoldsNoMoreForALargeSlabOrToGoOnWithinOne) {
  if (kSanitized) GTEST_SKIP() << "shadow memory is held, too";
  const Model model({ExpertStorage::kBf16Transposed, 1, 10, 2048, 1024, 6000, false}, 2 * kMiB);
  ASSERT_GT(model.plan.weight_bytes(), 150 * kMiB);
  class ProbeSink final : public ChunkSink {
   public:
    explicit ProbeSink(const memory::HeldProbe& probe) : probe_(probe) {}
    Status put(const ChunkRun& run) override {
      LODE_TRY(const std::uint64_t held, probe_.held_bytes());
      most = std::max(most, held);
      return sums.put(run);
    }
    ChecksumSink sums;
    std::uint64_t most = 0;

   private:
    const memory::HeldProbe& probe_;
  };
  const auto probe = memory::HeldProbe::make();
  ASSERT_TRUE(probe);
  const std::uint64_t fresh = expected_stream_stages(model.plan).front().peak_total_bytes;
  EXPECT_LE(fresh, 56 * kMiB);
  for (const std::uint64_t chunk : {0U, 1U, 7U, 11U, 30U}) {
    ProbeSink sink(*probe);
    memory::Ledger ledger(kRoomy);
    const StreamStart start{1, Slab::kBank, chunk * ChunkRun::kChunkBytes};
    const Status status = model.run(sink, ledger, chunk == 0 ? StreamStart{} : start);
    ASSERT_TRUE(status) << to_string(status.error());
    EXPECT_EQ(ledger.peak_bytes(), fresh);
    EXPECT_LT(sink.most, fresh + 8 * kMiB) << "from chunk " << chunk;
  }
}

TEST(Stream, HasProgressOfWhatItsSinkGetsWhereverItBegins) {
  const Model model({ExpertStorage::kNvfp4, 2, 4, 512, 256, 512, false}, 64 * kKiB);
  CollectSink whole;
  memory::Ledger ledger(kRoomy);
  ASSERT_TRUE(model.run(whole, ledger));
  std::uint64_t bytes = 0;
  for (const auto& [key, slab] : whole.slabs) bytes += slab.size();
  for (const StreamStart& start : {StreamStart{}, StreamStart{.stage_idx = 2}}) {
    CollectSink sink(start);
    Progress progress;
    ASSERT_TRUE(model.run(sink, ledger, start, &progress));
    EXPECT_EQ(progress.total_bytes, bytes);
    EXPECT_EQ(progress.finished_bytes, bytes);
  }
}

TEST(Stream, EndsWithTheErrorOfItsSinkWheneverThatFails) {
  const Model model({ExpertStorage::kNvfp4, 2, 4, 512, 256, 512, false}, 64 * kKiB);
  CollectSink whole;
  memory::Ledger ledger(kRoomy);
  ASSERT_TRUE(model.run(whole, ledger));
  for (std::uint64_t k = 1; k <= whole.order.size(); ++k) {
    CollectSink sink;
    sink.puts_left = k;
    memory::Ledger own(kRoomy);
    const Status status = model.run(sink, own);
    ASSERT_FALSE(status) << k;
    EXPECT_EQ(status.error().code, Code::kNoSpace);
    EXPECT_EQ(own.held_bytes(), 0U);
  }
}

TEST(Stream, IsRefusedBeforeAnythingIsReadWhereItDoesNotFit) {
  const Model model({ExpertStorage::kNvfp4}, 2 * kMiB);
  const std::uint64_t need = expected_stream_stages(model.plan).front().peak_total_bytes;
  memory::Ledger ledger(need - 1);
  CollectSink sink;
  const Status status = model.run(sink, ledger);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kOverBudget);
  EXPECT_TRUE(sink.order.empty());
  EXPECT_THAT(to_string(status.error()), testing::HasSubstr(std::to_string(need)));
}

TEST(Stream, EndsCleanlyWhicheverReservationIsRefused) {
  const Model model({ExpertStorage::kNvfp4}, 64 * kKiB);
  for (std::uint64_t k = 0;; ++k) {
    memory::FailingLedger ledger(kRoomy, k);
    CollectSink sink;
    const Status status = model.run(sink, ledger);
    EXPECT_EQ(ledger.held_bytes(), 0U);
    if (!ledger.refused()) break;
    ASSERT_FALSE(status) << k;
    EXPECT_EQ(status.error().code, Code::kOverBudget);
  }
}

TEST(Stream, StopsWhenToldTo) {
  const Model model({ExpertStorage::kNvfp4}, 64 * kKiB);
  Progress progress;
  progress.cancel = true;
  memory::Ledger ledger(kRoomy);
  CollectSink sink;
  const Status status = model.run(sink, ledger, {}, &progress);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInterrupted);
}

}  // namespace
}  // namespace lode::loader
