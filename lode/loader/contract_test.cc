// The contract (DESIGN 1): held <= finished + 64 MiB at every instant, plan and ledger alike to the
// byte, refusals before anything is read, nothing held after an error. By default on models of
// about 200 MB; LODE_FULL_TESTS=1 makes them 1.2 GB with 180 MB a layer and more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lode/loader/execute.h"
#include "lode/loader/operation_stream.h"
#include "lode/memory/held_probe.h"
#include "lode/parallel/ticker.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/decorated_engine.h"
#include "tests/support/sanitizers.h"
#include "tests/support/synthetic_weights.h"

namespace lode::loader {
namespace {

using testing_support::DecoratedEngine;
using testing_support::ExpertStorage;
using testing_support::KeepingEngine;
using testing_support::kSanitized;
using testing_support::SyntheticShape;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

constexpr std::uint64_t kAllowanceBytes = 64 * kMiB;
constexpr std::uint64_t kMostCacheBytes = 16 * kMiB;

bool full() {
  const char* const wish = std::getenv("LODE_FULL_TESTS");
  return wish != nullptr && std::string_view(wish) == "1";
}

double bits_of(ExpertStorage storage) {
  switch (storage) {
    case ExpertStorage::kNvfp4:
    case ExpertStorage::kNvfp4Transposed:
      return 4.5;
    case ExpertStorage::kMxfp4Interleaved:
      return 4.25;
    case ExpertStorage::kFp8Block:
      return 8.0;
    default:
      return 16.0;
  }
}

// Experts of 2048 x 768, as many as make up the size.
SyntheticShape shape_of(ExpertStorage storage) {
  SyntheticShape shape{.storage = storage, .hidden = 2048, .intermediate = 768, .vocab = 4096};
  shape.layers = full() ? 7 : 2;
  const double bytes = kSanitized ? 8e6 : full() ? 190e6 : 70e6;
  shape.experts = static_cast<std::uint32_t>(bytes * 8 / bits_of(storage) / (3 * 2048 * 768));
  return shape;
}

// Samples held bytes while a load runs: once in 2 ms, 500 Hz.
class Watch {
 public:
  /// `source`: its pages in the page cache count as held.
  explicit Watch(std::string source) : probe_(make_probe()), source_(std::move(source)) {
    const std::uint64_t cached = *memory::resident_bytes(source_);
    cache_is_measured_ = cached <= kMostCacheBytes;
    if (!cache_is_measured_) {
      std::cerr << "PAGE CACHE NOT MEASURED: this file system keeps " << cached << " bytes\n";
    }
  }

  void start(const Progress& progress) {
    auto ticker = parallel::Ticker::start(std::chrono::milliseconds(2),
                                          [this, &progress] { sample(progress); });
    ASSERT_TRUE(ticker);
    ticker_.emplace(*std::move(ticker));
  }
  void stop() { ticker_.reset(); }

  std::uint64_t samples() const { return samples_; }
  /// The most that was held above what was finished.
  std::uint64_t worst_bytes() const { return worst_bytes_; }
  /// Sanitizers' shadow counts as held, so there nothing is claimed.
  bool holds() const { return kSanitized || worst_bytes_ <= kAllowanceBytes; }
  /// Bytes of the source that the load left in the page cache.
  std::uint64_t cache_left_bytes() const {
    return cache_is_measured_ ? *memory::resident_bytes(source_) : 0;
  }

 private:
  // What an earlier test has freed and malloc has kept must not be in the baseline: it may go.
  static memory::HeldProbe make_probe() {
    ::malloc_trim(0);
    return *memory::HeldProbe::make();
  }

  // What is finished is read first: it may only grow while the kernel counts.
  void sample(const Progress& progress) {
    const std::uint64_t finished = progress.finished_bytes.load(std::memory_order_relaxed);
    auto held = probe_.held_bytes();
    if (!held) return;
    if (cache_is_measured_ && samples_ % 4 == 0) *held += *memory::resident_bytes(source_);
    ++samples_;
    worst_bytes_ = std::max(worst_bytes_, *held - std::min(*held, finished));
  }

