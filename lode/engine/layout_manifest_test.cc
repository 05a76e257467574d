#include "lode/engine/layout_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"

namespace lode::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kCase =
    R"({"name": "a", "file": "a.safetensors", "function": "f", "params": {"E": 2},
        "inputs": {"w": {"tensor": "in.w", "dtype": "U8", "shape": [2, 3]}},
        "outputs": {"w": {}}, "compare": "bytes"})";

std::string manifest_of(std::string_view cases) {
  return R"({"format": 1, "sources": {"x": 1}, "cases": [)" + std::string(cases) + "]}";
}

std::string with(std::string_view from, std::string_view to) {
  std::string text(kCase);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return manifest_of(text.replace(at, from.size(), to));
}

std::string fault_of(const std::string& text) {
  const auto manifest = parse_layout_manifest(text, "folder");
  if (manifest) return "taken";
  EXPECT_EQ(manifest.error().code, Code::kInvalidSource);
  return to_string(manifest.error());
}

TEST(LayoutManifest, SaysOfACaseWhatIsToBeRunAndCompared) {
  const auto manifest = parse_layout_manifest(manifest_of(kCase), "folder");
  ASSERT_TRUE(manifest) << to_string(manifest.error());
  EXPECT_EQ(manifest->folder, "folder");
  ASSERT_EQ(manifest->cases.size(), 1U);
  const LayoutCase& one = manifest->cases[0];
  EXPECT_EQ(one.function, "f");
  EXPECT_EQ(*one.params.find("E")->as_int(), 2);
  EXPECT_EQ(one.inputs[0].stored, "in.w");
  EXPECT_EQ(one.inputs[0].dtype, formats::Format::kU8);
  EXPECT_THAT(*one.inputs[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(one.outputs[0].stored, "out.w");  // where it is not said
  EXPECT_FALSE(one.outputs[0].dtype);
  EXPECT_FALSE(one.informative);
  EXPECT_FALSE(one.upstream_defect);
}

TEST(LayoutManifest, MarksWhatIsInformativeAndWhatUpstreamGetsWrong) {
  const auto manifest = parse_layout_manifest(
      with(R"("bytes")", R"("bytes, informative", "upstream_defect": "x")"), "");
  ASSERT_TRUE(manifest);
  EXPECT_TRUE(manifest->cases[0].informative);
  EXPECT_TRUE(manifest->cases[0].upstream_defect);
}

TEST(LayoutManifest, OfAnotherKindIsRefused) {
  EXPECT_THAT(fault_of("{"), HasSubstr("byte"));
  EXPECT_THAT(fault_of("[]"), HasSubstr("manifest: want an object"));
  EXPECT_THAT(fault_of("{}"), HasSubstr("manifest.format: want 1, found nothing"));
  EXPECT_THAT(fault_of(R"({"format": 2, "cases": []})"), HasSubstr("found 2"));
  EXPECT_THAT(fault_of(R"({"format": 1})"), HasSubstr("manifest.cases"));
  EXPECT_THAT(fault_of(R"({"format": 1, "cases": {}})"), HasSubstr("a list of cases"));
  EXPECT_THAT(fault_of(manifest_of("7")), HasSubstr("cases[0]: want an object"));
  EXPECT_THAT(fault_of(manifest_of("null")), HasSubstr("cases[0].name"));
}

TEST(LayoutManifest, DoesNotLeadOutOfItsFolder) {
  for (const std::string_view file : {R"("../a.safetensors")", R"("/etc/passwd")", R"("sub/a")",
                                      R"("..")", R"("")", R"("a\u0000b")", R"(".hidden")"}) {
    EXPECT_THAT(fault_of(with(R"("a.safetensors")", file)),
                HasSubstr("cases[0].file: want the name of a file"))
        << file;
    EXPECT_THAT(fault_of(with(R"("a")", file)), HasSubstr("cases[0].name: want the name of a file"))
        << file;
  }
}

TEST(LayoutManifest, NamesTheMemberThatIsMissingOrOfAnotherKind) {
  EXPECT_THAT(fault_of(with(R"("function": "f")", R"("function": 5)")),
              HasSubstr("cases[0].function"));
  EXPECT_THAT(fault_of(with(R"("function": "f",)", "")), HasSubstr("cases[0].function"));
  EXPECT_THAT(fault_of(with(R"({"E": 2})", "[]")), HasSubstr("cases[0].params: want an object"));
  EXPECT_THAT(fault_of(with(R"("outputs": {"w": {}})", R"("outputs": null)")),
              HasSubstr("cases[0].outputs"));
  EXPECT_THAT(fault_of(with(R"("w": {}})", R"("w": 3})")), HasSubstr("cases[0].outputs.w"));
  EXPECT_THAT(fault_of(with(R"("U8")", R"("U9")")),
              HasSubstr("cases[0].inputs.w.dtype: want a dtype of safetensors, found U9"));
  for (const std::string_view shape : {"[2, -3]", "[2.5]", "7", "[99999999999999999999]"}) {
    EXPECT_THAT(fault_of(with("[2, 3]", shape)), HasSubstr("cases[0].inputs.w.shape")) << shape;
  }
  EXPECT_THAT(fault_of(with(R"("bytes")", R"("roughly")")), HasSubstr("cases[0].compare"));
}

TEST(LayoutManifest, HasNoTwoCasesOfOneName) {
  EXPECT_THAT(fault_of(manifest_of(std::string(kCase) + "," + std::string(kCase))),
              HasSubstr("cases[1].name: want a name of its own, found a"));
}

TEST(LayoutManifest, IsNamedWhereItCanNotBeRead) {
  const testing_support::TempFolder folder;
  const auto absent = read_layout_manifest(folder.path() / "none.json");
  EXPECT_THAT(to_string(absent.error()), HasSubstr("none.json: want a manifest"));
  EXPECT_FALSE(read_layout_manifest(folder.path()).has_value());
  const auto bad = read_layout_manifest(folder.write("bad.json", "{"));
  EXPECT_THAT(to_string(bad.error()), HasSubstr("bad.json"));
}

}  // namespace
}  // namespace lode::engine
