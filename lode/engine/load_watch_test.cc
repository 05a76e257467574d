#include "lode/engine/load_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "lode/engine/test_engine.h"
#include "lode/memory/buffer.h"
#include "tests/support/sanitizers.h"

namespace lode::engine {
namespace {

constexpr std::uint64_t kBlockBytes = 32 << 20;

void fill(memory::Buffer& buffer) {
  for (std::byte& byte : buffer.mutate()) byte = std::byte{1};
}

// Ticks until `count` more have been.
void await(const std::atomic<int>& ticks, int count) {
  const int until = ticks.load() + count;
  while (ticks.load() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(LoadWatch, SeesBytesThatAreHeldWithoutBeingFinishedWeights) {
  if (testing_support::kSanitized) GTEST_SKIP() << "a sanitizer's shadow is held memory, too";
  const auto probe = memory::HeldProbe::make();
  ASSERT_TRUE(probe);
  loader::Progress progress;
  memory::Ledger ledger(kBlockBytes * 4);
  std::atomic<int> ticks = 0;
  auto watch = LoadWatch::start(*probe, progress, {.on_tick = [&] { ++ticks; }});
  ASSERT_TRUE(watch);
  auto finished = memory::make_buffer(ledger, memory::Tag::kWeights, kBlockBytes, "weights");
  ASSERT_TRUE(finished);
  progress.finished_bytes = kBlockBytes;
  fill(*finished);
  {
    auto stray = memory::make_buffer(ledger, memory::Tag::kScratch, kBlockBytes, "a kept copy");
    ASSERT_TRUE(stray);
    fill(*stray);
    await(ticks, 3);
  }
  const auto figures = watch->finish(plan_of(source_of(story_folder()), {}).load.sources);
  ASSERT_TRUE(figures);
  EXPECT_GE(figures->num_samples, 3U);
  EXPECT_GE(figures->peak_held_bytes, 2 * kBlockBytes);
  EXPECT_GE(figures->peak_over_finished_bytes, kBlockBytes);
  EXPECT_LT(figures->peak_over_finished_bytes, 2 * kBlockBytes) << "finished weights are credited";
  EXPECT_LT(figures->held_bytes, 2 * kBlockBytes) << "the copy is gone at the end";
}

TEST(LoadWatch, DoesNotTickAfterItWasStopped) {
  const auto probe = memory::HeldProbe::make();
  ASSERT_TRUE(probe);
  loader::Progress progress;
  std::atomic<int> ticks = 0;
  auto watch = LoadWatch::start(*probe, progress, {.on_tick = [&] { ++ticks; }});
  ASSERT_TRUE(watch);
  await(ticks, 1);
  watch->stop();
  const int stopped_at = ticks.load();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(ticks.load(), stopped_at);
}

TEST(LoadWatch, SamplesAtLeastFiftyTimesASecond) {
  const auto probe = memory::HeldProbe::make();
  ASSERT_TRUE(probe);
  loader::Progress progress;
  std::atomic<int> ticks = 0;
  const auto begin = std::chrono::steady_clock::now();
  auto watch = LoadWatch::start(*probe, progress, {.on_tick = [&] { ++ticks; }});
  ASSERT_TRUE(watch);
  await(ticks, 20);
  // 20 samples at 50 Hz are 400 ms; ten times that for a machine that is busy with other things.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
}

// A machine whose memory others have taken: half a gibibyte is left, 8 GiB are still to come.
Result<memory::PressureSample> crowded_machine() {
  memory::PressureSample sample;
  sample.machine = {.total_bytes = std::uint64_t{16} << 30,
                    .available_bytes = std::uint64_t{512} << 20,
                    .cgroups = {}};
  return sample;
}

TEST(LoadWatch, StopsALoadThatTheMachineHasNoRoomForAndNothingIsHeldThen) {
  const auto probe = memory::HeldProbe::make();
  ASSERT_TRUE(probe);
  loader::Progress progress;
  Source source = source_of(story_folder());
  const RunPlan plan = plan_of(source, {});
  memory::Ledger ledger(plan.budget.limit_bytes);
  auto watch = LoadWatch::start(
      *probe, progress,
      {.load_peak_bytes = std::uint64_t{8} << 30, .read_pressure = crowded_machine});
  ASSERT_TRUE(watch);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!progress.pressed.load() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto engine = Engine::start(std::move(source), plan, ledger, &progress);
  watch->stop();
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kPressure);
  EXPECT_EQ(info(engine.error().code).exit_status, 10);
  EXPECT_EQ(ledger.held_bytes(), 0U);
  EXPECT_EQ(watch->pressure().find("8.00 GiB still to come, only 512.0 MiB free"), 0U)
      << watch->pressure();
}

TEST(LoadWatch, LetsALoadGoOnWhereNobodyCanSayHowTheMachineDoes) {
  const auto probe = memory::HeldProbe::make();
  ASSERT_TRUE(probe);
  loader::Progress progress;
  std::atomic<int> ticks = 0;
  const auto unknown = []() -> Result<memory::PressureSample> {
    return Error{.code = Code::kIo, .thing = "/proc/meminfo"};
  };
  auto watch = LoadWatch::start(*probe, progress,
                                {.on_tick = [&] { ++ticks; },
                                 .load_peak_bytes = std::uint64_t{8} << 30,
                                 .read_pressure = unknown});
  ASSERT_TRUE(watch);
  await(ticks, 50);
  watch->stop();
  EXPECT_FALSE(progress.pressed.load());
  EXPECT_EQ(watch->pressure(), "");
}

}  // namespace
}  // namespace lode::engine
