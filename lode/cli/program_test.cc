#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lode/base/fmt.h"
#include "lode/cli/test_command.h"
#include "lode/engine/engine.h"

namespace lode::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Program, EveryCommandsHelpHasAnExample) {
  Program program;
  add_commands(program);
  const auto commands = program.app.get_subcommands([](CLI::App*) { return true; });
  ASSERT_GE(commands.size(), 7U);
  for (const CLI::App* command : commands) {
    const Answer answer = lode({command->get_name(), "--help"});
    EXPECT_EQ(answer.status, 0);
    EXPECT_THAT(answer.out, HasSubstr("Examples:\n  ")) << command->get_name();
    EXPECT_THAT(answer.out, HasSubstr("lode " + command->get_name())) << command->get_name();
  }
}

TEST(Program, HelpListsTheExitCodes) {
  const Answer answer = lode({"--help"});
  EXPECT_EQ(answer.status, 0);
  for (const CodeInfo& row : code_table()) {
    EXPECT_THAT(answer.out, HasSubstr(std::string(row.meaning)));
  }
}

TEST(ExitStatus, Is2ForWhatCannotBeMeant) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"dance"},
      {"plan"},
      {"plan", kStory, "--memory", "much"},
      {"plan", kStory, "--memory", "-5"},
      {"plan", kStory, "--ctx", "257"},
      {"plan", kStory, "--ctx", "-1"},
      {"plan", kStory, "--threads", "0"},
      {"plan", kStory, "--compute", "quick"},
      {"run", kStory},
      {"run", kStory, "-p", ""},
      {"run", kStory, "-p", "x", "--prompt-file", "y"},
      {"run", kStory, "-p", "x", "--top-p", "2"},
      {"run", kStory, "-p", "one two three four five six seven", "--ctx", "4"},
      {"bench", kStory, "-p", "512", "-n", "8", "-r", "1"},
      {"bench", kStory, "-p", "8", "-n", "8", "-r", "0"},
      {"perplexity", kStory, "--file", kStory + "/config.json", "--stride", "300"},
      {"perplexity", kStory, "--file", kStory + "/README.md", "--begin-with", "<|nope|>"},
  };
  for (const auto& words : wrong) {
    const Answer answer = lode(words);
    EXPECT_EQ(answer.status, 2) << fmt::format("{}", fmt::join(words, " ")) << "\n" << answer.err;
    EXPECT_NE(answer.err, "");
  }
}

TEST(ExitStatus, Is3ForWhatDoesNotFit) {
  for (const std::string command : {"plan", "run"}) {
    std::vector<std::string> words = {command, kStory, "--memory", "20MiB"};
    if (command == "run") words.insert(words.end(), {"-p", "Once"});
    const Answer answer = lode(words);
    EXPECT_EQ(answer.status, 3);
    EXPECT_THAT(answer.err, HasSubstr("--memory"));
    EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1) << answer.err;
  }
}

TEST(ExitStatus, Is4ForASourceThatIsDamagedOrNotThere) {
  const std::string folder = temp("damaged");
  std::filesystem::create_directories(folder);
  write_temp("damaged/config.json", text_of(kStory + "/config.json"));
  write_temp("damaged/model.safetensors", std::string("\x08\0\0\0\0\0\0\0{}", 10));
  for (const std::string& where : {folder, temp("nowhere")}) {
    for (const std::string command : {"plan", "inspect"}) {
      EXPECT_EQ(lode({command, where}).status, 4) << where;
    }
  }
  EXPECT_EQ(lode({"run", kGolden + "/models/qwen3_moe", "-p", "x"}).status, 4) << "no tokenizer";
}

TEST(ExitStatus, IsThatOfIoForAFileThatIsNotThere) {
  const int io = info(Code::kIo).exit_status;
  EXPECT_EQ(lode({"run", kStory, "--prompt-file", temp("nowhere")}).status, io);
  EXPECT_EQ(lode({"tokenize", kStory, "--file", temp("nowhere")}).status, io);
  EXPECT_EQ(lode({"plan", kStory, "--svg", temp("no/such/folder.svg")}).status, io);
}