  memory::HeldProbe probe_;
  std::string source_;
  bool cache_is_measured_ = true;
  std::atomic<std::uint64_t> samples_ = 0;
  std::uint64_t worst_bytes_ = 0;
  std::optional<parallel::Ticker> ticker_;  // last: it samples into the above
};

// Engines that do wrong, to see whether the watch sees it.
class KeepsEverything final : public KeepingEngine {
 public:
  KeepsEverything(std::unique_ptr<io::ReadEngine> engine, const Watch&)
      : KeepingEngine(std::move(engine), [](const io::ReadRequest&) { return true; }) {}
};

// Holds a tensor for one whole sample, however the machine's load spreads the samples.
class TakesAWholeTensor final : public DecoratedEngine {
 public:
  TakesAWholeTensor(std::unique_ptr<io::ReadEngine> engine, const Watch& watch)
      : DecoratedEngine(std::move(engine)), watch_(watch) {}
  void submit(const io::ReadRequest& request) override {
    if (++count_ == 5) hold_for_a_sample();
    DecoratedEngine::submit(request);
  }

 private:
  void hold_for_a_sample() {
    tensor_.assign(100 * kMiB, std::byte{1});  // a member: a local one is optimised away
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const std::uint64_t begun = watch_.samples() + 1;  // one may be half taken
    while (watch_.samples() <= begun && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    tensor_ = {};
  }

  const Watch& watch_;
  std::uint64_t count_ = 0;
  std::vector<std::byte> tensor_;
};

struct Subject {
  explicit Subject(ExpertStorage storage) : Subject(shape_of(storage)) {}
  explicit Subject(const SyntheticShape& shape)
      : source(shape, folder.path() / "model.safetensors") {}

  LoadPlan plan(std::uint32_t workers) const {
    return *plan_load(source.binding(), source.spec(), *source.index(), {.workers = workers});
  }

