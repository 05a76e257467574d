#include "lode/engine/receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/engine/test_engine.h"

namespace lode::engine {
namespace {

using ::testing::ContainsRegex;

Receipt some_receipt() {
  Receipt receipt;
  receipt.limit_bytes = 1000;
  receipt.peak_bytes = 900;
  receipt.load_us = 2'000'000;
  receipt.source_bytes = 4'000'000'000;
  receipt.planned = {memory::StageUse{.name = "scan", .peak_total_bytes = 900}};
  receipt.actual = receipt.planned;
  receipt.kernel.num_samples = 3;
  return receipt;
}

TEST(Receipt, SaysNoWhereOneByteOfOneStageDiffers) {
  Receipt receipt = some_receipt();
  EXPECT_TRUE(receipt.as_planned());
  EXPECT_THAT(as_text(receipt), ContainsRegex("ledger equals plan +yes\n"));
  receipt.actual[0].peak_bytes[2] += 1;
  EXPECT_FALSE(receipt.as_planned());
  EXPECT_THAT(as_text(receipt), ContainsRegex("ledger equals plan +NO\n"));
  EXPECT_FALSE(*as_json(receipt).find("as_planned")->as_bool());
}

TEST(Receipt, SaysNoWhereAStageIsMissing) {
  Receipt receipt = some_receipt();
  receipt.actual.clear();
  EXPECT_FALSE(receipt.as_planned());
}

TEST(Receipt, GivesTheRateOfTheLoadInBytesOfTheFiles) {
  EXPECT_THAT(as_text(some_receipt()), ContainsRegex("load, seconds +2.00 +2.00 GB/s"));
}

TEST(Receipt, LeavesOutWhatWasNotMeasured) {
  Receipt receipt = some_receipt();
  receipt.kernel.num_samples = 0;
  receipt.run.start = "map";  // nothing is read for it, so there is no rate
  const std::string text = as_text(receipt);
  for (const char* const left_out : {"by the kernel", "seen", "page cache", "GB/s"}) {
    EXPECT_EQ(text.find(left_out), std::string::npos) << text;
  }
  const json::Value kernel = *as_json(receipt).find("kernel");
  for (const char* const name :
       {"peak_held_bytes", "peak_over_finished_bytes", "peak_total_bytes", "source_cache_bytes"}) {
    EXPECT_TRUE(kernel.find(name)->is_null()) << name;
  }
  receipt.kernel.source_cache_bytes = 0;  // measured: none
  EXPECT_THAT(as_text(receipt), ContainsRegex("sources left in the page cache +0 "));
}

TEST(Receipt, HasTheNumbersOfTheRun) {
  Settings settings;
  settings.context_tokens = 32;
  const TestEngine engine = start_engine(story_folder(), settings);
  const Receipt receipt = make_receipt(engine.plan, engine->source(), *engine.ledger);
  EXPECT_EQ(receipt.limit_bytes, engine.ledger->limit_bytes());
  EXPECT_EQ(receipt.peak_bytes, engine.plan.peak_bytes());
  EXPECT_EQ(receipt.weight_bytes, engine->weights().weight_bytes());
  EXPECT_EQ(receipt.padding_bytes, engine->weights().padding_bytes());
  EXPECT_EQ(receipt.source_bytes, engine->source().index.tensor_bytes());
  EXPECT_EQ(receipt.planned.size(), receipt.actual.size());
}

}  // namespace
}  // namespace lode::engine
