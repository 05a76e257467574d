#include "lode/loader/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "lode/loader/operation_stream.h"
#include "lode/memory/buffer.h"
#include "lode/memory/held_probe.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/sanitizers.h"
#include "tests/support/synthetic_weights.h"

namespace lode::loader {
namespace {

using families::Role;
using testing_support::ExpertStorage;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

class Plan : public testing::Test {
 protected:
  LoadPlan plan(const LoadPolicy& policy = {}) const {
    return *plan_load(source_.binding(), source_.spec(), *source_.index(), policy);
  }

  TempFolder folder_;
  SyntheticWeights source_{{.storage = ExpertStorage::kMxfp4Interleaved, .bias = true},
                           folder_.path() / "model.safetensors"};
};

// Written out by hand for layer 0: hidden 256, 4 experts of 192. One expert: gate and up 12 panels
// each of 2 super-blocks of 17 lines; down 16 panels of 17 + (8 + 1) lines; biases 192, 192 and 256
// floats. Query and its kind: 16 panels of 2 super-blocks of 64 lines each.
TEST_F(Plan, CountsALayerAsDrawn) {
  const LoadPlan plan = this->plan();
  ASSERT_EQ(plan.stages.size(), 3U);
  const StagePlan& layer = plan.stages[1];
  EXPECT_EQ(layer.name, "layer 0");
  const std::uint64_t expert = (2 * 12 * 2 * 17 + 16 * (17 + 9)) * 64 + (192 + 192 + 256) * 4;
  ASSERT_TRUE(layer.bank);
  EXPECT_EQ(layer.bank->record.record_bytes, align_up<std::uint64_t>(expert, 4096));
  EXPECT_EQ(layer.bank->num_experts, 4U);
  std::map<Role, std::uint64_t> bytes;
  for (const TensorPlace& place : layer.places) {
    bytes[place.role] = place.bytes;
    EXPECT_EQ(place.offset_bytes % 64, 0U);
    EXPECT_LE(place.offset_bytes + place.bytes, layer.slab_bytes);
  }
  EXPECT_EQ(bytes.at(Role::kQuery), 16 * 2 * 64 * 64U);
  EXPECT_EQ(bytes.at(Role::kRouter), 4 * 256 * 4U);
  EXPECT_EQ(bytes.at(Role::kMlpNorm), 256 * 4U);
  EXPECT_EQ(layer.mapped_bytes,
            memory::mapped_bytes(layer.slab_bytes) + memory::mapped_bytes(layer.bank->bytes()));
}

TEST_F(Plan, RefusesSlotsOfAnExpertOrOfLayersThatThereAreNot) {
  const auto error = [&](const ExpertSlots& slots) {
    return to_string(
        plan_load(source_.binding(), source_.spec(), *source_.index(), {}, slots).error());
  };
  EXPECT_THAT(error({{0, 4}, {0}}),
              testing::HasSubstr("slot 1 of layer 0: want an expert below 4"));
  EXPECT_THAT(error({{0}}), testing::HasSubstr("want 2 layers, found 1"));
}

TEST_F(Plan, OfAllExpertsKeepsThoseOfSlotsAsIfPlannedForThem) {
  const ExpertSlots slots = {{3, 0, 3}, {1}};
  LoadPlan kept = this->plan();
  ASSERT_TRUE(keep_experts(kept, slots));
  const auto planned = plan_load(source_.binding(), source_.spec(), *source_.index(), {}, slots);
  ASSERT_TRUE(planned);
  EXPECT_EQ(kept.expected_stages(), planned->expected_stages());
  EXPECT_EQ(kept.padding_bytes(), planned->padding_bytes());
  EXPECT_EQ(kept.stages[1].bank->expert_of(2), 3U);
  EXPECT_THAT(to_string(keep_experts(kept, {{0}, {4}}).error()),
              testing::HasSubstr("slot 0 of layer 1"));
  EXPECT_THAT(to_string(keep_experts(kept, {{0}}).error()),
              testing::HasSubstr("want 2 layers, found 1"));
}

TEST_F(Plan, EndsWithTheWeightsAlone) {
  const LoadPlan plan = this->plan();
  const auto stages = plan.expected_stages();
  ASSERT_EQ(stages.size(), plan.stages.size() + 1);
  EXPECT_EQ(stages.back().name, "seal");
  EXPECT_EQ(memory::total(stages.back().held_bytes), plan.weight_bytes() + plan.page_table_bytes());
  EXPECT_EQ(plan.peak_bytes(), plan.weight_bytes() + plan.page_table_bytes() + plan.ring_bytes() +
                                   plan.stack_bytes() +
                                   memory::buffer_cost(plan.ring_bytes()).page_table_bytes);
}

TEST_F(Plan, HasARingNoLargerThanItsTensorsFill) {
  const std::uint64_t bytes = source_.index()->tensor_bytes();
  EXPECT_EQ(plan({.slot_bytes = 2 * kMiB}).policy.num_slots,
            std::clamp<std::uint64_t>(ceil_div(bytes, 2 * kMiB), 2, 8));
  EXPECT_EQ(plan({.num_slots = 3, .slot_bytes = 64 * kKiB}).policy.num_slots, 3U);
  EXPECT_EQ(plan({.num_slots = 1, .slot_bytes = kGiB}).policy.num_slots, 1U);
  EXPECT_EQ(plan({.slot_bytes = kGiB}).policy.num_slots, 2U);
}

TEST_F(Plan, SaysWhatIsNeededAndWhatWouldDo) {
  const LoadPlan plan = this->plan();
  const memory::Ledger ledger(plan.peak_bytes() - 1);
  const Status fits = plan.check_fits(ledger);
  ASSERT_FALSE(fits);
  EXPECT_EQ(fits.error().code, Code::kOverBudget);
  EXPECT_THAT(fits.error().wanted, testing::HasSubstr(std::to_string(plan.peak_bytes())));
  EXPECT_THAT(fits.error().hint, testing::HasSubstr(std::to_string(plan.peak_bytes())));
  EXPECT_TRUE(plan.check_fits(memory::Ledger(plan.peak_bytes())));
}

TEST_F(Plan, ReadsEveryByteOfTheSourceThatCountsAndNoneTwice) {
  const LoadPlan plan = this->plan({.slot_bytes = 128 * kKiB});
  std::uint64_t bytes = 0;
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (const SlotLoad& load : stage_operations(plan, source_.binding(), stage)) {
      for (const SlotRead& read : load.reads) bytes += read.extent.total_bytes();
    }
  }
  // the header is no weight; where small pieces lie far apart up to 256 KiB of a gap are read
  const std::uint64_t weights = plan.sources[0].bytes - kMiB;
  EXPECT_GE(bytes, weights);
  EXPECT_LE(bytes, weights + weights / 8);
}

// Past the page cache whole blocks are read, to memory that lies as the file does. Returns where
// the last block of `load` ends.
std::uint64_t expect_own_blocks(const SlotLoad& load) {
  std::uint64_t next_free = 0;
  for (const SlotRead& read : load.reads) {
    const bool whole = read.extent.count == 1;
    if (whole) {
      EXPECT_EQ(read.slot_offset_bytes % 4096, read.extent.offset_bytes % 4096);
    }
    EXPECT_GE(whole ? read.slot_offset_bytes / 4096 * 4096 : read.slot_offset_bytes, next_free);
    next_free = read.slot_offset_bytes + read.extent.total_bytes();
    if (whole) next_free = align_up<std::uint64_t>(next_free, 4096);
  }
  return next_free;
}

TEST_F(Plan, GivesEachReadTheBlocksOfASlotThatItTouches) {
  const LoadPlan plan = this->plan({.slot_bytes = 128 * kKiB});
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (const SlotLoad& load : stage_operations(plan, source_.binding(), stage)) {
      EXPECT_LE(expect_own_blocks(load), 128 * kKiB);
    }
  }
}