// The ledger does not see a text: one that cannot fit the context is not read into memory.
TEST(ExitStatus, Is2ForAPromptFileThatNoContextHolds) {
  const Answer answer = lode({"run", kStory, "--prompt-file", "/dev/zero", "--ctx", "64"});
  EXPECT_EQ(answer.status, 2);
  EXPECT_THAT(answer.err, HasSubstr("/dev/zero: want at most 1048576 bytes, found more (64"));
}

// A script whose variable is not set must not run without its bound.
TEST(ExitStatus, Is2ForAMemoryThatIsEmpty) {
  const Answer answer = lode({"plan", kStory, "--memory", ""});
  EXPECT_EQ(answer.status, 2);
  EXPECT_THAT(answer.err, HasSubstr("--memory"));
}

// A folder whose config names another model, with the story model's tensors.
std::string stranger() {
  const std::string folder = temp("stranger");
  std::filesystem::create_directories(folder);
  std::string config = text_of(kStory + "/config.json");
  for (const std::string name : {"qwen3_moe", "Qwen3MoeForCausalLM"}) {
    for (auto at = config.find(name); at != config.npos; at = config.find(name)) {
      config.replace(at, name.size(), "stranger");
    }
  }
  write_temp("stranger/config.json", config);
  write_temp("stranger/model.safetensors", text_of(kStory + "/model.safetensors"));
  write_temp("stranger/hf_quant_config.json", text_of(kStory + "/hf_quant_config.json"));
  return folder;
}

TEST(ExitStatus, Is11ForAFamilyThatWeDoNotKnow) {
  EXPECT_EQ(lode({"plan", stranger()}).status, 11);
  EXPECT_EQ(lode({"inspect", stranger()}).status, 11);
}

