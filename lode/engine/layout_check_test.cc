#include "lode/engine/layout_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "lode/base/fmt.h"
#include "lode/engine/layout_apply.h"
#include "lode/targets/function_values.h"
#include "tests/support/checkpoint_files.h"

// What engines' own code computed, against what ours does. The golden files and their manifest say
// what is right; nothing here does.

namespace lode::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kFolder = std::filesystem::path(LODE_GOLDEN_DIR) / "weight_layouts";

LayoutVerdict golden_verdict() {
  auto verdict = check_layouts({.manifest = kFolder / "manifest.json", .out = {}, .go_on = {}});
  EXPECT_TRUE(verdict) << to_string(verdict.error());
  return verdict ? *std::move(verdict) : LayoutVerdict();
}

std::string explained(const CaseVerdict& one) {
  if (one.fault) return fmt::format("{}: {}", one.name, to_string(*one.fault));
  if (!one.difference) return one.name;
  return fmt::format("{}: {} {} at {}: want {}, found {}", one.name, one.difference->tensor,
                     name(one.difference->way), one.difference->offset, one.difference->wanted,
                     one.difference->found);
}

TEST(GoldenLayouts, AreComputedBitForBitInEveryWay) {
  const LayoutVerdict verdict = golden_verdict();
  EXPECT_EQ(verdict.cases.size(), 114U);
  EXPECT_EQ(verdict.failures(), 0U);
  for (const CaseVerdict& one : verdict.cases) {
    EXPECT_NE(one.state, CaseState::kDiffers) << explained(one);
    EXPECT_NE(one.state, CaseState::kFault) << explained(one);
    if (one.state == CaseState::kEqual) {
      EXPECT_GE(one.ways.size(), 2U) << one.name;
    }
  }
}

// The tensors of upstream that its own later release no longer makes so.
TEST(GoldenLayouts, AreRightWhereUpstreamWasWrong) {
  for (const CaseVerdict& one : golden_verdict().cases) {
    if (one.name == "nvfp4_trtllm_gated_inter_pad") {
      EXPECT_THAT(one.defect_in, ElementsAre("w13", "w13_scale"));
    } else if (one.name == "fp8_tensor_fi_trtllm_pad") {
      EXPECT_THAT(one.defect_in, ElementsAre("w13"));
    } else {
      EXPECT_THAT(one.defect_in, IsEmpty()) << one.name;
    }
  }
}

// A case of the golden files in a folder of its own, to be spoiled.
class OneCase : public ::testing::Test {
 protected:
  static constexpr std::string_view kName = "reorder_w1w3_to_w3w1";
  static constexpr std::string_view kMembers =
      R"("name": "reorder_w1w3_to_w3w1", "file": "reorder_w1w3_to_w3w1.safetensors",
         "function": "flashinfer_fp4_moe.reorder_w1w3_to_w3w1",
         "params": {"E": 3, "N": 24, "K": 32}, "compare": "bytes",
         "inputs": {"w13": {}, "w13_scale": {}}, "outputs": {"w13": {}, "w13_scale": {}})";

  OneCase() {
    std::ifstream golden(kFolder / file_name(), std::ios::binary);
    bytes_ = {std::istreambuf_iterator<char>(golden), {}};
  }
  static std::string file_name() { return std::string(kName) + ".safetensors"; }

  Result<LayoutVerdict> check(std::string_view members, const std::filesystem::path& out = {}) {
    folder_.write(file_name(), bytes_);
    const auto manifest = folder_.write(
        "manifest.json", fmt::format(R"({{"format": 1, "cases": [{{{}}}]}})", members));
    return check_layouts({.manifest = manifest, .out = out, .go_on = {}});
  }
  CaseVerdict verdict_of(std::string_view members) {
    const auto verdict = check(members);
    EXPECT_TRUE(verdict) << to_string(verdict.error());
    return verdict ? verdict->cases.at(0) : CaseVerdict();
  }
  static std::string edited(std::string_view from, std::string_view to) {
    std::string members(kMembers);
    const std::size_t at = members.find(from);
    EXPECT_NE(at, members.npos) << from;
    return members.replace(at, from.size(), to);
  }

  testing_support::TempFolder folder_;
  std::string bytes_;
};

