#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "lode/engine/receipt.h"
#include "lode/engine/test_engine.h"
#include "lode/prepared/compare.h"
#include "lode/prepared/prepare.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/prepared_writer.h"

// A prepared checkpoint in the place of the one that it was made of.

namespace lode::engine {
namespace {

using prepared::Start;
using prepared::Verification;
using ::testing::HasSubstr;
using testing_support::TempFolder;

// What `lode prepare` does.
void prepare(const std::filesystem::path& folder, const std::filesystem::path& out,
             const loader::LoadPolicy& policy = {}) {
  const Source source = source_of(folder);
  const auto plan = loader::plan_load(source.binding, source.spec, source.index, policy);
  ASSERT_TRUE(plan) << to_string(plan.error());
  auto preparation = prepared::Preparation::open(
      {folder, source.index, source.binding, *plan, source.spec.family}, out, {});
  ASSERT_TRUE(preparation) << to_string(preparation.error());
  memory::Ledger ledger(std::uint64_t{4} << 30);
  const auto report = (*preparation)->run(ledger);
  ASSERT_TRUE(report) << to_string(report.error());
}

std::vector<float> logits_of(const TestEngine& test) {
  const std::vector<std::int32_t> ids = {1, 5, 9, 2, 77, 40, 8, 300};
  const std::span<float> logits = test->logits();
  EXPECT_TRUE(test->model().forward(ids, test->cache(), model::Logits::kAll, logits));
  return {logits.begin(), logits.end()};
}

void expect_same_slabs(const TestEngine& a, const TestEngine& b) {
  for (const loader::StagePlan& stage : a.plan.load.stages) {
    EXPECT_EQ(testing_support::dense_slab(a->weights(), stage),
              testing_support::dense_slab(b->weights(), stage));
    EXPECT_TRUE(std::ranges::equal(testing_support::bank_slab(a->weights(), stage),
                                   testing_support::bank_slab(b->weights(), stage)));
  }
}

const std::vector<prepared::StartPolicy> kPolicies = {{Start::kMap, Verification::kHeader, 2},
                                                      {Start::kMap, Verification::kFull, 2},
                                                      {Start::kRead, Verification::kHeader, 2}};

class EveryCheckpoint : public ::testing::TestWithParam<std::string> {
 protected:
  static std::filesystem::path folder() {
    return GetParam() == "story" ? story_folder() : golden_folder(GetParam());
  }
};

TEST_P(EveryCheckpoint, RunsThePreparedOneToTheSameBits) {
  const TempFolder out;
  prepare(folder(), out.path() / "out");
  const TestEngine usual = start_engine(folder(), small_settings());
  const std::vector<float> wanted = logits_of(usual);
  for (const prepared::StartPolicy& policy : kPolicies) {
    Settings settings = small_settings();
    settings.start = policy;
    const TestEngine test = start_engine(out.path() / "out", settings);
    expect_same_slabs(usual, test);
    EXPECT_EQ(logits_of(test), wanted);
    EXPECT_EQ(test.ledger->stages(), test.plan.stages);
    EXPECT_TRUE(make_receipt(test.plan, test->source(), *test.ledger).as_planned());
    EXPECT_EQ(test.plan.load.weight_bytes(), usual.plan.load.weight_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Prepared, EveryCheckpoint,
                         ::testing::Values("story", "models/qwen3_moe", "models/gpt_oss"));

class PreparedStory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    prepare(story_folder(), out());
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::filesystem::path out() { return folder_->path() / "out"; }

  static std::unique_ptr<TempFolder> folder_;
};
std::unique_ptr<TempFolder> PreparedStory::folder_;

TEST_F(PreparedStory, TellsTheSameStory) {
  Request request{.prompt_ids = {1, 2, 3}, .max_new_tokens = 12};
  request.sampling.seed = 7;
  const TestEngine usual = start_engine(story_folder(), small_settings());
  const TestEngine mapped = start_engine(out(), small_settings());
  const auto wanted = usual->generate(request, nullptr);
  const auto found = mapped->generate(request, nullptr);
  ASSERT_TRUE(wanted);
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_EQ(found->text, wanted->text);
}

TEST_F(PreparedStory, HoldsNoRingAtItsPeak) {
  const RunPlan plan = plan_of(source_of(out()), small_settings());
  EXPECT_TRUE(plan.is_prepared);
  EXPECT_EQ(plan.load.ring_bytes(), 0U);
  EXPECT_LT(plan.peak_bytes(), plan_of(source_of(story_folder()), small_settings()).peak_bytes());
}

TEST_F(PreparedStory, EveryRefusedReservationLeavesNothingHeld) {
  for (std::uint64_t refused_idx = 0;; ++refused_idx) {
    Source source = source_of(out());
    const RunPlan plan = plan_of(source, small_settings());
    memory::FailingLedger ledger(plan.budget.limit_bytes, refused_idx);
    const auto engine = Engine::start(std::move(source), plan, ledger);
    if (!ledger.refused()) break;
    ASSERT_FALSE(engine) << refused_idx;
    EXPECT_EQ(engine.error().code, Code::kOverBudget);
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

TEST_F(PreparedStory, ASettingThatItWasNotPreparedWithIsRefusedWithTheCommand) {
  const Source source = source_of(out());
  Settings settings = small_settings();
  settings.load.dense = loader::DenseFormat::kInt8;
  settings.dense_is_named = true;
  const auto plan = plan_run(source, settings, test_machine());
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kLayoutMismatch);
  EXPECT_THAT(plan.error().hint, HasSubstr("lode prepare DIR OUT --dense int8"));
  settings.load.dense = loader::DenseFormat::kAsStored;
  EXPECT_TRUE(plan_run(source, settings, test_machine()));
}

TEST_F(PreparedStory, IsNotAdvisedToBecomeInt8) {
  const Source source = source_of(out());
  Settings settings = small_settings();
  settings.memory_bytes = 1 << 20;
  const auto changes = advice(plan_of(source, settings), source);
  ASSERT_TRUE(changes) << to_string(changes.error());
  for (const Advice& change : *changes)
    EXPECT_THAT(change.setting, ::testing::Not(HasSubstr("int8")));
}

TEST_F(PreparedStory, MadeInt8RunsAsInt8WhateverIsAskedFor) {
  const TempFolder other;
  loader::LoadPolicy policy;
  policy.dense = loader::DenseFormat::kInt8;
  prepare(story_folder(), other.path() / "int8", policy);
  Settings settings = small_settings();
  settings.load.dense = loader::DenseFormat::kInt8;
  const TestEngine usual = start_engine(story_folder(), settings);
  const TestEngine mapped = start_engine(other.path() / "int8", small_settings());
  expect_same_slabs(usual, mapped);
  EXPECT_EQ(logits_of(mapped), logits_of(usual));
}

TEST_F(PreparedStory, WithTheConfigOfAnotherModelIsRefused) {
  const TempFolder other;
  std::filesystem::copy(out(), other.path() / "out");
  const std::filesystem::path config = other.path() / "out" / "config.json";
  std::string text = file_text(config);
  const std::string key = "\"num_experts\":";
  const std::size_t at = text.find(key);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, text.find_first_of(",}", at) - at, key + " 4");
  std::ofstream(config) << text;
  const auto looked_at = open_source(other.path() / "out");
  ASSERT_FALSE(looked_at);
  EXPECT_THAT(looked_at.error().thing, HasSubstr("config.json"));
  const auto trusted = open_source(other.path() / "out", Verification::kNone);
  ASSERT_FALSE(trusted);
  EXPECT_EQ(trusted.error().code, Code::kInvalidSource);
}

TEST_F(PreparedStory, ComparedWithItsSourceDiffersInNothingOrIsNamedToTheRow) {
  const Source source = source_of(story_folder());
  const auto plan = loader::plan_load(source.binding, source.spec, source.index, {});
  memory::Ledger ledger(std::uint64_t{4} << 30);
  auto checkpoint = prepared::open(out(), Verification::kHeader);
  ASSERT_TRUE(checkpoint);
  const Status same = prepared::compare_with(*checkpoint, *plan, source.binding, ledger);
  EXPECT_TRUE(same) << to_string(same.error());
  // As if expert 1 of layer 0 had been made wrong: its down matrix, first panel.
  const auto bank = std::ranges::find_if(checkpoint->index.sections, [](const auto& section) {
    return section.kind == prepared::SectionKind::kBank;
  });
  const layout::ExpertRecord& record = checkpoint->index.stages[bank->stage_idx].bank->record;
  const std::uint64_t byte = record.record_bytes + record.down_offset_bytes;
  EXPECT_THAT(prepared::what_lies_at(checkpoint->index, *bank, byte),
              HasSubstr("experts of layer 0: expert 1, down, rows 0 to 15, k 0 to 127"));
  EXPECT_THAT(prepared::what_lies_at(checkpoint->index, *bank, 0),
              HasSubstr("expert 0, gate, rows 0 to 15"));
  checkpoint->index.chunk_crcs[bank->first_chunk] ^= 1;
  const Status other = prepared::compare_with(*checkpoint, *plan, source.binding, ledger);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kCheckFailed);
  EXPECT_EQ(other.error().thing, "experts of layer 0");
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

TEST_F(PreparedStory, ADifferentSourceIsNamedToTheTensor) {
  const TempFolder other;
  std::filesystem::copy(out(), other.path() / "out");
  const auto checkpoint = *prepared::open(other.path() / "out", Verification::kNone);
  const Source source = source_of(story_folder());
  const auto plan = loader::plan_load(source.binding, source.spec, source.index, {});
  memory::Ledger ledger(std::uint64_t{4} << 30);
  const loader::TensorPlace& place = checkpoint.index.stages[0].places.back();
  std::fstream file(other.path() / "out" / "weights-00000.bin",
                    std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(place.offset_bytes));
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(place.offset_bytes));
  file.put(byte).flush();
  prepared::Checkpoint damaged = checkpoint;
  damaged.index.chunk_crcs[place.offset_bytes / prepared::kChunkBytes] ^= 1;
  const Status differs = prepared::compare_with(damaged, *plan, source.binding, ledger);
  ASSERT_FALSE(differs);
  EXPECT_THAT(differs.error().thing, HasSubstr(std::string(families::name(place.role))));
  EXPECT_THAT(differs.error().where, HasSubstr("weights-00000.bin at byte"));
}

TEST_F(PreparedStory, UnfinishedSaysHowToGoOn) {
  const TempFolder other;
  std::filesystem::copy(out(), other.path() / "out");
  std::filesystem::remove(other.path() / "out" / "manifest.json");
  const auto source = open_source(other.path() / "out");
  ASSERT_FALSE(source);
  EXPECT_THAT(source.error().hint, HasSubstr("lode prepare"));
}

}  // namespace
}  // namespace lode::engine
