#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/loader/bind_test_support.h"
#include "tools/synth/test_cases.h"

namespace lode::synth {
namespace {

class Loader : public testing::TestWithParam<Case> {};

// Config, names and tensors agree: nothing is missing, left over or in contradiction.
TEST_P(Loader, FindsEveryRoleAndHasNothingToRemark) {
  const Folder folder("bind_" + GetParam().name);
  const Status written = write(GetParam().recipe, folder);
  ASSERT_TRUE(written) << to_string(written.error());
  const auto binding = loader::bind_folder(folder.path());
  ASSERT_TRUE(binding) << to_string(binding.error());
  EXPECT_THAT(binding->notes, testing::IsEmpty());
  EXPECT_THAT(binding->ignored, testing::IsEmpty());
  EXPECT_EQ(binding->experts.size(), GetParam().recipe.shape.layers);
}

INSTANTIATE_TEST_SUITE_P(Storages, Loader, testing::ValuesIn(cases()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace lode::synth