  TempFolder folder;
  SyntheticWeights source;
};

template <class Engine>
std::uint64_t worst_with(const Subject& run) {
  const LoadPlan plan = run.plan(2);
  Watch watch(run.source.path());
  Progress progress;
  memory::Ledger ledger(plan.peak_bytes());
  Engine engine(*make_engine(plan), watch);
  watch.start(progress);
  const auto weights = execute(plan, run.source.binding(), ledger, engine, &progress);
  watch.stop();
  EXPECT_TRUE(weights);
  EXPECT_GT(watch.samples(), 10U);
  return watch.worst_bytes();
}

void expect_stages(const std::vector<memory::StageUse>& planned, const memory::Ledger& ledger) {
  const auto actual = ledger.stages();
  ASSERT_EQ(planned.size(), actual.size());
  for (std::size_t i = 0; i < planned.size(); ++i) {
    EXPECT_EQ(planned[i].name, actual[i].name);
    EXPECT_EQ(planned[i].held_bytes, actual[i].held_bytes) << planned[i].name;
    EXPECT_EQ(planned[i].peak_bytes, actual[i].peak_bytes) << planned[i].name;
    EXPECT_EQ(planned[i].peak_total_bytes, actual[i].peak_total_bytes) << planned[i].name;
  }
}

class Contract : public testing::TestWithParam<ExpertStorage> {};

TEST_P(Contract, HoldsAtEverySampleWithAnyThreads) {
  const Subject run(GetParam());
  for (const std::uint32_t workers : {1U, 2U, 4U}) {
    const LoadPlan plan = run.plan(workers);
    Watch watch(run.source.path());
    Progress progress;
    memory::Ledger ledger(plan.peak_bytes());
    const auto engine = *make_engine(plan);
    watch.start(progress);
    const auto weights = execute(plan, run.source.binding(), ledger, *engine, &progress);
    watch.stop();
    ASSERT_TRUE(weights) << to_string(weights.error());
    EXPECT_TRUE(watch.holds()) << watch.worst_bytes() << " bytes above what was finished";
    EXPECT_GT(watch.samples(), kSanitized ? 0U : 10U);
    EXPECT_EQ(progress.finished_bytes, plan.weight_bytes());
    EXPECT_EQ(weights->weight_bytes(), plan.weight_bytes());
    expect_stages(plan.expected_stages(), ledger);
    EXPECT_EQ(ledger.peak_bytes(), plan.peak_bytes());
    const std::uint64_t left = watch.cache_left_bytes();
    EXPECT_LE(left, kMostCacheBytes);
    std::cerr << plan.weight_bytes() / kMiB << " MiB, " << workers << " workers: at most "
              << static_cast<double>(watch.worst_bytes()) / kMiB << " MiB above finished in "
              << watch.samples() << " samples; " << left / kKiB << " KiB of cache left\n";
  }
}

class ContractBreach : public testing::TestWithParam<ExpertStorage> {};

TEST_P(ContractBreach, ByAKeptReferenceIsSeen) {
  if (kSanitized) GTEST_SKIP() << "shadow memory counts as held";
  EXPECT_GT(worst_with<KeepsEverything>(Subject(GetParam())), kAllowanceBytes);
}

TEST_P(ContractBreach, ByAWholeTensorTemporaryIsSeen) {
  if (kSanitized) GTEST_SKIP() << "shadow memory counts as held";
  EXPECT_GT(worst_with<TakesAWholeTensor>(Subject(GetParam())), kAllowanceBytes);
}

std::vector<ExpertStorage> storages(bool all) {
  if (!all) return {ExpertStorage::kNvfp4, ExpertStorage::kBf16};
  return {ExpertStorage::kNvfp4, ExpertStorage::kMxfp4Interleaved, ExpertStorage::kFp8Block,
          ExpertStorage::kBf16, ExpertStorage::kBf16Transposed};
}

INSTANTIATE_TEST_SUITE_P(Loader, Contract, testing::ValuesIn(storages(true)));
// Planted in two storages only: a watch knows no storage.
INSTANTIATE_TEST_SUITE_P(Loader, ContractBreach, testing::ValuesIn(storages(false)));

// One unit of k of a transposed matrix touches all of its panels: experts as wide as gpt-oss's in
// BF16 (32 MiB of gate and up), and so wide that they are cut along their rows too.
TEST(ContractOfWideExperts, HoldsWhereEveryReadTouchesTheWholeMatrix) {
  if (kSanitized) GTEST_SKIP() << "shadow memory counts as held";
  for (const std::uint32_t width : {2880U, 4096U}) {
    const Subject run(SyntheticShape{.storage = ExpertStorage::kBf16Transposed,
                                     .layers = 1,
                                     .experts = 3,
                                     .hidden = width,
                                     .intermediate = width,
                                     .vocab = 64,
                                     .attention = 64});
    const LoadPlan plan = run.plan(2);
    Watch watch(run.source.path());
    Progress progress;
    memory::Ledger ledger(plan.peak_bytes());
    const auto engine = *make_engine(plan);
    watch.start(progress);
    const auto weights = execute(plan, run.source.binding(), ledger, *engine, &progress);
    watch.stop();
    ASSERT_TRUE(weights) << to_string(weights.error());
    EXPECT_TRUE(watch.holds()) << watch.worst_bytes() << " bytes above what was finished";
    EXPECT_LE(engine->bytes_read()[0], plan.weight_bytes());  // nothing is read twice
    std::cerr << width << ": at most " << static_cast<double>(watch.worst_bytes()) / kMiB
              << " MiB above finished, " << engine->bytes_read()[0] / kMiB << " MiB read for "
              << plan.weight_bytes() / kMiB << "\n";
  }
}

class Budget : public testing::Test {
 protected:
  Budget()
      : source_({.storage = ExpertStorage::kNvfp4, .bias = true},
                folder_.path() / "model.safetensors") {}

