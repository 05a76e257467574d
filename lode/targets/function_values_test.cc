#include "lode/targets/function_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace lode::targets {
namespace {

using formats::Format;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json::Value params() {
  return json::object({{"size_k", 64},
                       {"gated", true},
                       {"kind", "mxfp4"},
                       {"block", json::Array{json::Value(16), json::Value(32)}},
                       {"clamp", 7.5},
                       {"minus", -1},
                       {"input_dtype", nullptr}});
}

TEST(FunctionParams, AreReadByKind) {
  const json::Value object = params();
  const Params read(object);
  EXPECT_EQ(*read.count("size_k"), 64);
  EXPECT_TRUE(*read.flag("gated"));
  EXPECT_EQ(*read.word("kind"), "mxfp4");
  EXPECT_EQ(*read.number("clamp"), 7.5);
  EXPECT_EQ(*read.number("size_k"), 64);
  EXPECT_THAT(*read.counts("block"), ElementsAre(16, 32));
}

TEST(FunctionParams, NullIsAsAbsentAndTakesTheFallback) {
  const json::Value object = params();
  const Params read(object);
  EXPECT_FALSE(read.has("input_dtype"));
  EXPECT_EQ(*read.word("input_dtype", "none"), "none");
  EXPECT_EQ(*read.count("absent", 3), 3);
  EXPECT_FALSE(*read.flag("absent", false));
  EXPECT_THAT(*read.counts("input_dtype"), ElementsAre());
}

TEST(FunctionParams, OfAnotherKindAreNamedWithWhatWasFound) {
  const json::Value object = params();
  const Params read(object);
  for (const Status& status :
       {Status(read.count("kind").error()), Status(read.count("minus").error()),
        Status(read.count("clamp").error()), Status(read.flag("kind").error()),
        Status(read.word("gated").error()), Status(read.counts("kind").error()),
        Status(read.number("kind").error())}) {
    EXPECT_EQ(status.error().code, Code::kUsage);
    EXPECT_FALSE(status.error().found.empty());
  }
  EXPECT_THAT(to_string(read.count("size_n").error()), HasSubstr("--set size_n="));
  // A fallback is for what is absent, not for what is wrong.
  EXPECT_FALSE(read.count("kind", 1).has_value());
}

TEST(FunctionParams, OfNothingHaveNoMembers) {
  const json::Value nothing;
  EXPECT_FALSE(Params(nothing).count("size_k").has_value());
}

std::vector<NamedTensor> tensors() {
  return {{"w13", Format::kU8, {2, 3}, std::vector<std::byte>(6)},
          {"scale", Format::kF32, {}, std::vector<std::byte>(4)}};
}

TEST(FunctionTensors, AreWantedByNameDtypeAndShape) {
  const std::vector<NamedTensor> all = tensors();
  EXPECT_EQ(*want(all, "w13", {Format::kI8, Format::kU8}, {2, kAnyExtent}), all.data());
  EXPECT_TRUE(want(all, "scale", {Format::kF32}, {}).has_value());
}

TEST(FunctionTensors, OfAnotherDtypeOrShapeAreNamed) {
  const std::vector<NamedTensor> all = tensors();
  EXPECT_THAT(to_string(want(all, "w13", {Format::kBf16}, {2, 3}).error()),
              HasSubstr("tensor w13: want BF16 [2, 3], found U8 [2, 3]"));
  EXPECT_THAT(to_string(want(all, "w13", {Format::kU8}, {3, kAnyExtent}).error()),
              HasSubstr("want U8 [3, any]"));
  EXPECT_FALSE(want(all, "w13", {Format::kU8}, {kAnyExtent}).has_value());
  const auto absent = want(all, "w2", {Format::kU8}, {2, 3});
  EXPECT_EQ(absent.error().code, Code::kInvalidSource);
  EXPECT_THAT(to_string(absent.error()), HasSubstr("only w13, scale"));
}

TEST(FunctionTensors, OfMoreBytesThanAreHeldAreRefused) {
  EXPECT_EQ(make_tensor("x", Format::kE2m1, {3, 2})->bytes.size(), 3U);
  EXPECT_EQ(make_tensor("x", Format::kE2m1, {3}).error().code, Code::kUnsupported);
  const std::uint64_t half = std::uint64_t{1} << 32;
  EXPECT_EQ(make_tensor("x", Format::kF32, {half, half}).error().code, Code::kUnsupported);
  EXPECT_EQ(make_tensor("x", Format::kF32, {half, 5}).error().code, Code::kUnsupported);
}

TEST(FunctionTable, HasEachFunctionOfUpstreamOnce) {
  for (const Function& function : function_table()) {
    EXPECT_EQ(function_by_name(function.name), &function) << function.name << " is in two rows";
    EXPECT_FALSE(function.name.empty());
    EXPECT_FALSE(function.meaning.empty()) << function.name;
    EXPECT_NE(function.run, nullptr) << function.name;
    for (const std::string_view upstream : function.upstream) {
      if (upstream.empty()) continue;
      EXPECT_EQ(function_by_name(upstream), &function) << upstream << " is in two rows";
    }
  }
  EXPECT_EQ(function_by_name(""), nullptr);
  EXPECT_EQ(function_by_name("no such transform"), nullptr);
}

}  // namespace
}  // namespace lode::targets
