#include "lode/engine/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

const Source& story_source() {
  static const Source source = source_of(story_folder());
  return source;
}
// Every other layer keeps a window only.
const Source& windowed_source() {
  static const Source source = source_of(golden_folder("models/gpt_oss"));
  return source;
}

Settings with_memory(std::uint64_t bytes) {
  Settings settings;
  settings.memory_bytes = bytes;
  settings.threads = 1;
  return settings;
}

PlanReport report(const RunPlan& plan, const Source& source) {
  auto made = report_of(plan, source);
  LODE_CHECK(made, "a test plan that has no report");
  return *std::move(made);
}

TEST(PlanReport, PutsLayersThatTakeTheSameIntoOneRowThatEndsWithTheLast) {
  const RunPlan plan = plan_of(story_source(), {});
  const PlanReport made = report(plan, story_source());
  std::vector<std::string> names;
  for (const PlanRow& row : made.rows) names.push_back(row.stage);
  EXPECT_THAT(names, ::testing::ElementsAre("scan", "model", "layer 0-4", "seal", "work"));
  EXPECT_EQ(made.rows[2].total_bytes, plan.stages[6].peak_total_bytes);
  EXPECT_EQ(plan.stages[6].name, "layer 4");
}

TEST(PlanReport, BreaksARowWhereTheBudgetIsFirstExceeded) {
  const RunPlan all = plan_of(story_source(), with_memory(1 << 30));
  const std::uint64_t third = all.stages[4].peak_total_bytes;  // "layer 2" still fits
  const PlanReport made = report(plan_of(story_source(), with_memory(third)), story_source());
  ASSERT_GE(made.rows.size(), 4U);
  EXPECT_EQ(made.rows[2].stage, "layer 0-2");
  EXPECT_EQ(made.rows[2].first_limit, "-");
  EXPECT_EQ(made.rows[2].headroom_bytes, 0);
  EXPECT_EQ(made.rows[3].stage, "layer 3-4");
  EXPECT_EQ(made.rows[3].first_limit, "--memory");
  EXPECT_LT(made.rows[3].headroom_bytes, 0);
}

TEST(PlanReport, EachRowsPartsMakeItsTotal) {
  for (const Source* source : {&story_source(), &windowed_source()}) {
    for (const PlanRow& row : report(plan_of(*source, {}), *source).rows) {
      EXPECT_EQ(row.final_bytes + row.transient_bytes + row.page_table_bytes, row.total_bytes)
          << row.stage;
    }
  }
}

TEST(PlanReport, NamesTheLeastLimitThatIsExceeded) {
  memory::MachineMemory machine = test_machine();
  machine.cgroups = {{"/small", 20 << 20, 0}};
  const auto plan = plan_run(story_source(), with_memory(std::uint64_t{1} << 40), machine);
  ASSERT_TRUE(plan);
  EXPECT_EQ(report(*plan, story_source()).rows.back().first_limit, "cgroup /small");
}

// A budget just below a break point ends in the stage that it names; the point itself does not.
TEST(PlanReport, BreaksWhereItSaysItDoes) {
  const PlanReport made = report(plan_of(story_source(), with_memory(1 << 30)), story_source());
  ASSERT_FALSE(made.breaks.empty());
  for (const BreakPoint& point : made.breaks) {
    const RunPlan below = plan_of(story_source(), with_memory(point.need_bytes - 1));
    ASSERT_NE(first_over(below), nullptr);
    EXPECT_EQ(first_over(below)->name, point.stage);
    const RunPlan enough = plan_of(story_source(), with_memory(point.need_bytes));
    const memory::StageUse* const at = first_over(enough);
    EXPECT_TRUE(at == nullptr || at->name != point.stage);
  }
}

TEST(PlanReport, SplitsKeysAndValuesIntoFullAndWindowedLayers) {
  const families::ModelSpec& spec = windowed_source().spec;
  const RunPlan plan = plan_of(windowed_source(), {});
  const KvReport kv = report(plan, windowed_source()).kv;
  std::uint32_t windowed = 0;
  for (const families::LayerSpec& layer : spec.layers) windowed += layer.window_tokens > 0 ? 1 : 0;
  ASSERT_GT(windowed, 0U);
  EXPECT_EQ(kv.windowed_layers, windowed);
  EXPECT_EQ(kv.full_layers, spec.num_layers - windowed);
  // Keys and values, f16.
  EXPECT_EQ(kv.bytes_per_token,
            std::uint64_t{2} * spec.num_kv_heads * spec.head_dim * 2 * kv.full_layers);
  // Rings are mapped in whole pages, so the sum of both parts is what the cache maps or less.
  const std::uint64_t both = kv.bytes_per_token * plan.context_tokens + kv.windowed_bytes;
  EXPECT_LE(both, plan.kv_bytes);
  EXPECT_GT(kv.windowed_bytes, 0U);
}

TEST(PlanReport, FindsTheLargestBlock) {
  const RunPlan plan = plan_of(story_source(), {});
  const PlanReport made = report(plan, story_source());
  EXPECT_EQ(made.largest_block_bytes, plan.load.ring_bytes());  // 12 MiB; the model has 10
  EXPECT_EQ(made.largest_block, "ring between disk and weights");
  EXPECT_EQ(made.prepared_bytes, plan.load.weight_bytes());
}

TEST(FitsBarely, IsWithinAFiftiethOfTheBudget) {
  const std::uint64_t peak = plan_of(story_source(), with_memory(1 << 30)).peak_bytes();
  EXPECT_TRUE(fits_barely(plan_of(story_source(), with_memory(peak))));
  EXPECT_TRUE(fits_barely(plan_of(story_source(), with_memory(peak + peak / 50))));
  EXPECT_FALSE(fits_barely(plan_of(story_source(), with_memory(peak + peak / 25))));
  EXPECT_FALSE(fits_barely(plan_of(story_source(), with_memory(peak - 1)))) << "it does not fit";
}

}  // namespace
}  // namespace lode::engine