TEST_F(OneCase, IsKeyedByItsFunctionAndNotByItsName) {
  EXPECT_EQ(verdict_of(edited(R"("name": "reorder_w1w3_to_w3w1")", R"("name": "anything")")).state,
            CaseState::kEqual);
  EXPECT_EQ(verdict_of(edited("flashinfer_fp4_moe.reorder", "no.such")).state,
            CaseState::kNotCovered);
}

TEST_F(OneCase, OfAnotherByteDiffersThereInTheFirstTensorThatDoes) {
  const auto choices = std::vector<TensorChoice>{{"w13", "out.w13"}};
  const auto right = read_named_tensors(kFolder / file_name(), choices);
  ASSERT_TRUE(right) << to_string(right.error());
  constexpr std::size_t kAt = 77;
  const auto text = [](std::byte byte) {
    return fmt::format("0x{:02x}", std::to_integer<unsigned>(byte));
  };
  // Where the tensor is in the file, by its bytes.
  std::string all;
  for (const std::byte byte : (*right)[0].bytes) all += static_cast<char>(byte);
  const std::size_t at = bytes_.find(all);
  ASSERT_NE(at, bytes_.npos);
  bytes_[at + kAt] = static_cast<char>(bytes_[at + kAt] ^ 1);
  const CaseVerdict verdict = verdict_of(kMembers);
  EXPECT_EQ(verdict.state, CaseState::kDiffers);
  ASSERT_TRUE(verdict.difference);
  EXPECT_EQ(verdict.difference->tensor, "w13");
  EXPECT_EQ(verdict.difference->offset, kAt);
  EXPECT_EQ(verdict.difference->found, text((*right)[0].bytes[kAt]));
  EXPECT_EQ(verdict.difference->wanted, text((*right)[0].bytes[kAt] ^ std::byte{1}));
  // The same is no failure where the manifest says that it only informs.
  const auto informative = check(edited(R"("bytes")", R"("bytes, informative")"));
  ASSERT_TRUE(informative);
  EXPECT_EQ(informative->count(CaseState::kDiffers), 1U);
  EXPECT_EQ(informative->failures(), 0U);
}

TEST_F(OneCase, WantsTensorsThatNobodyComputes) {
  const CaseVerdict verdict =
      verdict_of(edited(R"("outputs": {"w13": {})", R"("outputs": {"w14": {"tensor": "out.w13"})"));
  EXPECT_EQ(verdict.state, CaseState::kDiffers);
  EXPECT_EQ(verdict.difference->found, "no such tensor");
}

TEST_F(OneCase, WithAFaultOfItsFileIsNamedAndFails) {
  const std::string whole = bytes_;
  bytes_.resize(bytes_.size() / 2);
  CaseVerdict verdict = verdict_of(kMembers);
  ASSERT_EQ(verdict.state, CaseState::kFault);
  EXPECT_THAT(to_string(*verdict.fault), HasSubstr(file_name()));
  bytes_ = whole;
  verdict = verdict_of(edited(file_name(), "absent.safetensors"));
  ASSERT_EQ(verdict.state, CaseState::kFault);
  EXPECT_THAT(to_string(*verdict.fault), HasSubstr("absent.safetensors"));
  verdict = verdict_of(edited(R"("inputs": {"w13": {})", R"("inputs": {"w15": {})"));
  ASSERT_EQ(verdict.state, CaseState::kFault);
  EXPECT_THAT(to_string(*verdict.fault), HasSubstr("in.w15"));
  verdict = verdict_of(edited(R"("inputs": {"w13": {})", R"("inputs": {"w13": {"shape": [1, 2]})"));
  ASSERT_EQ(verdict.state, CaseState::kFault);
  EXPECT_THAT(to_string(*verdict.fault), HasSubstr("[1, 2] as the manifest says"));
}