  LoadPlan plan() const {
    return *plan_load(source_.binding(), source_.spec(), *source_.index(), {});
  }

  TempFolder folder_;
  SyntheticWeights source_;
};

TEST_F(Budget, OneMebibyteTooSmallIsRefusedBeforeAnythingIsRead) {
  const LoadPlan plan = this->plan();
  const auto engine = *make_engine(plan);
  memory::Ledger ledger(plan.peak_bytes() - kMiB);
  const auto begin = std::chrono::steady_clock::now();
  const auto weights = execute(plan, source_.binding(), ledger, *engine);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, Code::kOverBudget);
  EXPECT_THAT(to_string(weights.error()), testing::HasSubstr(std::to_string(plan.peak_bytes())));
  EXPECT_EQ(engine->bytes_read(), std::vector<std::uint64_t>{0});
  EXPECT_EQ(ledger.held_bytes(), 0U);
  EXPECT_TRUE(ledger.stages().empty());
}

TEST_F(Budget, OfExactlyThePeakIsEnough) {
  const LoadPlan plan = this->plan();
  const auto engine = *make_engine(plan);
  memory::Ledger ledger(plan.peak_bytes());
  EXPECT_TRUE(execute(plan, source_.binding(), ledger, *engine));
}

TEST_F(Budget, CountsWhatTheLedgerHoldsAlready) {
  const LoadPlan plan = this->plan();
  memory::Ledger ledger(plan.peak_bytes() + 1000);
  auto metadata = ledger.reserve(memory::Tag::kMetadata, 1000, "names");
  ASSERT_TRUE(metadata);
  const auto engine = *make_engine(plan);
  const auto weights = execute(plan, source_.binding(), ledger, *engine);
  ASSERT_TRUE(weights);
  memory::TagBytes before{};
  before[static_cast<std::size_t>(memory::Tag::kMetadata)] = 1000;
  expect_stages(plan.expected_stages(before), ledger);
  const auto more = ledger.reserve(memory::Tag::kMetadata, plan.ring_bytes(), "more names");
  EXPECT_EQ(execute(plan, source_.binding(), ledger, *engine).error().code, Code::kOverBudget);
}

TEST_F(Budget, EveryRefusedReservationLeavesNothingHeld) {
  const LoadPlan plan = this->plan();
  for (std::uint64_t k = 0;; ++k) {
    const auto engine = *make_engine(plan);
    memory::FailingLedger ledger(4 * kGiB, k);
    const auto weights = execute(plan, source_.binding(), ledger, *engine);
    if (!ledger.refused()) {
      EXPECT_TRUE(weights);
      // ring 2, stacks 1, model slab 2, each of two layers 2 slabs of 2
      EXPECT_EQ(k, 13U);
      return;
    }
    ASSERT_FALSE(weights) << k;
    EXPECT_EQ(weights.error().code, Code::kOverBudget) << k;
    EXPECT_EQ(ledger.held_bytes(), 0U) << k;
  }
}

// A checkpoint of many tensors: 3 layers of 200 experts, 1 + 4 bytes of scalars each, must not cost
// a read a scalar.
TEST(ManyTensors, AreReadInFewReads) {
  const TempFolder folder;
  const SyntheticWeights source({.storage = ExpertStorage::kNvfp4,
                                 .layers = 2,
                                 .experts = 200,
                                 .hidden = 64,
                                 .intermediate = 32,
                                 .vocab = 64},
                                folder.path() / "model.safetensors");
  const LoadPlan plan = *plan_load(source.binding(), source.spec(), *source.index(), {});
  std::size_t reads = 0;
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (const SlotLoad& load : stage_operations(plan, source.binding(), stage)) {
      reads += load.reads.size();
    }
  }
  // 3600 tensors of experts in 1.5 MB: one sweep a layer and some
  EXPECT_LE(reads, 10U);
}

}  // namespace
}  // namespace lode::loader
