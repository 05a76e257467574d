#include "lode/checkpoint/tensor_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/checkpoint_files.h"

namespace lode::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::shard_of;
using testing_support::TempFolder;
using testing_support::TensorEntry;

constexpr std::string_view kIndexName = "model.safetensors.index.json";

std::string fault_of(const Result<TensorIndex>& index) {
  if (index) return "";
  EXPECT_EQ(index.error().code, Code::kInvalidSource);
  return to_string(index.error());
}

TensorEntry u8(std::string name, std::uint64_t bytes = 4) {
  return {std::move(name), "U8", {bytes}, bytes};
}

// Two shards: "a", "c" in one.safetensors, "b" in two.safetensors.
void write_two_shards(const TempFolder& folder) {
  folder.write("one.safetensors", shard_of({u8("c"), u8("a", 8)}));
  folder.write("two.safetensors", shard_of({u8("b")}));
}

std::string index_text(std::string_view weight_map, std::string_view metadata = "{}") {
  return "{\"metadata\":" + std::string(metadata) + ",\"weight_map\":{" + std::string(weight_map) +
         "}}";
}

TEST(TensorIndex, ReadsShardsThatTheIndexNames) {
  const TempFolder folder;
  write_two_shards(folder);
  folder.write(kIndexName,
               index_text(R"("a":"one.safetensors","b":"two.safetensors","c":"one.safetensors")",
                          R"({"total_size":16})"));
  const Result<TensorIndex> index = open_index(folder.path());
  ASSERT_EQ(fault_of(index), "");
  ASSERT_EQ(index->tensors().size(), 3U);
  EXPECT_EQ(index->tensors()[0].name, "a");
  EXPECT_EQ(index->tensors()[2].name, "c");
  EXPECT_EQ(index->shard_of(*index->find("b")).name, "two.safetensors");
  EXPECT_EQ(index->find("d"), nullptr);
  EXPECT_EQ(index->find("a")->file_offset, index->shards()[0].data_offset + 4);
  EXPECT_EQ(index->tensor_bytes(), 16U);
  EXPECT_THAT(index->notes(), IsEmpty());
  EXPECT_EQ(index->shards()[1].identity.bytes, fs::file_size(folder.path() / "two.safetensors"));
}

TEST(TensorIndex, ReadsAllShardsWhereThereIsNoIndex) {
  const TempFolder folder;
  write_two_shards(folder);
  folder.write("consolidated.safetensors", "not even looked at");
  folder.write("notes.txt", "");
  fs::create_directory(folder.path() / "original");
  folder.write("original/model.safetensors", "not even looked at");
  const Result<TensorIndex> index = open_index(folder.path());
  ASSERT_EQ(fault_of(index), "");
  EXPECT_EQ(index->tensors().size(), 3U);
  EXPECT_THAT(index->notes(), ElementsAre("files left aside: consolidated.safetensors"));
}

TEST(TensorIndex, TakesTheOneFileBeforeAllOthers) {
  const TempFolder folder;
  folder.write("model.safetensors", shard_of({u8("a")}));
  folder.write("golden.safetensors", shard_of({u8("a"), u8("b")}));
  const Result<TensorIndex> index = open_index(folder.path());
  ASSERT_EQ(fault_of(index), "");
  EXPECT_EQ(index->tensors().size(), 1U);
  EXPECT_THAT(index->notes(), ElementsAre("files left aside: golden.safetensors"));
}

TEST(TensorIndex, BelievesTheHeadersWhereTheIndexIsStale) {
  const TempFolder folder;
  write_two_shards(folder);
  folder.write(kIndexName, index_text(R"("a":"one.safetensors","b":"two.safetensors")",
                                      R"({"total_size":999})"));
  const Result<TensorIndex> index = open_index(folder.path());
  ASSERT_EQ(fault_of(index), "");
  EXPECT_NE(index->find("c"), nullptr);
  EXPECT_THAT(index->notes(),
              ElementsAre(HasSubstr("1 tensors of the shards are missing in the index (first: c)"),
                          HasSubstr("the index says 999 bytes, the tensors have 16")));
}

TEST(TensorIndex, TakesAnIndexWithoutUsefulMetadata) {
  for (const char* metadata : {"{}", "null", R"({"total_size":"many"})", R"({"total_size":1e9})"}) {
    const TempFolder folder;
    folder.write("one.safetensors", shard_of({u8("a")}));
    folder.write(kIndexName, index_text(R"("a":"one.safetensors")", metadata));
    EXPECT_EQ(fault_of(open_index(folder.path())), "") << metadata;
  }
}

TEST(TensorIndex, RefusesAMissingShardByName) {
  const TempFolder folder;
  folder.write("one.safetensors", shard_of({u8("a")}));
  folder.write(kIndexName, index_text(R"("a":"one.safetensors","b":"two.safetensors",)"
                                      R"("c":"three.safetensors")"));
  EXPECT_THAT(
      fault_of(open_index(folder.path())),
      AllOf(HasSubstr("all 3 shards"), HasSubstr("2 missing: two.safetensors, three.safetensors")));
}