TEST(Inspect, ShowsNoControlCharactersOfTheFiles) {
  std::filesystem::create_directories(temp("orders"));
  write_temp("orders/config.json",
             R"({"architectures": ["\u001b[31mX"], "model_type": "\u001b]0;x\u0007"})");
  write_temp("orders/model.safetensors",
             testing_support::with_header(
                 R"({"a":{"dtype":"\u001b[2J","shape":[1],"data_offsets":[0,1]}})", 1));
  const Answer answer = lode({"inspect", temp("orders")});
  EXPECT_THAT(answer.out, HasSubstr("?[31mX (?]0;x?)"));
  EXPECT_THAT(answer.out, HasSubstr("?[2J"));
  EXPECT_EQ((answer.out + answer.err).find_first_of("\x1b\a"), std::string::npos);
}

TEST(Inspect, OfAStrangerSaysWhatItHoldsAndWhichFamilyItWouldFit) {
  const Answer text = lode({"inspect", stranger()});
  EXPECT_THAT(text.out, HasSubstr("F8_E4M3"));
  EXPECT_THAT(text.out, HasSubstr("as qwen3_moe"));
  EXPECT_THAT(text.out, HasSubstr("every tensor would have its role"));
  const json::Value found = json_of(lode({"inspect", stranger(), "--json"}).out);
  EXPECT_FALSE(*found.find("runs_on_cpu")->as_bool());
  EXPECT_THAT(*found.find("fault")->as_string(), HasSubstr("stranger"));
  ASSERT_FALSE(found.find("would_fit")->as_array()->empty());
}

TEST(Inspect, NamesEveryByteOfTheStoryModel) {
  const json::Value found = json_of(lode({"inspect", kStory, "--json"}).out);
  EXPECT_EQ(*found.find("family")->as_string(), "qwen3_moe");
  EXPECT_TRUE(*found.find("runs_on_cpu")->as_bool());
  std::int64_t bytes = 0;
  for (const json::Value& share : *found.find("dtypes")->as_array()) bytes += whole(share, "bytes");
  EXPECT_EQ(bytes, whole(found, "bytes"));
  EXPECT_THAT(lode({"inspect", kStory}).out, HasSubstr("every tensor has its role"));
}

TEST(Run, FindsOutBeforeTheLoadThatTheReceiptCannotBeWritten) {
  const Answer answer =
      lode({"run", kStory, "-p", "Once", "--receipt", temp("no/such/folder.json")});
  EXPECT_EQ(answer.status, info(Code::kIo).exit_status);
  EXPECT_EQ(answer.out, "");
}

TEST(Inspect, SaysWhereThereIsNoFolderAndWhereThereIsNoTokenizer) {
  EXPECT_THAT(lode({"inspect", temp("no_such_folder")}).err, HasSubstr("nothing of that name"));
  const std::string bare = LODE_GOLDEN_DIR "/models/qwen3_moe";
  EXPECT_THAT(lode({"inspect", bare}).out, HasSubstr("no tokenizer.json"));
  EXPECT_THAT(lode({"inspect", kStory}).out, Not(HasSubstr("no tokenizer.json")));
}

TEST(Run, PrintsThePromptAndTheReferencesText) {
  const Answer answer = lode(
      {"run", kStory, "-p", "The king said to the", "-n", "10", "--greedy", "--compute", "exact"});
  EXPECT_EQ(answer.status, 0);
  EXPECT_THAT(answer.out, StartsWith("The king said to the king: 'I will give you"));
  EXPECT_THAT(answer.err, HasSubstr("ledger equals plan"));
}

TEST(Run, ReadsThePromptFromAFileOrTakesNoNewToken) {
  const std::string file = write_temp("prompt.txt", "The king said to the");
  EXPECT_THAT(lode({"run", kStory, "--prompt-file", file, "-n", "4", "--greedy"}).out,
              StartsWith("The king said to the king"));
  const Answer none = lode({"run", kStory, "--prompt-file", file, "-n", "0"});
  EXPECT_EQ(none.status, 0);
  EXPECT_EQ(none.out, "The king said to the\n");
}

TEST(Run, TakesAPromptThatIsNoUtf8) {
  const Answer answer = lode({"run", kStory, "-p", "Once \xff\xfe upon", "-n", "3"});
  EXPECT_EQ(answer.status, 0) << answer.err;
  EXPECT_THAT(answer.out, StartsWith("Once \xff\xfe upon"));
}

TEST(Run, RefusesAPromptLongerThanTheContextBeforeItLoads) {
  const std::string file = temp("long.txt");
  write_temp("long.txt", text_of(kStory + "/README.md"));
  const Answer answer =
      lode({"run", kStory, "--prompt-file", file, "--ctx", "16", "--progress", "json"});
  EXPECT_EQ(answer.status, 2);
  EXPECT_THAT(answer.err, HasSubstr("at most 16 tokens"));
  EXPECT_EQ(answer.err.find("finished_bytes"), std::string::npos) << answer.err;
}

TEST(Run, ProgressAsJsonIsJsonLineByLine) {
  const Answer answer = lode({"run", kStory, "-p", "x", "-n", "1", "--progress", "json"});
  std::istringstream lines(answer.err);
  std::string line;
  int found = 0;
  while (std::getline(lines, line) && line.starts_with("{")) {
    const json::Value value = json_of(line);
    EXPECT_GE(whole(value, "finished_bytes"), 0);
    EXPECT_GE(whole(value, "total_bytes"), whole(value, "finished_bytes"));
    ++found;
  }
  EXPECT_GT(found, 0);
}

TEST(Tokenize, GoesThereAndBack) {
  const std::string text = "\"Oh, dear!\" said Alice — twice.\n";
  const Answer ids = lode({"tokenize", kStory, "--file", write_temp("text.txt", text)});
  ASSERT_EQ(ids.status, 0) << ids.err;
  EXPECT_FALSE(json_of(ids.out).as_array()->empty());
  const std::string file = write_temp("ids.json", ids.out);
  EXPECT_EQ(lode({"tokenize", kStory, "--decode", "--file", file}).out, text);
}

// The logits of `ids` by the library, without the command.
std::vector<float> logits_of(const std::vector<std::int32_t>& ids) {
  auto source = engine::open_source(kStory);
  LODE_CHECK(source, "the story model cannot be opened");
  engine::Settings settings;
  settings.mode = ops::Mode::kExact;
  settings.logits_rows = static_cast<std::uint32_t>(ids.size());
  const auto plan = engine::plan_run(*source, settings, *memory::read_machine_memory());
  LODE_CHECK(plan, "the story model cannot be planned");
  memory::Ledger ledger(plan->budget.limit_bytes);
  const auto engine = engine::Engine::start(*std::move(source), *plan, ledger);
  LODE_CHECK(engine, "the story model does not start");
  const Status done =
      (*engine)->model().forward(ids, (*engine)->cache(), model::Logits::kAll, (*engine)->logits());
  EXPECT_TRUE(done);
  return {(*engine)->logits().begin(), (*engine)->logits().end()};
}

TEST(Logits, AreThoseOfTheModelInAFileThatCanBeRead) {
  const std::vector<std::int32_t> ids = {5, 600, 7, 3000};
  const std::string file = write_temp("logit_ids.json", "[5, 600, 7, 3000]");
  const std::string folder = temp("logits");
  std::filesystem::create_directories(folder);
  const std::string out = folder + "/model.safetensors";
  const Answer answer =
      lode({"logits", kStory, "--ids", file, "--out", out, "--compute", "exact", "--layers"});
  ASSERT_EQ(answer.status, 0) << answer.err;
  const auto index = checkpoint::open_index(folder);
  ASSERT_TRUE(index) << to_string(index.error());
  const checkpoint::TensorRecord* const record = index->find("logits");
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->dtype, "F32");
  const auto bytes = checkpoint::read_tensor(*index, *record);
  ASSERT_TRUE(bytes);
  std::vector<float> values(bytes->size() / sizeof(float));
  std::memcpy(values.data(), bytes->data(), bytes->size());
  EXPECT_EQ(values, logits_of(ids));
  EXPECT_NE(index->find("hidden.5"), nullptr);
  EXPECT_NE(index->find("router_topk_ids.4"), nullptr);
}

