#include <gmock/gmock.h>

#include <filesystem>

#include "lode/cli/test_command.h"

// `lode layout` as a user types it. What it computes is tested in engine/.

namespace lode::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kFolder = kGolden + "/weight_layouts/";
const std::string kManifest = kFolder + "manifest.json";
const std::string kRepackFile = kFolder + "marlin_repack_b4_a16_k128_n64.safetensors";
const std::string kSwapFile = kFolder + "reorder_w1w3_to_w3w1.safetensors";
constexpr const char* kSwap = "flashinfer_fp4_moe.reorder_w1w3_to_w3w1";
constexpr const char* kRepack =
    "marlin_utils_test.marlin_weights / get_weight_perm (reference of ops.gptq_marlin_repack)";

std::string one_case(const std::string& file) {
  return R"({"format": 1, "cases": [{"name": "one", "file": ")" + file + R"(", "function": ")" +
         kSwap + R"(", "inputs": {"w13": {}, "w13_scale": {}}, "outputs": {"w13": {}}}]})";
}

TEST(LayoutCommand, ListsWhatEachTransformTakes) {
  const Answer text = lode({"layout", "list"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(kSwap));
  const Answer one = lode({"layout", "list", kRepack});
  EXPECT_THAT(one.out, HasSubstr("params"));
  EXPECT_THAT(one.out, HasSubstr("num_bits"));
  EXPECT_THAT(one.out, Not(HasSubstr(kSwap)));
  const json::Value rows = json_of(lode({"layout", "list", "--json"}).out);
  ASSERT_NE(rows.as_array(), nullptr);
  for (const json::Value& row : *rows.as_array()) {
    EXPECT_NE(row.find("name"), nullptr);
    EXPECT_NE(row.find("in_place")->as_bool(), nullptr);
    EXPECT_NE(row.find("params")->as_array(), nullptr);
    EXPECT_FALSE(row.find("inputs")->as_array()->empty());
  }
  const Answer unknown = lode({"layout", "list", "half-swop"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("transform half-swop"));
  EXPECT_THAT(unknown.err, HasSubstr("did you mean half-swap?"));
}

TEST(LayoutCommand, AppliesATransformWithParamsOfEveryKind) {
  const std::string out = temp("repacked.safetensors");
  const Answer answer = lode({"layout", "apply", kRepack, "--in", kRepackFile, "--out", out,
                              "--set", "num_bits=4", "--set", "is_a_8bit=false", "--set",
                              "size_k=128", "--set", "size_n=64", "--way", "streamed", "--json"});
  ASSERT_EQ(answer.status, 0) << answer.err;
  EXPECT_EQ(whole(json_of(answer.out), "bytes_out"), 128 * 64 / 2);
  EXPECT_TRUE(std::filesystem::exists(out));
}

TEST(LayoutCommand, RefusesSettingsThatAreNone) {
  const std::string out = temp("refused.safetensors");
  const auto apply = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"layout",    "apply", kRepack, "--in",
                                      kRepackFile, "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    return lode(words);
  };
  for (const char* const setting : {"num_bits", "=4"}) {
    const Answer answer = apply({"--set", setting});
    EXPECT_EQ(answer.status, 2);
    EXPECT_THAT(answer.err, HasSubstr("--set: want key=value"));
  }
  EXPECT_THAT(apply({"--set", "a=1", "--set", "a=2"}).err, HasSubstr("--set a: want one value"));
  EXPECT_THAT(apply({"--tensor", "w13"}).err, HasSubstr("--tensor: want key=value"));
  EXPECT_EQ(apply({"--set", "num_bits=five"}).status, 2);
  const Answer foo = apply({"--set", "num_bits=4", "--set", "foo=1"});
  EXPECT_EQ(foo.status, 2);
  EXPECT_THAT(foo.err, HasSubstr("foo: want one of num_bits, is_a_8bit, size_k, size_n"));
  const Answer near = apply({"--set", "num_bit=4"});
  EXPECT_EQ(near.status, 2);
  EXPECT_THAT(near.err, HasSubstr("did you mean num_bits?"));
  const Answer other = apply({"--set", "num_bits=4", "--set", "size_k=999"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("param size_k: want 128, as the tensors have it"));
  const Answer role = apply({"--set", "num_bits=4", "--tensor", "b_weight=in.b_q_weight"});
  EXPECT_EQ(role.status, 2);
  EXPECT_THAT(role.err, HasSubstr("b_weight: want one of b_q_weight, perm"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(LayoutCommand, RefusesToWriteOverItsInput) {
  const std::string copy = write_temp("over.safetensors", text_of(kSwapFile));
  const Answer answer = lode({"layout", "apply", kSwap, "--in", copy, "--out", copy});
  EXPECT_EQ(answer.status, 2);
  EXPECT_THAT(answer.err, HasSubstr("another file than the one that is read"));
  EXPECT_EQ(text_of(copy), text_of(kSwapFile));
}

TEST(LayoutCommand, ChecksTheGoldenFiles) {
  const Answer answer = lode({"layout", "check", kManifest});
  EXPECT_EQ(answer.status, 0) << answer.err << answer.out;
  EXPECT_THAT(answer.out, HasSubstr("equal        marlin_repack_b4_a16_k128_n64"));
  EXPECT_THAT(answer.out, HasSubstr("(out of place, in place, streamed)"));
  EXPECT_THAT(answer.out, HasSubstr("not covered  mxfp4_standard_triton_interleave"));
  EXPECT_THAT(answer.out, EndsWith(" 0 differ, 1 not covered, 0 with a fault\n"));
}

TEST(LayoutCommand, FailsWhereACaseDiffersAndSaysWhere) {
  std::filesystem::copy_file(kSwapFile, temp("swap.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  std::string text = one_case("swap.safetensors");
  EXPECT_EQ(lode({"layout", "check", write_temp("right.json", text)}).status, 0);
  // What goes in does not come out.
  text.replace(text.find(R"("outputs": {"w13": {})"), 21,
               R"("outputs": {"w13": {"tensor": "in.w13"})");
  const Answer answer = lode({"layout", "check", write_temp("wrong.json", text)});
  EXPECT_EQ(answer.status, 12);
  EXPECT_THAT(answer.out, HasSubstr("differs      one  w13, out of place: at byte "));
  EXPECT_THAT(answer.err, HasSubstr("1 of 1 case"));
  const json::Value value =
      json_of(lode({"layout", "check", write_temp("wrong.json", text), "--json"}).out);
  EXPECT_FALSE(*value.find("passed")->as_bool());
  EXPECT_EQ(whole(value, "differs"), 1);
  const json::Value& one = value.find("cases")->as_array()->at(0);
  EXPECT_EQ(*one.find("verdict")->as_string(), "differs");
  EXPECT_THAT(*one.find("difference")->find("wanted")->as_string(), StartsWith("0x"));
}

TEST(LayoutCommand, FailsWhereAFileIsMissingOrDamaged) {
  for (const std::string& file :
       {std::string("none.safetensors"),
        std::filesystem::path(write_temp("cut.safetensors", "short")).filename().string()}) {
    const Answer answer = lode({"layout", "check", write_temp("faulty.json", one_case(file))});
    EXPECT_EQ(answer.status, 12);
    EXPECT_THAT(answer.out, HasSubstr("fault"));
    EXPECT_THAT(answer.out, HasSubstr(file));
  }
  const Answer outside =
      lode({"layout", "check", write_temp("outside.json", one_case("../x.safetensors"))});
  EXPECT_EQ(outside.status, 4);
  EXPECT_THAT(outside.err, HasSubstr("cases[0].file"));
}

}  // namespace
}  // namespace lode::cli
