#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "lode/base/fmt.h"
#include "tools/synth/folder.h"
#include "tools/synth/read_back.h"
#include "tools/synth/test_cases.h"
#include "tools/synth/write.h"

namespace lode::synth {
namespace {

class Checkpoint : public testing::TestWithParam<Case> {};

// The float model, quantised whole, against what a reader finds in the files.
TEST_P(Checkpoint, HoldsTheFloatModelAfterQuantisation) {
  const Recipe& recipe = GetParam().recipe;
  const Folder folder(GetParam().name);
  const Status written = write(recipe, folder);
  ASSERT_TRUE(written) << to_string(written.error());
  auto reader = Reader::open(folder.path(), recipe);
  ASSERT_TRUE(reader) << to_string(reader.error());
  for (const ExpertRole role : {ExpertRole::kGate, ExpertRole::kUp, ExpertRole::kDown}) {
    for (const std::uint64_t expert : {std::uint64_t{0}, recipe.shape.experts - 1}) {
      const auto got = reader->expert(1, expert, role);
      ASSERT_TRUE(got) << to_string(got.error());
      const auto want = expected_expert(recipe, 1, expert, role);
      ASSERT_TRUE(want) << to_string(want.error());
      EXPECT_EQ(*got, *want) << "expert " << expert << " role " << static_cast<int>(role);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Storages, Checkpoint, testing::ValuesIn(cases()),
                         [](const auto& parameter) { return parameter.param.name; });

TEST(Synth, TheSameScaleOfTheMatrixMakesStoragesOneModel) {
  Recipe fused = make_case("", WeightFormat::kNvfp4, Storage::kFused).recipe;
  Recipe apart = make_case("", WeightFormat::kNvfp4, Storage::kPerExpert).recipe;
  apart.scale_over = ScaleOver::kExpert;
  const Folder one("fused_expert");
  const Folder two("apart_expert");
  ASSERT_TRUE(write(fused, one));
  ASSERT_TRUE(write(apart, two));
  auto left = Reader::open(one.path(), fused);
  auto right = Reader::open(two.path(), apart);
  ASSERT_TRUE(left && right);
  const auto up_left = left->expert(0, 3, ExpertRole::kUp);
  const auto up_right = right->expert(0, 3, ExpertRole::kUp);
  ASSERT_TRUE(up_left && up_right);
  EXPECT_EQ(*up_left, *up_right);
}

TEST(Synth, RandomCodesAreTheSameInEveryStorageAndFinite) {
  Recipe fused = make_case("", WeightFormat::kMxfp4, Storage::kFused).recipe;
  Recipe apart = make_case("", WeightFormat::kMxfp4, Storage::kPerExpert).recipe;
  fused.random_codes = apart.random_codes = true;
  const Folder one("fused_random");
  const Folder two("apart_random");
  ASSERT_TRUE(write(fused, one));
  ASSERT_TRUE(write(apart, two));
  auto left = Reader::open(one.path(), fused);
  auto right = Reader::open(two.path(), apart);
  ASSERT_TRUE(left && right);
  const auto down_left = left->expert(1, 2, ExpertRole::kDown);
  const auto down_right = right->expert(1, 2, ExpertRole::kDown);
  ASSERT_TRUE(down_left && down_right);
  EXPECT_EQ(*down_left, *down_right);
  double squares = 0.0;
  for (const float value : *down_left) squares += double{value} * value;
  const double found = std::sqrt(squares / static_cast<double>(down_left->size()));
  const double wanted = 1.0 / std::sqrt(96.0);  // the spread of the float model's down matrices
  EXPECT_GT(found, wanted / 2);
  EXPECT_LT(found, wanted * 2);
}

TEST(Synth, ItsBytesDoNotChangeFromDayToDay) {
  const Folder folder("digest");
  ASSERT_TRUE(write(make_case("", WeightFormat::kNvfp4, Storage::kPerExpert).recipe, folder));
  std::uint64_t digest = 0xCBF29CE484222325U;  // FNV-1a
  for (const char letter : text_of(folder.path() / "model.safetensors")) {
    digest = (digest ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  }
  EXPECT_EQ(digest, 5776784540074301074U);  // as written on the day of its birth
}

TEST(Synth, RequantisingItsOwnBf16GivesWhatItWritesAtOnce) {
  Recipe recipe = make_case("", WeightFormat::kBf16, Storage::kPerExpert).recipe;
  const Folder plain("plain");
  const Folder again("again");
  const Folder direct("direct");
  ASSERT_TRUE(write(recipe, plain));
  recipe.format = WeightFormat::kNvfp4;
  ASSERT_TRUE(write(recipe, direct));
  const auto source = FolderSource::open(plain.path());
  ASSERT_TRUE(source) << to_string(source.error());
  Recipe from = recipe;
  from.shape = source->shape();
  ASSERT_TRUE(write_checkpoint(from, *source, again.path(), source->config(), 1));
  EXPECT_EQ(text_of(again.path() / "model.safetensors"),
            text_of(direct.path() / "model.safetensors"));
}

TEST(Synth, GateAndUpLieInDifferentShardsWhenAsked) {
  Recipe recipe = make_case("", WeightFormat::kBf16, Storage::kPerExpert).recipe;
  recipe.shards = 2;
  recipe.split_gate_up = true;
  const Folder folder("split");
  ASSERT_TRUE(write(recipe, folder));
  const auto index = checkpoint::open_index(folder.path());
  ASSERT_TRUE(index) << to_string(index.error());
  EXPECT_THAT(index->notes(), testing::IsEmpty());
  const auto* gate = index->find("model.layers.0.mlp.experts.5.gate_proj.weight");
  const auto* up = index->find("model.layers.0.mlp.experts.5.up_proj.weight");
  ASSERT_TRUE(gate != nullptr && up != nullptr);
  EXPECT_NE(gate->shard_id, up->shard_id);
}

TEST(Synth, UnalignedDataBeginAtAnOddOffset) {
  Recipe recipe = make_case("", WeightFormat::kBf16, Storage::kPerExpert).recipe;
  recipe.unaligned = true;
  const Folder folder("odd");
  ASSERT_TRUE(write(recipe, folder));
  const auto index = checkpoint::open_index(folder.path());
  ASSERT_TRUE(index) << to_string(index.error());
  EXPECT_EQ(index->shards()[0].data_offset % 2, 1U);
}

TEST(Synth, DenseFp8LeavesNormsRouterAndEmbeddingAlone) {
  Recipe recipe = make_case("", WeightFormat::kNvfp4, Storage::kPerExpert).recipe;
  recipe.dense_fp8 = true;
  const Folder folder("dense");
  ASSERT_TRUE(write(recipe, folder));
  const auto index = checkpoint::open_index(folder.path());
  ASSERT_TRUE(index) << to_string(index.error());
  const auto dtype = [&index](std::string_view name) {
    const auto* tensor = index->find(name);
    return tensor == nullptr ? std::string("absent") : std::string(tensor->dtype);
  };
  EXPECT_EQ(dtype("model.layers.0.self_attn.q_proj.weight"), "F8_E4M3");
  EXPECT_EQ(dtype("model.layers.0.self_attn.q_proj.weight_scale_inv"), "F32");
  EXPECT_EQ(dtype("lm_head.weight"), "F8_E4M3");
  EXPECT_EQ(dtype("model.embed_tokens.weight"), "BF16");
  EXPECT_EQ(dtype("model.layers.0.mlp.gate.weight"), "BF16");
  EXPECT_EQ(dtype("model.norm.weight"), "BF16");
}

TEST(Synth, SparseFilesHaveTheirSizeAndHardlyABlock) {
  Recipe recipe = make_case("", WeightFormat::kBf16, Storage::kPerExpert).recipe;
  recipe.shape.vocab = 65536;
  recipe.sparse = true;
  const Folder folder("sparse");
  ASSERT_TRUE(write(recipe, folder));
  const auto index = checkpoint::open_index(folder.path());
  ASSERT_TRUE(index) << to_string(index.error());
  struct stat status {};
  ASSERT_EQ(::stat((folder.path() / "model.safetensors").c_str(), &status), 0);
  EXPECT_GT(status.st_size, 16'000'000);
  EXPECT_LT(status.st_blocks * 512, 1'000'000);
}

TEST(Resolve, RefusesWhatCannotBeStored) {
  const auto refused = [](auto change) {
    Recipe recipe = make_case("", WeightFormat::kNvfp4, Storage::kPerExpert).recipe;
    change(recipe);
    const auto resolved = resolve(recipe);
    return !resolved && resolved.error().code == Code::kUsage;
  };
  EXPECT_FALSE(refused([](Recipe&) {}));
  EXPECT_TRUE(refused([](Recipe& r) { r.shape.family = "llama"; }));
  EXPECT_TRUE(refused([](Recipe& r) { r.shape.family = "gpt_oss"; }));
  EXPECT_TRUE(refused([](Recipe& r) { r.storage = Storage::kInterleaved; }));
  EXPECT_TRUE(refused([](Recipe& r) { r.shape.top_k = 9; }));
  EXPECT_TRUE(refused([](Recipe& r) { r.shape.kv_heads = 3; }));
  EXPECT_TRUE(refused([](Recipe& r) { r.shape.hidden = 0; }));
  EXPECT_TRUE(refused([](Recipe& r) { r.shape.hidden = 40; }));
  EXPECT_TRUE(refused([](Recipe& r) { r.shape.intermediate = 8; }));
  EXPECT_TRUE(refused([](Recipe& r) { r.split_gate_up = true; }));
  EXPECT_TRUE(refused([](Recipe& r) { r.rule = formats::Rule::kOcpMxfp4Floor; }));
  EXPECT_TRUE(refused([](Recipe& r) {
    r.format = WeightFormat::kMxfp4;
    r.storage = Storage::kTransposed;
  }));
  EXPECT_TRUE(refused([](Recipe& r) {
    r.format = WeightFormat::kFp8Block;
    r.storage = Storage::kFused;  // 96 is no multiple of 128
  }));
  EXPECT_TRUE(refused([](Recipe& r) {
    r.format = WeightFormat::kFp8Tensor;
    r.storage = Storage::kTransposed;
  }));
  EXPECT_TRUE(refused([](Recipe& r) {
    r.format = WeightFormat::kFp8Tensor;
    r.dense_fp8 = true;
  }));
  EXPECT_TRUE(refused([](Recipe& r) {
    r.storage = Storage::kFused;
    r.scale_over = ScaleOver::kMatrix;
  }));
}

TEST(HashSource, NumbersAreRoughlyNormalAndOfTheirSpread) {
  const HashSource source(7);
  const MatrixId matrix{"query", 0, 0, Kind::kDense, 256, 256, ""};
  std::vector<float> values(256 * 256);
  ASSERT_TRUE(source.rows(matrix, 0, values));
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  // Spread 1/16 of 65536 numbers: the mean's own spread is 2.4e-4; six of it.
  EXPECT_NEAR(sum / 65536, 0.0, 1.5e-3);
  EXPECT_NEAR(std::sqrt(squares / 65536), 1.0 / 16, 1.0 / 16 * 0.02);
}

TEST(HashSource, EveryRowIsTheSameHoweverItIsAskedFor) {
  const HashSource source(7);
  const MatrixId matrix{"expert_up", 1, 2, Kind::kExpert, 8, 33, ""};
  std::vector<float> whole(8 * 33);
  std::vector<float> row(33);
  ASSERT_TRUE(source.rows(matrix, 0, whole));
  ASSERT_TRUE(source.rows(matrix, 5, row));
  EXPECT_TRUE(std::equal(row.begin(), row.end(), whole.begin() + 5 * 33));
}

TEST(HashSource, SeedRoleLayerAndExpertAllMatter) {
  std::set<std::uint64_t> keys;
  const MatrixId base{"expert_up", 1, 2, Kind::kExpert, 8, 8, ""};
  MatrixId other = base;
  keys.insert(row_key(1, base, 0));
  keys.insert(row_key(2, base, 0));
  keys.insert(row_key(1, base, 1));
  other.role = "expert_gate";
  keys.insert(row_key(1, other, 0));
  other = base;
  other.layer = 2;
  keys.insert(row_key(1, other, 0));
  other = base;
  other.expert = 1;
  keys.insert(row_key(1, other, 0));
  EXPECT_EQ(keys.size(), 6U);
}

TEST(StoryModel, FitsIntoTwelveMebibytes) {
  std::uintmax_t bytes = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(LODE_SOURCE_DIR "/models/story-moe-nvfp4")) {
    bytes += entry.file_size();
  }
  EXPECT_GT(bytes, 10'000'000U);
  EXPECT_LE(bytes, 12U << 20);
}

}  // namespace
}  // namespace lode::synth