TEST(TensorIndex, RefusesATensorThatItsShardLacks) {
  const TempFolder folder;
  write_two_shards(folder);
  folder.write(kIndexName, index_text(R"("a":"one.safetensors","x.y":"two.safetensors")"));
  EXPECT_THAT(fault_of(open_index(folder.path())),
              HasSubstr("tensor x.y: want in two.safetensors, as the index says, found in no"));
  folder.write(kIndexName, index_text(R"("a":"two.safetensors","c":"one.safetensors")"));
  EXPECT_THAT(fault_of(open_index(folder.path())), HasSubstr("found in one.safetensors"));
}

TEST(TensorIndex, RefusesTwoCopiesThatNothingSettles) {
  const TempFolder folder;
  folder.write("one.safetensors", shard_of({u8("a"), u8("b")}));
  folder.write("two.safetensors", shard_of({u8("b", 8)}));
  EXPECT_THAT(fault_of(open_index(folder.path())),
              HasSubstr("tensor b: want one copy, or an index that says which counts, found copies "
                        "in one.safetensors and two.safetensors"));
  folder.write(kIndexName, index_text(R"("a":"one.safetensors","z":"two.safetensors")"));
  EXPECT_THAT(fault_of(open_index(folder.path())), HasSubstr("tensor b"));
}

TEST(TensorIndex, TheIndexSettlesWhichCopyCounts) {
  for (const auto& [shard, bytes] : {std::pair("one", 4U), std::pair("two", 8U)}) {
    const TempFolder folder;
    folder.write("one.safetensors", shard_of({u8("a"), u8("b", 4)}));
    folder.write("two.safetensors", shard_of({u8("b", 8), u8("c")}));
    folder.write(kIndexName, index_text(R"("a":"one.safetensors","c":"two.safetensors","b":")" +
                                        std::string(shard) + ".safetensors\""));
    const Result<TensorIndex> index = open_index(folder.path());
    ASSERT_EQ(fault_of(index), "");
    EXPECT_EQ(index->tensors().size(), 3U);
    EXPECT_EQ(index->find("b")->bytes, bytes);
    EXPECT_THAT(index->notes(), ElementsAre(HasSubstr("1 copies of tensors are left aside")));
  }
}

TEST(TensorIndex, RefusesShardNamesThatLeaveTheFolder) {
  const TempFolder folder;
  folder.write("one.safetensors", shard_of({u8("a")}));
  for (const char* name :
       {"../one.safetensors", "/etc/one.safetensors", "sub/one.safetensors", "..", ".",
        ".hidden.safetensors", "", "a\\\\b.safetensors", "one.safetensors\\u0000",
        "one .safetensors", "C:one.safetensors", "config.json"}) {
    folder.write(kIndexName, index_text("\"a\":\"" + std::string(name) + "\""));
    EXPECT_THAT(fault_of(open_index(folder.path())), HasSubstr("plain file name")) << name;
  }
  const std::string too_long = std::string(250, 'a') + ".safetensors";
  folder.write(kIndexName, index_text("\"a\":\"" + too_long + "\""));
  EXPECT_THAT(fault_of(open_index(folder.path())), HasSubstr("plain file name"));
}

TEST(TensorIndex, RefusesAnIndexOfAnotherForm) {
  const TempFolder folder;
  folder.write("one.safetensors", shard_of({u8("a")}));
  for (const char* text : {"", "[]", "{}", "1", R"({"weight_map":[]})", R"({"weight_map":"x"})",
                           R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":{}}})",
                           R"({"weight_map":{"a":["one.safetensors"]}})",
                           R"({"weight_map":{"a":"one.safetensors","a":"one.safetensors"}})",
                           R"({"metadata":{"weight_map":{"a":"one.safetensors"}}})"}) {
    folder.write(kIndexName, text);
    EXPECT_THAT(fault_of(open_index(folder.path())), HasSubstr("model.safetensors.index.json"))
        << text;
  }
}

