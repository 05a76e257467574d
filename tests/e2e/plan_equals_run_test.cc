// The plan of a run and the ledger of that run are one thing: in every storage, mode and way to
// load.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <tuple>

#include "lode/base/fmt.h"
#include "lode/engine/engine.h"
#include "lode/engine/receipt.h"
#include "lode/engine/stage_json.h"
#include "lode/json/json.h"
#include "tests/support/checkpoint_files.h"
#include "tools/synth/shape.h"
#include "tools/synth/write.h"

namespace lode {
namespace {

using synth::WeightFormat;

struct StoredAs {
  const char* name;
  WeightFormat format;
  const char* preset;
};

constexpr StoredAs kStorages[] = {{"nvfp4", WeightFormat::kNvfp4, "tiny"},
                                  {"nvfp4_ct", WeightFormat::kNvfp4Ct, "tiny"},
                                  {"mxfp4", WeightFormat::kMxfp4, "tiny"},
                                  {"mxfp4_gpt_oss", WeightFormat::kMxfp4, "tiny-gpt-oss"},
                                  {"fp8_block", WeightFormat::kFp8Block, "tiny"},
                                  {"fp8_tensor", WeightFormat::kFp8Tensor, "tiny"},
                                  {"bf16", WeightFormat::kBf16, "tiny"}};

class Storage : public testing::TestWithParam<StoredAs> {
 protected:
  void SetUp() override {
    synth::Recipe recipe;
    recipe.shape = *synth::preset(GetParam().preset);
    recipe.format = GetParam().format;
    recipe.shards = 2;
    const auto written =
        synth::write_checkpoint(recipe, synth::HashSource(1), folder_.path(), std::nullopt, 1);
    ASSERT_TRUE(written) << to_string(written.error());
  }
  engine::Source source() const {
    auto source = engine::open_source(folder_.path());
    EXPECT_TRUE(source) << to_string(source.error());
    LODE_CHECK(source, "a checkpoint of our own that cannot be opened");
    return *std::move(source);
  }

  testing_support::TempFolder folder_;
};

engine::Settings settings_of(ops::Mode mode, loader::DenseFormat dense, std::uint32_t threads) {
  engine::Settings settings;
  settings.context_tokens = 100;
  settings.mode = mode;
  settings.threads = threads;
  settings.load.workers = threads;
  settings.load.dense = dense;
  return settings;
}

Result<engine::RunPlan> plan_of(const engine::Source& source, const engine::Settings& settings) {
  LODE_TRY(const memory::MachineMemory machine, memory::read_machine_memory());
  return engine::plan_run(source, settings, machine);
}

// Loads, lets it work a little, and compares.
void check_run(engine::Source source, const engine::Settings& settings) {
  const auto plan = plan_of(source, settings);
  ASSERT_TRUE(plan) << to_string(plan.error());
  memory::Ledger ledger(plan->budget.limit_bytes);
  const auto engine = engine::Engine::start(std::move(source), *plan, ledger);
  ASSERT_TRUE(engine) << to_string(engine.error());
  const std::vector<std::int32_t> ids = {1, 2, 3, 4, 5};
  const Status done = (*engine)->model().forward(ids, (*engine)->cache(), model::Logits::kLast,
                                                 (*engine)->logits());
  ASSERT_TRUE(done) << to_string(done.error());
  const engine::Receipt receipt = engine::make_receipt(*plan, (*engine)->source(), ledger);
  EXPECT_EQ(json::dump(engine::as_json(receipt.actual), 1),
            json::dump(engine::as_json(plan->stages), 1));
  EXPECT_TRUE(receipt.as_planned());
  EXPECT_EQ(ledger.peak_bytes(), plan->peak_bytes());
}

TEST_P(Storage, ThePlanIsTheLedgerOfTheRun) {
  for (const ops::Mode mode : {ops::Mode::kFast, ops::Mode::kExact}) {
    for (const auto dense : {loader::DenseFormat::kAsStored, loader::DenseFormat::kInt8}) {
      for (const std::uint32_t threads : {1U, 2U, 4U}) {
        SCOPED_TRACE(fmt::format("{}, {}, {} threads", mode == ops::Mode::kFast ? "fast" : "exact",
                                 dense == loader::DenseFormat::kInt8 ? "int8" : "as stored",
                                 threads));
        check_run(source(), settings_of(mode, dense, threads));
      }
    }
  }
}

TEST_P(Storage, EveryRefusedReservationLeavesNothingHeld) {
  const engine::Settings settings =
      settings_of(ops::Mode::kFast, loader::DenseFormat::kAsStored, 2);
  for (std::uint64_t refused_idx = 0;; ++refused_idx) {
    ASSERT_LT(refused_idx, 1000U);
    engine::Source opened = source();
    const auto plan = plan_of(opened, settings);
    ASSERT_TRUE(plan) << to_string(plan.error());
    memory::FailingLedger ledger(plan->budget.limit_bytes, refused_idx);
    const auto engine = engine::Engine::start(std::move(opened), *plan, ledger);
    if (!ledger.refused()) {
      EXPECT_TRUE(engine);
      return;
    }
    ASSERT_FALSE(engine) << refused_idx;
    EXPECT_EQ(engine.error().code, Code::kOverBudget) << refused_idx;
    EXPECT_EQ(ledger.held_bytes(), 0U) << refused_idx;
  }
}

TEST_P(Storage, OneByteUnderThePeakIsRefused) {
  engine::Settings settings = settings_of(ops::Mode::kFast, loader::DenseFormat::kAsStored, 2);
  engine::Source opened = source();
  const auto roomy = plan_of(opened, settings);
  ASSERT_TRUE(roomy);
  settings.memory_bytes = roomy->peak_bytes();
  EXPECT_TRUE(plan_of(opened, settings)->fits());
  settings.memory_bytes = roomy->peak_bytes() - 1;
  const auto plan = plan_of(opened, settings);
  ASSERT_TRUE(plan);
  memory::Ledger ledger(plan->budget.limit_bytes);
  loader::Progress progress;
  const auto engine = engine::Engine::start(std::move(opened), *plan, ledger, &progress);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kOverBudget);
  EXPECT_EQ(progress.total_bytes.load(), 0U) << "no load began";
}

INSTANTIATE_TEST_SUITE_P(All, Storage, testing::ValuesIn(kStorages),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lode
