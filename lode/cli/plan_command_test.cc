#include <gmock/gmock.h>

#include "lode/base/fmt.h"
#include "lode/cli/test_command.h"
#include "lode/engine/run_plan.h"

namespace lode::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Plan, IsTheReceiptOfTheRunThatFollows) {
  for (const std::string compute : {"fast", "exact"}) {
    const std::string receipt = temp("receipt.json");
    const Answer planned = lode({"plan", kStory, "--compute", compute, "--ctx", "200", "--json"});
    const Answer run = lode({"run", kStory, "--compute", compute, "--ctx", "200", "-p", "Once",
                             "-n", "3", "--receipt", receipt});
    ASSERT_EQ(planned.status, 0) << planned.err;
    ASSERT_EQ(run.status, 0) << run.err;
    const json::Value held = json_of(text_of(receipt));
    EXPECT_EQ(json::dump(*json_of(planned.out).find("stages"), 1),
              json::dump(*held.find("actual"), 1));
    EXPECT_TRUE(*held.find("as_planned")->as_bool());
    EXPECT_GT(whole(*held.find("kernel"), "num_samples"), 0);
  }
}

TEST(Plan, SaysWhatBreaksFirstAndWhatWouldSaveHowMuch) {
  const Answer answer = lode({"plan", kStory, "--memory", "34MiB", "--json"});
  const json::Value plan = json_of(answer.out);
  EXPECT_FALSE(*plan.find("fits")->as_bool());
  EXPECT_THAT(*plan.find("breaks_first")->as_string(), StartsWith("layer "));
  const json::Array& advice = *plan.find("advice")->as_array();
  ASSERT_FALSE(advice.empty());
  for (const json::Value& one : advice) {
    EXPECT_EQ(whole(one, "saved_bytes") + whole(one, "peak_bytes"), whole(plan, "peak_bytes"));
  }
  EXPECT_THAT(lode({"plan", kStory, "--memory", "34MiB"}).out, HasSubstr("breaks    first in"));
  const json::Value fitting = json_of(lode({"plan", kStory, "--json"}).out);
  EXPECT_TRUE(fitting.find("breaks_first")->is_null());
}

TEST(Plan, LowersTheNumberThatWasNamedToWhatThereIsAsARunDoes) {
  const json::Value plan = json_of(lode({"plan", kStory, "--memory", "900TiB", "--json"}).out);
  EXPECT_LT(whole(plan, "limit_bytes"), std::int64_t{900} << 40);
  EXPECT_EQ(whole(plan, "wanted_bytes"), std::int64_t{900} << 40);
  EXPECT_THAT(*plan.find("warning")->as_string(), HasSubstr("that is the limit"));
  EXPECT_THAT(lode({"plan", kStory, "--memory", "900TiB"}).out,
              HasSubstr("; --memory names 921600.00 GiB, which is not there\n"));
  const json::Value modest = json_of(lode({"plan", kStory, "--memory", "60MiB", "--json"}).out);
  EXPECT_EQ(*modest.find("warning")->as_string(), "");
}

TEST(Plan, IsForAnotherMachineWhereThatIsNamed) {
  const json::Value plan =
      json_of(lode({"plan", kStory, "--machine", "900TiB", "--memory", "800tib", "--json"}).out);
  EXPECT_EQ(whole(plan, "limit_bytes"), std::int64_t{800} << 40);
  EXPECT_EQ(lode({"plan", kStory, "--machine", "much"}).status, 2);
}

TEST(Plan, SaysWhereNoContextFits) {
  const Answer answer = lode({"plan", kStory, "--memory", "20MiB", "--ctx", "auto"});
  EXPECT_EQ(answer.status, 3);
  EXPECT_THAT(answer.out, HasSubstr("; no context fits (model limit 256)"));
  EXPECT_THAT(answer.out, HasSubstr("--ctx auto finds none that fits: planned for 256 tokens"));
}

TEST(Plan, LeavesNoReceiptOfWhatWasRefused) {
  const std::string receipt = temp("refused.json");
  EXPECT_EQ(lode({"run", kStory, "-p", "x", "--memory", "20MiB", "--receipt", receipt}).status, 3);
  EXPECT_FALSE(std::filesystem::exists(receipt));
  write_temp("refused.json", "an older one");
  EXPECT_EQ(lode({"run", kStory, "-p", "x", "--memory", "20MiB", "--receipt", receipt}).status, 3);
  EXPECT_EQ(text_of(receipt), "an older one");
}

// Every tag closed by its own, in order; no bare & nor <.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (auto at = xml.find('<'); at != xml.npos; at = xml.find('<', at + 1)) {
    const auto end = xml.find('>', at);
    if (end == xml.npos || xml.find('<', at + 1) < end) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  for (auto at = xml.find('&'); at != xml.npos; at = xml.find('&', at + 1)) {
    const std::string rest = xml.substr(at, 5);
    if (!rest.starts_with("&amp;") && !rest.starts_with("&lt;")) return false;
  }
  return open.empty();
}

