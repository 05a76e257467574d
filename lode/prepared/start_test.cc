#include "lode/prepared/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "lode/loader/execute.h"
#include "lode/prepared/chunk_check.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/prepared_writer.h"
#include "tests/support/synthetic_weights.h"

namespace lode::prepared {
namespace {

using loader::LoadPlan;
using loader::WeightSet;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing_support::ExpertStorage;
using testing_support::SyntheticShape;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

constexpr std::uint64_t kRoomy = 4 * kGiB;

/// A synthetic model, loaded as usual and written as a prepared checkpoint.
class Prepared {
 public:
  explicit Prepared(const SyntheticShape& shape)
      : source_(shape, source_folder_.path() / "model.safetensors") {
    auto index = source_.index();
    LODE_CHECK(index, "a synthetic shard that cannot be opened");
    auto plan = loader::plan_load(source_.binding(), source_.spec(), *index, {});
    LODE_CHECK(plan, "a synthetic load that cannot be planned");
    plan_ = *std::move(plan);
    auto engine = loader::make_engine(plan_);
    LODE_CHECK(engine, "no engine");
    auto weights = loader::execute(plan_, source_.binding(), ledger_, **engine);
    LODE_CHECK(weights, "a synthetic load that fails");
    weights_ = *std::move(weights);
    testing_support::write_prepared(folder_.path(), plan_, weights_);
  }

  std::filesystem::path folder() const { return folder_.path(); }
  std::filesystem::path data() const { return folder_.path() / data_file_name(0); }
  const LoadPlan& plan() const { return plan_; }
  const WeightSet& weights() const { return weights_; }
  Checkpoint open() const {
    auto checkpoint = prepared::open(folder(), Verification::kHeader);
    LODE_CHECK(checkpoint, "a prepared checkpoint that cannot be opened");
    return *std::move(checkpoint);
  }