TEST_F(OneCase, NamesWhatItsFunctionDoesNotKnow) {
  CaseVerdict verdict = verdict_of(edited(R"("K": 32)", R"("K": 32, "notes": "x", "turns": 2)"));
  EXPECT_EQ(verdict.state, CaseState::kEqual);
  EXPECT_THAT(verdict.unknown, ElementsAre("param turns"));
  verdict = verdict_of(edited(R"("inputs": {)", R"("inputs": {"w31": {"tensor": "in.w13"}, )"));
  EXPECT_THAT(verdict.unknown, ElementsAre("tensor w31"));
  bytes_.back() = static_cast<char>(bytes_.back() ^ 1);
  verdict = verdict_of(edited(R"("K": 32)", R"("K": 32, "turns": 2)"));
  EXPECT_EQ(verdict.state, CaseState::kNotCovered);
  EXPECT_THAT(verdict.unknown, ElementsAre("param turns"));
  EXPECT_EQ(verdict_of(kMembers).state, CaseState::kDiffers);
}

TEST_F(OneCase, OfSizesThatItsTensorsDoNotHaveIsAFault) {
  const CaseVerdict verdict = verdict_of(edited(R"("N": 24)", R"("N": 25)"));
  ASSERT_EQ(verdict.state, CaseState::kFault);
  EXPECT_THAT(to_string(*verdict.fault), HasSubstr("param N: want 24"));
}

TEST_F(OneCase, ThatItsFunctionRefusesIsAFaultAndNotACrash) {
  const CaseVerdict verdict =
      verdict_of(edited(R"("flashinfer_fp4_moe.reorder_w1w3_to_w3w1")",
                        R"("marlin_utils_test.marlin_weights on rows q[perm]")"));
  EXPECT_EQ(verdict.state, CaseState::kFault);
  ASSERT_TRUE(verdict.fault);
  EXPECT_FALSE(to_string(*verdict.fault).empty());
}

TEST_F(OneCase, LeavesWhatItComputedInAFolderOfItsOwn) {
  const std::filesystem::path out = folder_.path() / "computed" / "here";
  const auto verdict = check(kMembers, out);
  ASSERT_TRUE(verdict) << to_string(verdict.error());
  const auto chosen = std::vector<TensorChoice>{{"w13", "out.w13"}, {"scale", "out.w13_scale"}};
  const auto ours = read_named_tensors(out / file_name(), chosen);
  const auto theirs = read_named_tensors(kFolder / file_name(), chosen);
  ASSERT_TRUE(ours) << to_string(ours.error());
  ASSERT_TRUE(theirs);
  EXPECT_EQ((*ours)[0].bytes, (*theirs)[0].bytes);
  EXPECT_EQ((*ours)[1].bytes, (*theirs)[1].bytes);
  EXPECT_EQ(targets::describe((*ours)[1]), targets::describe((*theirs)[1]));
}

TEST_F(OneCase, NeverWritesOverTheGoldenFiles) {
  const auto verdict = check(kMembers, folder_.path());
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().code, Code::kUsage);
  const auto file = check(kMembers, folder_.path() / "manifest.json");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kIo);
  // Nor through a link to one of them.
  const std::filesystem::path out = folder_.path() / "links";
  std::filesystem::create_directory(out);
  std::filesystem::create_symlink(folder_.path() / file_name(), out / file_name());
  const auto linked = check(kMembers, out);
  ASSERT_FALSE(linked);
  EXPECT_EQ(linked.error().code, Code::kUsage);
}

TEST_F(OneCase, IsNotBegunWhenTheUserSaysStop) {
  folder_.write(file_name(), bytes_);
  const auto manifest = folder_.write(
      "manifest.json", fmt::format(R"({{"format": 1, "cases": [{{{}}}]}})", kMembers));
  const auto verdict =
      check_layouts({.manifest = manifest, .out = {}, .go_on = [] { return false; }});
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().code, Code::kInterrupted);
}