TEST(Plan, DrawsAnSvgThatIsWellFormed) {
  const std::string path = temp("plan.svg");
  ASSERT_EQ(lode({"plan", kStory, "--svg", path}).status, 0);
  const std::string svg = text_of(path);
  EXPECT_THAT(svg, StartsWith("<svg "));
  EXPECT_TRUE(well_formed(svg)) << svg;
  EXPECT_FALSE(well_formed(svg.substr(0, svg.size() - 8)));  // the check can say no
}

TEST(Plan, HasTheTableOfStagesAndWhatIsKnownHowWell) {
  const Answer answer = lode({"plan", kStory, "--memory", "60MiB"});
  EXPECT_EQ(answer.status, 0) << answer.err;
  for (const std::string part :
       {"\nmachine ", "\nbudget    62914560 bytes (60.0 MiB) from --memory\n",
        "\nI/O       10.2 MiB", "page tables  cache", "\nlayer 0-4 ", "(bound 64.0 MiB: holds)",
        "prepare would write 12.6 MiB", "2560 bytes a token (5 full layers)", "nothing. below ",
        "exact: weights", "bounded: program", "estimated: cache"}) {
    EXPECT_THAT(answer.out, HasSubstr(part));
  }
  const json::Value plan = json_of(lode({"plan", kStory, "--memory", "60MiB", "--json"}).out);
  EXPECT_EQ(plan.find("table")->as_array()->size(), 5U);
  EXPECT_EQ(whole(*plan.find("kv"), "full_layers"), 5);
  EXPECT_EQ(*plan.find("marks")->find("program")->as_string(), "bounded");
  EXPECT_EQ(whole(plan.find("breaks")->as_array()->front(), "below_bytes"),
            whole(plan, "peak_bytes"));
}

TEST(Plan, StrictRefusesWhatFitsOnlyJust) {
  const json::Value plan = json_of(lode({"plan", kStory, "--memory", "1GiB", "--json"}).out);
  const std::string peak = fmt::format("{}", whole(plan, "peak_bytes"));
  const Answer warned = lode({"plan", kStory, "--memory", peak});
  EXPECT_EQ(warned.status, 0);
  EXPECT_THAT(warned.err, HasSubstr("warning: fits with only 0 B to spare"));
  EXPECT_THAT(warned.out, HasSubstr("fits, barely"));
  const Answer strict = lode({"plan", kStory, "--memory", peak, "--strict"});
  EXPECT_EQ(strict.status, 3);
  EXPECT_THAT(strict.err, HasSubstr("with --strict"));
  const Answer roomy = lode({"plan", kStory, "--memory", "60MiB", "--strict"});
  EXPECT_EQ(roomy.status, 0) << roomy.err;
  EXPECT_EQ(roomy.err, "");
}

TEST(Plan, TakesTheLargestContextThatFits) {
  const Answer run = lode(
      {"run", kStory, "-p", "Once", "-n", "1", "--ctx", "auto", "--receipt", temp("auto.json")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("--ctx auto: 256 tokens"));
  const json::Value receipt = json_of(text_of(temp("auto.json")));
  EXPECT_EQ(whole(*receipt.find("run"), "context_tokens"), 256);
  EXPECT_TRUE(*receipt.find("run")->find("context_auto")->as_bool());
  EXPECT_EQ(lode({"plan", kStory, "--ctx", "automatic"}).status, 2);
  EXPECT_EQ(lode({"plan", kStory, "--ctx", "12x"}).status, 2);
}

TEST(Plan, AfterARunIsZeroBytesApart) {
  const std::string receipt = temp("after.json");
  ASSERT_EQ(
      lode({"run", kStory, "-p", "Once", "-n", "1", "--ctx", "64", "--receipt", receipt}).status,
      0);
  const Answer same = lode({"plan", kStory, "--ctx", "64", "--after", receipt});
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("0 bytes apart in every stage and tag"));
  EXPECT_THAT(same.out, HasSubstr("whole process at load peak"));
  const Answer other = lode({"plan", kStory, "--ctx", "128", "--after", receipt, "--json"});
  EXPECT_EQ(other.status, 12);
  EXPECT_THAT(other.err, HasSubstr("plan with the same"));
  const json::Value apart = json_of(other.out);
  EXPECT_FALSE(*apart.find("equal")->as_bool());
  EXPECT_EQ(*apart.find("settings")->as_array()->front().find("setting")->as_string(),
            "context_tokens");
}

TEST(Plan, AfterRefusesFilesThatAreNoReceipt) {
  const std::string no_file = temp("no_such_receipt.json");
  EXPECT_EQ(lode({"plan", kStory, "--after", no_file}).status, info(Code::kIo).exit_status);
  for (const std::string text : {"", "{", "[]", R"({"actual": "much"})"}) {
    const Answer answer = lode({"plan", kStory, "--after", write_temp("bad_receipt.json", text)});
    EXPECT_EQ(answer.status, 4) << text;
    EXPECT_THAT(answer.err, HasSubstr("bad_receipt.json")) << text;
    EXPECT_THAT(answer.err, HasSubstr("not a run's receipt")) << text;
  }
}

}  // namespace
}  // namespace lode::cli
