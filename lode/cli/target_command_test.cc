#include <gmock/gmock.h>

#include "lode/cli/test_command.h"

// What `lode inspect` and `lode plan` say of targets, as a user types them.

namespace lode::cli {
namespace {

using ::testing::HasSubstr;

json::Value plan_for(const std::string& target, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"plan", kStory, "--target", target, "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const Answer answer = lode(words);
  EXPECT_EQ(answer.status, 0) << answer.err;
  return json_of(answer.out);
}

TEST(TargetCommands, InspectSaysOfEachTargetWhetherTheCheckpointCanGoThereOrWhyNot) {
  const json::Value found = json_of(lode({"inspect", kStory, "--json"}).out);
  const json::Array& targets = *found.find("targets")->as_array();
  ASSERT_EQ(targets.size(), 7U);
  for (const json::Value& target : targets) {
    const bool possible = *target.find("possible")->as_bool();
    EXPECT_EQ(possible, target.find("reason")->is_null());
    const std::string name = *target.find("name")->as_string();
    EXPECT_EQ(lode({"plan", kStory, "--target", name}).status == 0, possible) << name;
  }
  const std::string text = lode({"inspect", kStory}).out;
  EXPECT_THAT(text, HasSubstr("\nmarlin              yes\n"));
  EXPECT_THAT(text, HasSubstr("\ndeepgemm            no   "));
}

TEST(TargetCommands, InspectGivesTheFaultOfACheckpointAsTheReasonOfEveryTarget) {
  const std::string bare = temp("inspect-targets");
  std::filesystem::create_directories(bare);
  std::filesystem::copy(kStory, bare, std::filesystem::copy_options::recursive);
  std::ofstream(bare + "/config.json") << R"({"architectures": ["X"], "model_type": "stranger"})";
  const json::Value found = json_of(lode({"inspect", bare, "--json"}).out);
  for (const json::Value& target : *found.find("targets")->as_array()) {
    EXPECT_FALSE(*target.find("possible")->as_bool());
    EXPECT_EQ(*target.find("reason")->as_string(), *found.find("fault")->as_string());
  }
}

TEST(TargetCommands, PlanGivesTheStagesThatMakeItsTotalsAndTheEnginesWaysBeside) {
  const json::Value plan = plan_for("marlin");
  std::int64_t experts = 0, dense = 0, padding = 0;
  for (const json::Value& stage : *plan.find("stages")->as_array()) {
    const json::Array& engines = *stage.find("engines")->as_array();
    (engines.empty() ? dense : experts) += whole(stage, "final_bytes");
    padding += whole(stage, "padding_bytes");
    EXPECT_LE(whole(stage, "transient_bytes"), whole(plan, "transient_bytes"));
    if (engines.empty()) continue;
    EXPECT_EQ(*engines.front().find("when")->as_string(), "before vLLM #47851");
  }
  EXPECT_EQ(experts, whole(plan, "expert_bytes"));
  EXPECT_EQ(padding, whole(plan, "expert_padding_bytes"));
  EXPECT_EQ(dense, whole(plan, "dense_bytes"));
  const std::string text = lode({"plan", kStory, "--target", "marlin"}).out;
  EXPECT_THAT(text, HasSubstr("\npadding   "));
  EXPECT_THAT(text, HasSubstr("max(2*W13, W13+2*W2)"));
}

// A preparation makes what its plan says.
TEST(TargetCommands, PlanIsThePreparationThatFollowsForAPartOfTheExpertsToo) {
  const std::vector<std::string> part = {"--ranks", "2", "--rank", "1"};
  const std::string out = temp("planned-marlin");
  const std::string receipt = temp("planned-marlin.json");
  std::vector<std::string> words = {"prepare", kStory,      out,    "--target",
                                    "marlin",  "--receipt", receipt};
  words.insert(words.end(), part.begin(), part.end());
  ASSERT_EQ(lode(words).status, 0);
  const json::Value plan = plan_for("marlin", part);
  const json::Value made = json_of(text_of(receipt));
  const std::int64_t planned =
      whole(plan, "expert_bytes") + whole(plan, "alignment_bytes") + whole(plan, "dense_bytes");
  EXPECT_EQ(whole(made, "output_bytes"), whole(plan, "total_bytes"));
  EXPECT_EQ(whole(made, "planned_peak_bytes"), whole(plan, "peak_bytes"));
  EXPECT_EQ(whole(plan, "transient_bytes") + whole(plan, "kept_bytes"), whole(plan, "peak_bytes"));
  EXPECT_GE(whole(made, "output_bytes"), planned);
  const auto sections = static_cast<std::int64_t>(plan.find("stages")->as_array()->size());
  EXPECT_LT(whole(made, "output_bytes"), planned + 4096 * sections);  // each on whole pages
  const json::Value found = json_of(lode({"inspect", out, "--json"}).out);
  EXPECT_EQ(found.find("experts")->as_array()->size(), 8U);  // of 16
  EXPECT_FALSE(*found.find("runs_on_cpu")->as_bool());
  EXPECT_THAT(lode({"inspect", out}).out, HasSubstr("\nexperts   8 of each layer, for one rank"));
}

// With a byte less than the plan says, plan and preparation are refused alike.
TEST(TargetCommands, PlanSaysTheLeastMemoryOfThePreparation) {
  const std::string peak = std::to_string(whole(plan_for("marlin"), "peak_bytes"));
  const std::string less = std::to_string(std::stoull(peak) - 1);
  const std::string out = temp("least-memory");
  for (const std::string& memory : {less, peak}) {
    const int status = memory == peak ? 0 : 3;
    const Answer plan = lode({"plan", kStory, "--target", "marlin", "--memory", memory});
    EXPECT_EQ(plan.status, status) << plan.err;
    EXPECT_THAT(plan.out, HasSubstr("\nmemory    " + peak + " bytes"));
    const Answer made = lode({"prepare", kStory, out, "--target", "marlin", "--memory", memory});
    EXPECT_EQ(made.status, status) << made.err;
    EXPECT_EQ(plan.err.find("--memory " + peak + " fits") == std::string::npos, status == 0);
  }
  EXPECT_EQ(lode({"plan", kStory, "--target", "marlin", "--machine", less}).status, 3);
}

TEST(TargetCommands, PrepareMakesTheFoldersThatOutIsToLieIn) {
  const std::string out = temp("made-on-the-way") + "/a/b";
  EXPECT_EQ(lode({"prepare", kStory, out, "--target", "marlin"}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(out + "/manifest.json"));
}

TEST(TargetCommands, PrepareSaysWhetherItsTargetRoundedAHalf) {
  const auto notes = [](const std::string& target) {
    return lode({"prepare", kStory, temp("rounded-" + target), "--target", target}).err;
  };
  EXPECT_THAT(notes("marlin"), HasSubstr("the kernels of marlin read one for both"));
  EXPECT_THAT(notes("cpu"), ::testing::Not(HasSubstr("read one for both")));
}

TEST(TargetCommands, RanksThatWouldHoldNoExpertAreRefusedWithTheReason) {
  const Answer answer = lode({"plan", kStory, "--target", "marlin", "--ranks", "17"});
  EXPECT_EQ(answer.status, 2);
  EXPECT_THAT(answer.err, HasSubstr("at most 16: a layer has so many experts"));
}

// BF16 goes to few targets as it is; the way to the others is named wherever one is refused.
TEST(TargetCommands, ExpertsOf16BitsAreToldOfOnline) {
  const std::string bf16 = LODE_GOLDEN_DIR "/models/qwen3_moe";
  for (const std::string command : {"plan", "prepare"}) {
    std::vector<std::string> words = {command, bf16, "--target", "marlin"};
    if (command == "prepare") words.insert(words.begin() + 2, temp("told-of-online"));
    const Answer answer = lode(words);
    EXPECT_EQ(answer.status, 11) << answer.err;
    EXPECT_THAT(answer.err, HasSubstr("--online with one of fp8-tensor, fp8-channel"));
  }
  const std::string text = lode({"inspect", bf16}).out;
  EXPECT_THAT(text, HasSubstr("or --online with fp8-tensor, fp8-channel"));
  std::istringstream lines(text.substr(text.find("\ntargets")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  // Each of them is true.
  const json::Value found = json_of(lode({"inspect", bf16, "--json"}).out);
  for (const json::Value& target : *found.find("targets")->as_array()) {
    if (target.find("online")->is_null()) continue;
    std::istringstream schemes(*target.find("online")->as_string());
    for (std::string scheme; std::getline(schemes >> std::ws, scheme, ',');) {
      const Answer plan =
          lode({"plan", bf16, "--target", *target.find("name")->as_string(), "--online", scheme});
      EXPECT_EQ(plan.status, 0) << plan.err;
    }
  }
}

TEST(TargetCommands, PlanRefusesWhatBelongsToARunAndPartsOfTheCpu) {
  EXPECT_EQ(lode({"plan", kStory, "--target", "marlin", "--strict"}).status, 2);
  EXPECT_EQ(lode({"plan", kStory, "--target", "marlin", "--ctx", "64"}).status, 2);
  EXPECT_EQ(lode({"plan", kStory, "--experts", "0-1"}).status, 2);
  EXPECT_EQ(lode({"plan", kStory, "--target", "marlin", "--experts", "3-1"}).status, 2);
  EXPECT_EQ(lode({"plan", kStory, "--target", "marlin", "--experts", "0-4000"}).status, 2);
  EXPECT_EQ(lode({"plan", kStory, "--target", "nobody"}).status, 2);
}

TEST(TargetCommands, PrepareRefusesWhatItWouldPassOverInSilence) {
  const std::string out = temp("passed-over");
  const auto refused = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"prepare", kStory, out};
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = lode(words);
    EXPECT_EQ(answer.status, 2) << answer.err;
    EXPECT_FALSE(std::filesystem::exists(out));
    return answer.err;
  };
  EXPECT_THAT(refused({"--online", "nvfp4"}), HasSubstr("--online: want a target of a GPU engine"));
  EXPECT_THAT(refused({"--fp8-activations"}), HasSubstr("--fp8-activations"));
  EXPECT_THAT(refused({"--flashinfer", "0.6.16"}), HasSubstr("--flashinfer"));
  EXPECT_THAT(refused({"--target", "marlin", "--experts", "0-1", "--ranks", "2"}),
              HasSubstr("one of the two"));
  EXPECT_THAT(refused({"--target", "marlin", "--flashinfer", "0.6.16"}),
              HasSubstr("a use for it: flashinfer-cutlass from mxfp4"));
  EXPECT_THAT(refused({"--target", "vllm-cutlass", "--fp8-activations"}),
              HasSubstr("a use for it: marlin from mxfp4"));
  const std::vector<std::string> exported = {"--target", "marlin", "--export", "safetensors"};
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--dense", "int8"}, {"--consume"}}) {
    std::vector<std::string> words = exported;
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_THAT(refused(words), HasSubstr("--export: want"));
  }
  EXPECT_EQ(lode({"plan", kStory, "--online", "nvfp4"}).status, 2);
}

TEST(TargetCommands, PlanOfARankIsThatOfARun) {
  const json::Value one = json_of(lode({"plan", kStory, "--json"}).out);
  const json::Value rank =
      json_of(lode({"plan", kStory, "--ranks", "2", "--rank", "1", "--json"}).out);
  EXPECT_LT(whole(rank, "weight_bytes"), whole(one, "weight_bytes"));
  EXPECT_EQ(lode({"plan", kStory, "--ranks", "2", "--rank", "2"}).status, 2);
  EXPECT_EQ(lode({"plan", kStory, "--ranks", "2", "--expert-map", "nowhere.json"}).status, 6);
}

// Experts of the story model are a few KiB: with a byte of scratch each unit is made of a window of
// its own.
TEST(TargetCommands, PrepareMakesTheSameBytesWithLittleScratch) {
  for (const std::string target : {"marlin", "flashinfer-trtllm"}) {
    const std::string usual = temp("usual-" + target), little = temp("little-" + target);
    ASSERT_EQ(lode({"prepare", kStory, usual, "--target", target}).status, 0);
    ASSERT_EQ(lode({"prepare", kStory, little, "--target", target, "--scratch", "1"}).status, 0);
    const std::string name = "/weights-00000.bin";
    EXPECT_EQ(text_of(little + name), text_of(usual + name)) << target;
  }
}

TEST(TargetCommands, ScratchIsASizeOfAPreparation) {
  for (const std::string wrong : {"0", "65MiB", "much", "-1"}) {
    const Answer answer =
        lode({"prepare", kStory, temp("no-scratch"), "--target", "marlin", "--scratch", wrong});
    EXPECT_EQ(answer.status, 2) << wrong;
    EXPECT_THAT(answer.err, HasSubstr("--scratch")) << wrong;
  }
  const Answer answer = lode({"prepare", kStory, temp("no-scratch"), "--scratch", "1MiB"});
  EXPECT_EQ(answer.status, 2);
  EXPECT_THAT(answer.err, HasSubstr("--scratch"));
  EXPECT_FALSE(std::filesystem::exists(temp("no-scratch")));
}

}  // namespace
}  // namespace lode::cli
