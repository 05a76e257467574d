#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lode/engine/prepare_run.h"
#include "lode/engine/target_fit.h"
#include "lode/engine/test_engine.h"
#include "lode/layout/expert_record.h"
#include "lode/memory/buffer.h"
#include "tests/support/checkpoint_files.h"

// What is alive when weights have been made ready: a walk over all that the ledger holds. Every
// byte of it is a tensor's in its prepared form, or the little that lies between two of them.

namespace lode::engine {
namespace {

using families::Role;
using memory::Tag;
using tensor::Layout;

constexpr std::uint64_t kMostBetween = layout::kRecordAlignment;  // large tensors begin on pages

// Where the form is none that the kernels read: as WeightSet promises them.
bool is_prepared(const tensor::Meta& meta, Role role) {
  if (meta.layout == Layout::kPanels || meta.layout == Layout::kGateUpPanels) return true;
  return role == Role::kTokenEmbedding || meta.encoding == formats::kPlainF32;
}

// The bytes of a stage's slabs, tensor by tensor: each where and how the plan has it, no two in the
// same place, and no room between two of them for a third.
std::uint64_t walk(const loader::WeightSet& weights, const loader::StagePlan& stage) {
  std::vector<loader::TensorPlace> places = stage.places;
  std::ranges::sort(places, {}, &loader::TensorPlace::offset_bytes);
  const std::byte* slab = nullptr;
  std::uint64_t end = 0;
  for (const loader::TensorPlace& place : places) {
    const auto view =
        stage.layer == loader::StagePlan::kModel
            ? weights.model_weight(place.role)
            : weights.layer_weight(static_cast<std::uint32_t>(stage.layer), place.role);
    const std::string what = stage.name + " " + std::string(families::name(place.role));
    EXPECT_EQ(view.meta(), place.meta) << what;
    EXPECT_TRUE(is_prepared(view.meta(), place.role)) << what;
    EXPECT_EQ(view.bytes().size(), place.bytes) << what;
    if (slab == nullptr) slab = view.data() - place.offset_bytes;
    EXPECT_EQ(view.data(), slab + place.offset_bytes) << what;
    EXPECT_GE(place.offset_bytes, end) << what;
    EXPECT_LT(place.offset_bytes - end, kMostBetween) << what;
    end = place.offset_bytes + place.bytes;
  }
  EXPECT_LT(stage.slab_bytes - end, kMostBetween) << stage.name;
  std::uint64_t bytes = memory::mapped_bytes(stage.slab_bytes);
  if (!stage.bank) return bytes;
  const loader::ExpertBank& bank = weights.experts(static_cast<std::uint32_t>(stage.layer));
  EXPECT_EQ(bank.bytes.size(), bank.num_experts * bank.record.record_bytes);
  return bytes + memory::mapped_bytes(bank.bytes.size());
}

void expect_only_prepared_bytes(const std::filesystem::path& folder) {
  const TestEngine test = start_engine(folder, small_settings());
  std::uint64_t weights = 0;
  for (const loader::StagePlan& stage : test.plan.load.stages) {
    weights += walk(test->weights(), stage);
  }
  EXPECT_EQ(test.ledger->held_bytes(Tag::kWeights), weights);
  EXPECT_EQ(test.ledger->held_bytes(Tag::kStaging), 0U);
  // What else is held is the run's own, to the byte.
  const memory::TagBytes& planned = test.plan.stages.back().held_bytes;
  for (const Tag tag : {Tag::kKvCache, Tag::kScratch, Tag::kMetadata, Tag::kPageTables}) {
    EXPECT_EQ(test.ledger->held_bytes(tag), of(planned, tag)) << memory::name(tag);
  }
}

class EveryModel : public ::testing::TestWithParam<std::string> {
 protected:
  static std::filesystem::path folder() {
    return GetParam() == "story" ? story_folder() : golden_folder(GetParam());
  }
};

TEST_P(EveryModel, IsPreparedToTheLastLiveByteWhenItHasBeenLoaded) {
  expect_only_prepared_bytes(folder());
}

TEST_P(EveryModel, IsPreparedToTheLastLiveByteFromEveryTargetThatRuns) {
  const Source source = source_of(folder());
  std::size_t seen = 0;
  for (const TargetFit& fit : target_fits(source.binding)) {
    if (!fit.possible()) continue;
    SCOPED_TRACE(targets::name(fit.target));
    ++seen;
    const testing_support::TempFolder out;
    const loader::EngineChoice choice{.target = fit.target, .options = {}, .experts = {}};
    const auto run =
        plan_prepare(source, {}, test_machine(), {.out = out.path() / "out", .choice = choice});
    ASSERT_TRUE(run) << to_string(run.error());
    memory::Ledger ledger(run->budget.limit_bytes);
    ASSERT_TRUE(run_prepare(*run, ledger));
    EXPECT_EQ(ledger.held_bytes(), 0U);  // of a preparation nothing stays
    expect_only_prepared_bytes(out.path() / "out");
  }
  EXPECT_GT(seen, 1U);
}

INSTANTIATE_TEST_SUITE_P(LiveBytes, EveryModel,
                         ::testing::Values("story", "models/qwen3_moe", "models/gpt_oss"));

}  // namespace
}  // namespace lode::engine
