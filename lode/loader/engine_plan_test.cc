#include "lode/loader/engine_plan.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "lode/loader/checksum_sink.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/execute.h"
#include "lode/loader/expert_reader.h"
#include "lode/loader/plan.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/synthetic_weights.h"

namespace lode::loader {
namespace {

using testing_support::ExpertStorage;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

// 256 x 192 codes of a byte are whole blocks: an expert that begins elsewhere in one touches one
// more.
constexpr testing_support::SyntheticShape kWholeBlocks{.storage = ExpertStorage::kFp8Tensor,
                                                       .layers = 1};

class SlotsOfExperts : public testing::Test {
 protected:
  // The three matrices of an expert begin so far behind a block's beginning.
  ExpertSource& put_behind(std::size_t expert_idx, std::uint64_t behind) {
    ExpertSource& expert = weights_.binding().experts[0][expert_idx];
    for (MatrixSource* const matrix : {&expert.gate, &expert.up, &expert.down}) {
      std::uint64_t& offset = matrix->codes.offset_bytes;
      offset = offset / io::kBlockBytes * io::kBlockBytes + behind;
    }
    return expert;
  }
  Result<EnginePlan> plan(std::vector<std::uint32_t> chosen = {}) {
    return plan_engine(weights_.binding(), {targets::Target::kMarlin, {}, std::move(chosen)}, 1);
  }

  TempFolder folder_;
  SyntheticWeights weights_{kWholeBlocks, folder_.path() / "model.safetensors"};
};

TEST_F(SlotsOfExperts, AreAsLargeWhereverInABlockAnExpertBegins) {
  const std::uint64_t whole = ExpertReader::slot_bytes(put_behind(0, 0), kCodeNeeds);
  EXPECT_GE(whole, 3 * 256 * 192U);
  for (const std::uint64_t behind : {1U, 64U, 2048U, 4095U}) {
    EXPECT_EQ(ExpertReader::slot_bytes(put_behind(0, behind), kCodeNeeds), whole) << behind;
  }
}

TEST_F(SlotsOfExperts, HoldEveryExpertWhicheverIsTheFirst) {
  const std::vector<std::uint32_t> chosen{0, 1, 2};  // behind the last one the file may end
  for (const std::uint32_t whole : {0U, 2U}) {
    for (const std::uint32_t expert : chosen) {
      put_behind(expert, expert == whole ? 0 : 4095);
    }
    auto plan = this->plan(chosen);
    ASSERT_TRUE(plan) << to_string(plan.error());
    plan->num_slots = 1;  // as where an expert is large
    const auto index = weights_.index();
    const auto dense = plan_load(weights_.binding(), weights_.spec(), *index, {});
    ASSERT_TRUE(dense) << to_string(dense.error());
    auto engine = make_engine(*dense);
    ASSERT_TRUE(engine);
    memory::Ledger ledger(kGiB);
    ChecksumSink sink;
    const Status made =
        stream_engine(*plan, weights_.binding(), {ledger, **engine, sink, nullptr, {}, nullptr});
    EXPECT_TRUE(made) << to_string(made.error());
  }
}

TEST_F(SlotsOfExperts, AreOfTheLargestExpertThatIsChosen) {
  auto& experts = weights_.binding().experts[0];
  const auto largest = plan();
  ASSERT_TRUE(largest);
  experts[2].gate.codes.outer_stride_bytes *= 5;  // rows that lie far apart
  const auto larger = plan();
  ASSERT_TRUE(larger);
  EXPECT_GE(larger->slot_bytes, 191 * 5 * 256U);
  EXPECT_LT(largest->slot_bytes, 191 * 5 * 256U);
  const auto others = plan({0, 1, 3});
  ASSERT_TRUE(others);
  EXPECT_EQ(others->slot_bytes, largest->slot_bytes);
}

}  // namespace
}  // namespace lode::loader