 private:
  TempFolder source_folder_;
  TempFolder folder_;
  SyntheticWeights source_;
  LoadPlan plan_;
  memory::Ledger ledger_{kRoomy};
  WeightSet weights_;
};

const SyntheticShape kShape{ExpertStorage::kNvfp4, 3, 5, 256, 192, 512, true};
// Several chunks in a bank: 48 experts of 3 x 512 x 256 numbers in BF16.
const SyntheticShape kLarge{ExpertStorage::kBf16, 2, 48, 512, 256, 512, false};

void expect_same(const WeightSet& a, const WeightSet& b, const LoadPlan& plan) {
  for (const loader::StagePlan& stage : plan.stages) {
    EXPECT_EQ(testing_support::dense_slab(a, stage), testing_support::dense_slab(b, stage))
        << stage.name;
    EXPECT_TRUE(std::ranges::equal(testing_support::bank_slab(a, stage),
                                   testing_support::bank_slab(b, stage)))
        << stage.name;
    for (const loader::TensorPlace& place : stage.places) {
      if (stage.layer < 0) {
        EXPECT_EQ(a.model_weight(place.role).meta(), b.model_weight(place.role).meta());
      } else {
        const auto layer = static_cast<std::uint32_t>(stage.layer);
        EXPECT_EQ(a.layer_weight(layer, place.role).meta(),
                  b.layer_weight(layer, place.role).meta());
        EXPECT_EQ(a.experts(layer).record, b.experts(layer).record);
      }
    }
  }
  EXPECT_EQ(a.weight_bytes(), b.weight_bytes());
  EXPECT_EQ(a.padding_bytes(), b.padding_bytes());
}

std::vector<StartPolicy> all_policies() {
  std::vector<StartPolicy> policies;
  for (const Start start : {Start::kMap, Start::kRead}) {
    for (const Verification verification : {Verification::kNone, Verification::kHeader,
                                            Verification::kSampled, Verification::kFull}) {
      policies.push_back({start, verification, 2});
    }
  }
  return policies;
}

std::string text(const StartPolicy& policy) {
  return std::string(name(policy.start)) + " " + std::string(name(policy.verification));
}

void flip(const std::filesystem::path& path, std::uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
}

class EveryStorage : public ::testing::TestWithParam<ExpertStorage> {};

TEST_P(EveryStorage, GivesTheBytesOfTheLoadWhicheverWayItStarts) {
  SyntheticShape shape = kShape;
  shape.storage = GetParam();
  const Prepared prepared(shape);
  const Checkpoint checkpoint = prepared.open();
  for (const StartPolicy& policy : all_policies()) {
    memory::Ledger ledger(kRoomy);
    const LoadPlan plan = load_plan(checkpoint, policy);
    auto weights = start(checkpoint, plan, policy, ledger);
    ASSERT_TRUE(weights) << text(policy) << ": " << to_string(weights.error());
    expect_same(*weights, prepared.weights(), prepared.plan());
  }
}

INSTANTIATE_TEST_SUITE_P(Prepared, EveryStorage,
                         ::testing::Values(ExpertStorage::kNvfp4, ExpertStorage::kNvfp4Transposed,
                                           ExpertStorage::kMxfp4Interleaved,
                                           ExpertStorage::kFp8Block, ExpertStorage::kBf16,
                                           ExpertStorage::kBf16Transposed));

TEST(PreparedStart, LedgerIsWhatThePlanSaidByteForByte) {
  const Prepared prepared(kLarge);
  const Checkpoint checkpoint = prepared.open();
  for (const StartPolicy& policy : all_policies()) {
    const LoadPlan plan = load_plan(checkpoint, policy);
    EXPECT_EQ(plan.weight_bytes(), prepared.plan().weight_bytes());
    EXPECT_EQ(plan.page_table_bytes(), prepared.plan().page_table_bytes());
    memory::Ledger ledger(plan.peak_bytes());
    const auto weights = start(checkpoint, plan, policy, ledger);
    ASSERT_TRUE(weights) << text(policy) << ": " << to_string(weights.error());
    EXPECT_EQ(ledger.stages(), plan.expected_stages()) << text(policy);
    EXPECT_EQ(ledger.peak_bytes(), plan.peak_bytes()) << text(policy);
  }
}

TEST(PreparedStart, MappingHoldsTheWeightsTheirPageTablesAndNothingElse) {
  const Prepared prepared(kShape);
  const LoadPlan plan = load_plan(prepared.open(), {});
  EXPECT_EQ(plan.peak_bytes(), plan.weight_bytes() + plan.page_table_bytes());
}

TEST(PreparedStart, EveryRefusedReservationIsAnErrorThatLeavesNothingHeld) {
  const Prepared prepared(kShape);
  const Checkpoint checkpoint = prepared.open();
  for (const StartPolicy& policy : all_policies()) {
    const LoadPlan plan = load_plan(checkpoint, policy);
    std::uint64_t refused_idx = 0;
    for (;; ++refused_idx) {
      memory::FailingLedger ledger(kRoomy, refused_idx);
      const auto weights = start(checkpoint, plan, policy, ledger);
      if (!ledger.refused()) break;
      ASSERT_FALSE(weights) << text(policy) << " " << refused_idx;
      EXPECT_EQ(weights.error().code, Code::kOverBudget);
      EXPECT_EQ(ledger.held_bytes(), 0U);
    }
    EXPECT_GT(refused_idx, 14U) << "four stages, seven slabs with their tables";
  }
}

TEST(PreparedStart, RefusesOneByteUnderItsPeak) {
  const Prepared prepared(kShape);
  const Checkpoint checkpoint = prepared.open();
  const LoadPlan plan = load_plan(checkpoint, {});
  memory::Ledger ledger(plan.peak_bytes() - 1);
  const auto weights = start(checkpoint, plan, {}, ledger);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, Code::kOverBudget);
}

TEST(PreparedStart, ADamagedChunkIsNamedWhereSumsAreLookedAt) {
  const Prepared prepared(kLarge);
  const Checkpoint checkpoint = prepared.open();
  // The second chunk of the experts of layer 1: one that `sampled` may pass over.
  const auto bank = std::ranges::find_if(checkpoint.index.sections, [](const Section& section) {
    return section.kind == SectionKind::kBank && section.stage_idx == 2;
  });
  ASSERT_GT(bank->num_chunks(), 3U);
  flip(prepared.data(), bank->file_offset_bytes + kChunkBytes + 77);
  const Checkpoint damaged = prepared.open();
  for (const StartPolicy& policy : all_policies()) {
    const bool looks = policy.start == Start::kRead ? policy.verification != Verification::kNone
                                                    : policy.verification == Verification::kFull;
    if (policy.verification == Verification::kSampled && !looks) continue;
    memory::Ledger ledger(kRoomy);
    const auto weights = start(damaged, load_plan(damaged, policy), policy, ledger);
    EXPECT_EQ(weights.has_value(), !looks) << text(policy);
    if (weights) continue;
    EXPECT_EQ(weights.error().code, Code::kInvalidSource);
    EXPECT_EQ(weights.error().thing, "experts of layer 1");
    EXPECT_THAT(weights.error().wanted, HasSubstr(std::to_string(kChunkBytes)));
    EXPECT_THAT(weights.error().where, HasSubstr("weights-00000.bin at byte"));
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

TEST(PreparedStart, SampledLooksAtTheFirstAndTheLastChunkOfEachSection) {
  const Prepared prepared(kLarge);
  const Checkpoint checkpoint = prepared.open();
  const StartPolicy policy{Start::kMap, Verification::kSampled, 2};
  for (const Section& section : checkpoint.index.sections) {
    for (const std::uint64_t at :
         {section.file_offset_bytes, section.file_offset_bytes + section.bytes - 1}) {
      flip(prepared.data(), at);
      const Checkpoint damaged = prepared.open();
      memory::Ledger ledger(kRoomy);
      EXPECT_FALSE(start(damaged, load_plan(damaged, policy), policy, ledger)) << at;
      flip(prepared.data(), at);
    }
  }
}

TEST(PreparedStart, AFileThatChangedAfterItWasOpenedIsRefused) {
  const Prepared prepared(kShape);
  for (const Start kind : {Start::kMap, Start::kRead}) {
    const StartPolicy policy{kind, Verification::kHeader, 2};
    const Checkpoint checkpoint = prepared.open();
    const auto before = std::filesystem::file_size(prepared.data());
    std::filesystem::resize_file(prepared.data(), before / 2);
    memory::Ledger ledger(kRoomy);
    const auto cut = start(checkpoint, load_plan(checkpoint, policy), policy, ledger);
    ASSERT_FALSE(cut) << text(policy);
    EXPECT_EQ(cut.error().code, Code::kSourceChanged);
    EXPECT_THAT(to_string(cut.error()), HasSubstr("weights-00000.bin"));
    std::filesystem::remove(prepared.data());
    const auto gone = start(checkpoint, load_plan(checkpoint, policy), policy, ledger);
    ASSERT_FALSE(gone);
    EXPECT_EQ(ledger.held_bytes(), 0U);
    testing_support::write_prepared(prepared.folder(), prepared.plan(), prepared.weights());
  }
}

TEST(PreparedStart, StopsWhereTheProgressIsTold) {
  const Prepared prepared(kShape);
  const Checkpoint checkpoint = prepared.open();
  for (const StartPolicy& policy : all_policies()) {
    loader::Progress progress;
    progress.cancel = true;
    memory::Ledger ledger(kRoomy);
    const auto weights =
        start(checkpoint, load_plan(checkpoint, policy), policy, ledger, &progress);
    ASSERT_FALSE(weights) << text(policy);
    EXPECT_EQ(weights.error().code, Code::kInterrupted);
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

TEST(PreparedStart, TellsWhatIsFinished) {
  const Prepared prepared(kShape);
  const Checkpoint checkpoint = prepared.open();
  for (const StartPolicy& policy : all_policies()) {
    loader::Progress progress;
    memory::Ledger ledger(kRoomy);
    ASSERT_TRUE(start(checkpoint, load_plan(checkpoint, policy), policy, ledger, &progress));
    EXPECT_EQ(progress.finished_bytes.load(), checkpoint.manifest.weight_bytes);
    EXPECT_EQ(progress.total_bytes.load(), checkpoint.manifest.weight_bytes);
    EXPECT_EQ(progress.stage_idx.load(), checkpoint.index.stages.size());
  }
}

TEST(StartWords, AreThoseOfTheFlags) {
  EXPECT_EQ(*parse_start("map"), Start::kMap);
  EXPECT_EQ(*parse_start("read"), Start::kRead);
  EXPECT_EQ(parse_start("copy").error().code, Code::kUsage);
  EXPECT_EQ(*parse_verification("sampled"), Verification::kSampled);
  EXPECT_EQ(parse_verification("").error().code, Code::kUsage);
}

}  // namespace
}  // namespace lode::prepared