TEST_F(Plan, RefusesSlotsThatAreNoWholeBlocks) {
  const auto refused =
      plan_load(source_.binding(), source_.spec(), *source_.index(), {.slot_bytes = 100'000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUsage);
}

TEST_F(Plan, OfAPolicyInNoWayPossibleIsAUsageError) {
  const auto index = *source_.index();
  const auto refused =
      plan_load(source_.binding(), source_.spec(), index, {.slot_bytes = 4 * kGiB});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUsage);
}

// 58 layers of 256 experts of NVFP4: 178,176 tensors with weights, as in DeepSeek-V3.
TEST(PlanOfManyTensors, IsMadeInLessThanASecondAndIsSmall) {
  if (testing_support::kSanitized) GTEST_SKIP() << "shadow memory counts as held";
  const TempFolder folder;
  SyntheticWeights source({.storage = ExpertStorage::kNvfp4, .layers = 1},
                          folder.path() / "model.safetensors");
  Binding& binding = source.binding();
  binding.experts[0].resize(256, binding.experts[0][0]);
  binding.layers.resize(58, binding.layers[0]);
  binding.experts.resize(58, binding.experts[0]);
  families::ModelSpec spec = source.spec();
  spec.num_layers = 58;
  const auto index = *source.index();
  const auto probe = *memory::HeldProbe::make();
  const auto begin = std::chrono::steady_clock::now();
  const auto plan = plan_load(binding, spec, index, {});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  ASSERT_TRUE(plan);
  EXPECT_LT(*probe.exact_held_bytes(), kMiB);
  OperationStream stream(*plan, binding, 58);
  std::size_t loads = 0;
  while (stream.next()) ++loads;
  EXPECT_GT(loads, 0U);
  EXPECT_LT(*probe.exact_held_bytes(), 4 * kMiB);
}

}  // namespace
}  // namespace lode::loader