TEST_F(OneCase, IsAppliedToAFileByEitherName) {
  const std::filesystem::path out = folder_.path() / "applied.safetensors";
  for (const std::string& name :
       {std::string("flashinfer_fp4_moe.reorder_w1w3_to_w3w1"),
        std::string(targets::function_by_name("flashinfer_fp4_moe.reorder_w1w3_to_w3w1")->name)}) {
    LayoutApply apply;
    apply.function = name;
    apply.in = kFolder / file_name();
    apply.out = out;
    const auto applied = apply_layout(apply);
    ASSERT_TRUE(applied) << to_string(applied.error());
    const auto chosen = std::vector<TensorChoice>{{"w13", "out.w13"}};
    const auto ours = read_named_tensors(out, chosen);
    ASSERT_TRUE(ours) << to_string(ours.error());
    EXPECT_EQ((*ours)[0].bytes, (*read_named_tensors(apply.in, chosen))[0].bytes);
  }
}

TEST_F(OneCase, IsNotAppliedOverItsInput) {
  const auto file = folder_.write(file_name(), bytes_);
  LayoutApply apply;
  apply.function = "flashinfer_fp4_moe.reorder_w1w3_to_w3w1";
  apply.in = file;
  apply.out = folder_.path() / "." / file_name();
  const auto applied = apply_layout(apply);
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.error().code, Code::kUsage);
  std::ifstream left(file, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(left), {}), bytes_);
}

TEST_F(OneCase, TakesTensorsOfOtherNamesWhereTheyAreSaid) {
  LayoutApply apply;
  apply.function = "flashinfer_fp4_moe.reorder_w1w3_to_w3w1";
  apply.in = kFolder / file_name();
  apply.out = folder_.path() / "chosen.safetensors";
  apply.chosen = {{"w13", "out.w13"}, {"w13_scale", "out.w13_scale"}};
  const auto applied = apply_layout(apply);
  ASSERT_TRUE(applied) << to_string(applied.error());
  // Swapped twice: what the file calls its input; and no prefix, as the inputs had no "in.".
  const std::vector<TensorChoice> in = {{"w13", "in.w13"}};
  const std::vector<TensorChoice> plain = {{"w13", "w13"}};
  EXPECT_EQ((*read_named_tensors(apply.out, plain))[0].bytes,
            (*read_named_tensors(apply.in, in))[0].bytes);
  apply.chosen = {{"w13", "no.such"}};
  const auto absent = apply_layout(apply);
  ASSERT_FALSE(absent);
  EXPECT_THAT(to_string(absent.error()), HasSubstr("no.such"));
}

TEST(ApplyLayout, LeavesAsideWhatTheTransformHasNoNameFor) {
  LayoutApply apply;
  apply.function = "marlin-padded-sizes";
  apply.in = kFolder / "reorder_w1w3_to_w3w1.safetensors";
  const testing_support::TempFolder folder;
  apply.out = folder.path() / "out.safetensors";
  const auto none = apply_layout(apply);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kInvalidSource);
  EXPECT_THAT(to_string(none.error()), HasSubstr("want tensor nkg, found in.w13, in.w13_scale"));
  apply.function = "fp8-fnuz";
  apply.in = kFolder / "fp8_tensor_dense_requant.safetensors";
  const auto applied = apply_layout(apply);
  ASSERT_TRUE(applied) << to_string(applied.error());
  EXPECT_THAT(applied->left_aside, ElementsAre("in.weight_scale_unloaded"));
}

TEST(ApplyLayout, NamesTheTransformsWhereItKnowsNone) {
  LayoutApply apply;
  apply.function = "no such";
  const auto applied = apply_layout(apply);
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.error().code, Code::kUsage);
  EXPECT_THAT(to_string(applied.error()), HasSubstr("transform no such"));
}

}  // namespace
}  // namespace lode::engine