TEST(Logits, RefusesIdsThatTheModelCannotTake) {
  const std::string out = temp("never.safetensors");
  for (const std::string text : {"[]", "[4096]", "[-1]"}) {
    const std::string file = write_temp("bad_ids.json", text);
    EXPECT_EQ(lode({"logits", kStory, "--ids", file, "--out", out}).status, 2) << text;
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(Perplexity, PrintsJson) {
  const std::string book =
      text_of(kGolden + "/story/through-the-looking-glass.txt").substr(0, 4000);
  const Answer answer = lode({"perplexity", kStory, "--file", write_temp("book.txt", book), "--ctx",
                              "128", "--stride", "64", "--json"});
  ASSERT_EQ(answer.status, 0) << answer.err;
  const json::Value result = json_of(answer.out);
  EXPECT_EQ(whole(result, "window_tokens"), 128);
  EXPECT_EQ(whole(result, "stride_tokens"), 64);
  EXPECT_GT(result.find("perplexity")->number(), 1.0);
}

TEST(Bench, PrintsAJsonLineForEachTest) {
  const Answer answer = lode({"bench", kStory, "-p", "32", "-n", "8", "-r", "2", "-t", "1",
                              "--memory", "200MiB", "--json"});
  ASSERT_EQ(answer.status, 0) << answer.err;
  std::istringstream lines(answer.out);
  std::string line;
  std::vector<std::string> tags;
  while (std::getline(lines, line)) {
    const json::Value value = json_of(line);
    tags.push_back(*value.find("tag")->as_string());
    EXPECT_GT(value.find("tok_s")->number(), 0.0);
    EXPECT_TRUE(std::isfinite(value.find("tok_s")->number()));
    EXPECT_EQ(whole(value, "threads"), 1);
    EXPECT_GT(value.find("read_bytes_per_second")->number(), 0.0);
  }
  EXPECT_THAT(tags, ::testing::ElementsAre("pp32", "tg8"));
}

TEST(Bench, LeavesTheBandwidthOutWhereTheBudgetHasNoRoomToMeasureIt) {
  const json::Value plan = json_of(lode({"plan", kStory, "--ctx", "8", "--json"}).out);
  const std::string enough = fmt::format("{}", whole(plan, "peak_bytes"));
  const Answer answer =
      lode({"bench", kStory, "-p", "8", "-n", "8", "-r", "1", "--memory", enough});
  EXPECT_EQ(answer.status, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("tg8"));
}

TEST(Version, NamesKernelsAndFamilies) {
  const Answer answer = lode({"version"});
  EXPECT_EQ(answer.status, 0);
  EXPECT_THAT(answer.out, HasSubstr("scalar"));
  EXPECT_THAT(answer.out, HasSubstr("qwen3_moe"));
}

}  // namespace
}  // namespace lode::cli