TEST(TensorIndex, FollowsLinksToRegularFilesOnly) {
  const TempFolder folder;
  const TempFolder blobs;
  blobs.write("blob", shard_of({u8("a")}));
  fs::create_symlink(blobs.path() / "blob", folder.path() / "model.safetensors");
  EXPECT_EQ(fault_of(open_index(folder.path())), "");
  fs::remove(folder.path() / "model.safetensors");
  fs::create_symlink(blobs.path(), folder.path() / "model.safetensors");
  EXPECT_THAT(fault_of(open_index(folder.path())),
              HasSubstr("want a regular file, found a folder"));
  fs::remove(folder.path() / "model.safetensors");
  fs::create_symlink("nowhere", folder.path() / "model.safetensors");
  EXPECT_THAT(fault_of(open_index(folder.path())), HasSubstr("missing"));
  fs::remove(folder.path() / "model.safetensors");
  ASSERT_EQ(::mkfifo((folder.path() / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(fault_of(open_index(folder.path())), HasSubstr("a special file"));
}

TEST(TensorIndex, RefusesFoldersWithoutWeights) {
  const TempFolder folder;
  EXPECT_THAT(fault_of(open_index(folder.path())), HasSubstr("no weights"));
  EXPECT_THAT(fault_of(open_index(folder.path() / "nothing")), HasSubstr("checkpoint folder"));
}

TEST(TensorIndex, NamesTheShardThatIsDamaged) {
  const TempFolder folder;
  write_two_shards(folder);
  const auto path = folder.path() / "two.safetensors";
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_THAT(fault_of(open_index(folder.path())),
              AllOf(HasSubstr("tensor b"), HasSubstr("two.safetensors")));
}

TEST(TensorIndex, WantNamesTheNearestTensorOrTheUnknownDtype) {
  const TempFolder folder;
  folder.write("model.safetensors", shard_of({u8("model.layers.0.mlp.gate.weight"),
                                              u8("model.norm.weight"),
                                              {"odd", "F9_X", {1}, 1}}));
  const Result<TensorIndex> index = open_index(folder.path());
  ASSERT_EQ(fault_of(index), "");
  EXPECT_TRUE(index->want("model.norm.weight").has_value());
  const auto missing = index->want("model.layers.0.mlp.gates.weight");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kInvalidSource);
  EXPECT_EQ(missing.error().hint, "nearest is model.layers.0.mlp.gate.weight");
  const auto odd = index->want("odd");
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(odd.error().code, Code::kUnsupported);
  EXPECT_THAT(to_string(odd.error()), AllOf(HasSubstr("odd"), HasSubstr("F9_X")));
  EXPECT_EQ(index->nearest_name("zzz"), "");
}

TEST(TensorIndex, WithPrefixGivesExactlyTheNamesThatBeginSo) {
  const TempFolder folder;
  folder.write("model.safetensors",
               shard_of({u8("a.b"), u8("a.b.c"), u8("a.bc"), u8("a"), u8("b"), u8("a.b.a")}));
  const Result<TensorIndex> index = open_index(folder.path());
  ASSERT_EQ(fault_of(index), "");
  std::vector<std::string> names;
  for (const TensorRecord& tensor : index->with_prefix("a.b.")) names.emplace_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("a.b.a", "a.b.c"));
  EXPECT_EQ(index->with_prefix("").size(), 6U);
  EXPECT_THAT(index->with_prefix("c"), IsEmpty());
}

TEST(TensorIndex, ReadsATensorAndNoticesAnotherFileInItsPlace) {
  const TempFolder folder;
  std::string file = shard_of({u8("a", 2), u8("b", 3)});
  file.replace(file.size() - 3, 3, "xyz");
  folder.write("model.safetensors", file);
  const Result<TensorIndex> index = open_index(folder.path());
  ASSERT_EQ(fault_of(index), "");
  const auto bytes = read_tensor(*index, *index->find("b"));
  ASSERT_TRUE(bytes.has_value());
  EXPECT_THAT(*bytes, ElementsAre(std::byte{'x'}, std::byte{'y'}, std::byte{'z'}));
  EXPECT_TRUE(check_unchanged(index->shards()[0].path, index->shards()[0].identity).has_value());
  folder.write("model.safetensors", file + "!");
  const auto changed = read_tensor(*index, *index->find("b"));
  ASSERT_FALSE(changed.has_value());
  EXPECT_EQ(changed.error().code, Code::kSourceChanged);
  const Status same = check_unchanged(index->shards()[0].path, index->shards()[0].identity);
  ASSERT_FALSE(same.has_value());
  EXPECT_EQ(same.error().code, Code::kSourceChanged);
}

TEST(TensorIndex, SurvivesAMove) {
  const TempFolder folder;
  write_two_shards(folder);
  Result<TensorIndex> index = open_index(folder.path());
  ASSERT_EQ(fault_of(index), "");
  const TensorRecord* const before = index->find("b");
  const TensorIndex moved = *std::move(index);
  EXPECT_EQ(moved.find("b"), before);
  EXPECT_EQ(before->name, "b");
}

TEST(TensorIndex, HoldsManyTensorsInLittleMemory) {
  const TempFolder folder;
  const std::vector<std::string> parts = {"weight_packed", "weight_scale", "weight_global_scale"};
  for (int shard = 0; shard < 20; ++shard) {
    std::vector<TensorEntry> tensors;
    for (int i = 0; i < 300; ++i) {
      for (const std::string& part : parts) {
        tensors.push_back(u8("model.layers." + std::to_string(shard) + ".mlp.experts." +
                                 std::to_string(i) + ".gate_proj." + part,
                             1 << 20));
      }
    }
    const auto [header, bytes] = testing_support::header_of(tensors);
    const std::string file = testing_support::with_header(header, 0);
    folder.write_sparse("model-" + std::to_string(shard) + ".safetensors", file,
                        file.size() + bytes);
  }
  const Result<TensorIndex> index = open_index(folder.path());
  ASSERT_EQ(fault_of(index), "");
  ASSERT_EQ(index->tensors().size(), 18'000U);
  // 180,000 tensors in 64 MiB are 372 bytes each; growing may need twice what is held.
  EXPECT_LT(index->held_bytes(), 18'000U * 372 / 2);
}

}  // namespace
}  // namespace lode::checkpoint
