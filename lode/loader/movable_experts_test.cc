#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "lode/base/fmt.h"
#include "lode/loader/execute.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/synthetic_weights.h"

namespace lode::loader {
namespace {

using families::Role;
using testing_support::ExpertStorage;
using testing_support::SyntheticWeights;
using testing_support::TempFolder;

std::uint64_t number(const std::string& hex) { return std::strtoull(hex.c_str(), nullptr, 16); }

/// Whether the kernel lets this process write where `bytes` begin.
bool may_write(std::span<const std::byte> bytes) {
  const std::uint64_t address = number(fmt::format("{}", fmt::ptr(bytes.data())));
  std::ifstream maps("/proc/self/maps");
  std::string line, range, rights;
  while (std::getline(maps, line)) {
    std::istringstream(line) >> range >> rights;
    const std::size_t dash = range.find('-');
    if (address < number(range.substr(0, dash)) || address >= number(range.substr(dash + 1)))
      continue;
    return rights.find('w') != std::string::npos;
  }
  ADD_FAILURE() << "nothing is mapped there";
  return false;
}

class MovableExperts : public testing::TestWithParam<ExpertStorage> {
 protected:
  Result<WeightSet> load(memory::Ledger& ledger, bool movable) {
    LODE_TRY(const auto index, source_.index());
    const LoadPolicy policy{.movable_experts = movable};
    LODE_TRY(const LoadPlan plan, plan_load(source_.binding(), source_.spec(), index, policy));
    LODE_TRY(const auto engine, make_engine(plan));
    return execute(plan, source_.binding(), ledger, *engine);
  }

  TempFolder folder_;
  SyntheticWeights source_{{.storage = GetParam(), .bias = true},
                           folder_.path() / "model.safetensors"};
  memory::Ledger ledger_{4 * kGiB}, other_{4 * kGiB};
};

TEST_P(MovableExperts, AreTheBytesOfTheBankAndCostNothing) {
  auto fixed = load(ledger_, false), movable = load(other_, true);
  ASSERT_TRUE(fixed && movable);
  EXPECT_EQ(ledger_.held_bytes(), other_.held_bytes());
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    EXPECT_TRUE(fixed->writable_experts(layer).empty());
    const std::span<std::byte> records = movable->writable_experts(layer);
    ASSERT_EQ(records.data(), movable->experts(layer).bytes.data());
    ASSERT_EQ(records.size(), movable->experts(layer).bytes.size());
    EXPECT_TRUE(std::ranges::equal(records, fixed->experts(layer).bytes));
  }
}

TEST_P(MovableExperts, LeaveEverythingElseSealed) {
  auto fixed = load(ledger_, false), movable = load(other_, true);
  ASSERT_TRUE(fixed && movable);
  EXPECT_FALSE(may_write(fixed->experts(0).bytes));
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    EXPECT_TRUE(may_write(movable->experts(layer).bytes));
    EXPECT_FALSE(may_write(movable->layer_weight(layer, Role::kQuery).bytes()));
    EXPECT_FALSE(may_write(movable->layer_weight(layer, Role::kRouter).bytes()));
  }
  EXPECT_FALSE(may_write(movable->model_weight(Role::kTokenEmbedding).bytes()));
}

INSTANTIATE_TEST_SUITE_P(Loader, MovableExperts,
                         testing::Values(ExpertStorage::kNvfp4, ExpertStorage::kFp8Block,
                                         ExpertStorage::kBf16));

}  // namespace
}  // namespace lode::loader
