#include "lode/targets/functions.h"

#include <gmock/gmock.h>

#include "lode/targets/test_golden_functions.h"

// What functions say that they take is what they take.

namespace lode::targets {
namespace {

using ::testing::HasSubstr;

struct Case {
  const Function& function;
  json::Object params;
  std::vector<NamedTensor> inputs;

  Result<std::vector<NamedTensor>> run() const {
    return function.run({inputs, json::Value(params), Way::kOutOfPlace});
  }
  void set(std::string_view name, json::Value value) {
    std::erase_if(params, [&](const json::Member& param) { return param.first == name; });
    params.emplace_back(name, std::move(value));
  }
};

// One golden case of each function.
std::vector<Case> cases() {
  const json::Value manifest = testing::read_manifest();
  std::vector<Case> all;
  for (const json::Value& one : *manifest.find("cases")->as_array()) {
    const Function* const function = function_by_name(testing::text_of(one, "function"));
    if (function == nullptr) continue;
    const bool seen =
        std::ranges::any_of(all, [&](const Case& other) { return &other.function == function; });
    if (seen) continue;
    all.push_back(
        {*function, *one.find("params")->as_object(), testing::tensors_of(one, "inputs")});
  }
  return all;
}

TEST(Functions, HaveACaseEach) {
  EXPECT_GE(cases().size() + 1, function_table().size());  // online-nvfp4 has none upstream
}

TEST(Functions, LookAtEveryParamThatTheyList) {
  for (const Case& one : cases()) {
    for (const ParamRow& row : one.function.params) {
      Case wrong = one;
      wrong.set(row.name, json::Object{});
      const auto made = wrong.run();
      ASSERT_FALSE(made) << one.function.name << " does not look at " << row.name;
      EXPECT_THAT(to_string(made.error()), HasSubstr(row.name)) << one.function.name;
    }
  }
}

TEST(Functions, WantWhatTheyNeedAndNothingElse) {
  for (const Case& one : cases()) {
    Case bare = one;
    std::erase_if(bare.params, [&](const json::Member& param) {
      const auto row = std::ranges::find(one.function.params, param.first, &ParamRow::name);
      return row == one.function.params.end() || row->use == ParamUse::kFact;
    });
    EXPECT_TRUE(bare.run()) << one.function.name << " without facts and remarks";
    for (const ParamRow& row : one.function.params) {
      if (row.use != ParamUse::kNeeded) continue;
      Case without = bare;
      std::erase_if(without.params,
                    [&](const json::Member& param) { return param.first == row.name; });
      EXPECT_FALSE(without.run()) << one.function.name << " does not need " << row.name;
    }
  }
}

TEST(Functions, RefuseWordsAndExtentsThatNobodyHas) {
  const std::vector<std::pair<std::string, json::Value>> wrong_params = {
      {"hidden_unpadded", json::Value(0)},          {"hidden_unpadded", json::Value(1 << 20)},
      {"intermediate_unpadded", json::Value(0)},    {"intermediate_unpadded", json::Value(1 << 20)},
      {"activation", json::Value("no_activation")}, {"input_dtype", json::Value("fp7")}};
  for (const auto& [name, value] : wrong_params) {
    std::size_t takers = 0;
    for (const Case& one : cases()) {
      const auto takes = [&wanted = name](const ParamRow& row) { return row.name == wanted; };
      if (std::ranges::none_of(one.function.params, takes)) continue;
      ++takers;
      Case wrong = one;
      wrong.set(name, value);
      const auto made = wrong.run();
      ASSERT_FALSE(made) << one.function.name << " takes a " << name << " that nobody has";
      EXPECT_THAT(to_string(made.error()), HasSubstr("param " + name + ": want "));
    }
    EXPECT_GE(takers, 1U) << name;
  }
}

TEST(Functions, RefuseSizesThatTheTensorsContradict) {
  std::size_t facts = 0;
  for (const Case& one : cases()) {
    for (const json::Member& param : one.params) {
      const auto row = std::ranges::find(one.function.params, param.first, &ParamRow::name);
      if (row == one.function.params.end() || row->use != ParamUse::kFact) continue;
      if (!param.second.is_integer()) continue;
      ++facts;
      Case wrong = one;
      wrong.set(param.first, 999);
      const auto made = wrong.run();
      ASSERT_FALSE(made) << one.function.name << " takes any " << param.first;
      EXPECT_EQ(made.error().code, Code::kUsage);
      EXPECT_EQ(made.error().thing, "param " + param.first);
      EXPECT_EQ(made.error().found, "999");
    }
  }
  EXPECT_GT(facts, 60U);
}

TEST(Functions, WantTheInputsThatTheyNeed) {
  for (const Case& one : cases()) {
    for (const InputRow& row : one.function.inputs) {
      if (!row.needed || row.name == kAnyName) continue;
      Case without = one;
      std::erase_if(without.inputs,
                    [&](const NamedTensor& tensor) { return tensor.name == row.name; });
      // An FP8 matrix has its scales under one name or another.
      EXPECT_FALSE(without.run()) << one.function.name << " does not need " << row.name;
    }
    for (const NamedTensor& tensor : one.inputs) {
      EXPECT_TRUE(takes_input(one.function, tensor.name)) << one.function.name << tensor.name;
    }
  }
}

TEST(Functions, RefuseNamesThatTheyHaveNoRowFor) {
  const Function& repack = **want_function("marlin-repack");
  EXPECT_TRUE(check_params(repack, {{"num_bits", 4}, {"size_k", 64}}));
  const Status foo = check_params(repack, {{"num_bits", 4}, {"foo", 1}});
  ASSERT_FALSE(foo);
  EXPECT_EQ(foo.error().code, Code::kUsage);
  EXPECT_THAT(to_string(foo.error()), HasSubstr("foo"));
  EXPECT_THAT(foo.error().wanted, HasSubstr("num_bits, is_a_8bit, size_k, size_n"));
  EXPECT_THAT(check_params(repack, {{"num_bit", 4}}).error().hint, HasSubstr("num_bits?"));
  const Function& swap = **want_function("half-swap");
  EXPECT_TRUE(check_inputs(swap, std::vector<std::string>{"w13", "w13_scale"}));
  const Status role = check_inputs(swap, std::vector<std::string>{"w31"});
  ASSERT_FALSE(role);
  EXPECT_EQ(role.error().code, Code::kUsage);
  EXPECT_THAT(role.error().wanted, HasSubstr("w13, w13_scale"));
  EXPECT_THAT(role.error().hint, HasSubstr("did you mean w13?"));
  EXPECT_TRUE(check_inputs(**want_function("scales-128x4"), std::vector<std::string>{"any"}));
}

TEST(Functions, AreFoundByNearNames) {
  const auto none = want_function("marlin-repak");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUsage);
  EXPECT_THAT(none.error().hint, HasSubstr("did you mean marlin-repack?"));
  EXPECT_THAT(none.error().hint, HasSubstr("`lode layout list`"));
}

// Marlin's scales: rows of groups by themselves do not say how many k a group has.
TEST(Functions, RefuseGroupsOfScalesThatDoNotDivideK) {
  for (const json::Value& size_k : {json::Value(63), json::Value()}) {
    const std::vector<NamedTensor> inputs{
        {"scales", formats::Format::kBf16, {4, 64}, std::vector<std::byte>(4 * 64 * 2)}};
    const auto made = function_by_name("marlin-permute-scales")
                          ->run({inputs, json::object({{"size_k", size_k}}), Way::kOutOfPlace});
    ASSERT_FALSE(made);
    EXPECT_THAT(to_string(made.error()),
                HasSubstr("param size_k: want a multiple of the 4 groups"));
  }
}

}  // namespace
}  // namespace lode::targets
