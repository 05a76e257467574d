#include "lode/prepared/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "lode/layout/panels.h"
#include "lode/memory/buffer.h"
#include "lode/prepared/start.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/prepared_writer.h"

namespace lode::prepared {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing_support::TempFolder;

// A stage with one matrix and, in layers, a bank.
loader::StagePlan stage_of(std::int32_t layer, std::uint64_t experts, std::uint64_t intermediate) {
  loader::StagePlan stage;
  stage.layer = layer;
  stage.name = layer < 0 ? "model" : "layer " + std::to_string(layer);
  const auto panels = *layout::PanelLayout::make(formats::kPlainBf16, 32, 256);
  stage.places = {{layer < 0 ? families::Role::kOutputHead : families::Role::kQuery, panels.meta(),
                   0, panels.total_bytes()}};
  stage.slab_bytes = panels.total_bytes();
  stage.used_bytes = panels.used_bytes();
  if (layer >= 0) {
    const auto record =
        *layout::make_expert_record(512, intermediate, formats::kNvfp4, formats::kNvfp4, false);
    stage.bank = loader::BankPlan{record, experts};
    stage.used_bytes += experts * (record.record_bytes - record.padding_bytes);
  }
  const memory::BufferCost dense = memory::buffer_cost(stage.slab_bytes);
  stage.mapped_bytes = dense.tag_bytes;
  stage.page_table_bytes = dense.page_table_bytes;
  if (stage.bank) {
    const memory::BufferCost bank = memory::buffer_cost(stage.bank->bytes());
    stage.mapped_bytes += bank.tag_bytes;
    stage.page_table_bytes += bank.page_table_bytes;
  }
  return stage;
}

Index index_of(std::int32_t layers, std::uint64_t experts, std::uint64_t intermediate) {
  std::vector<loader::StagePlan> stages;
  for (std::int32_t layer = -1; layer < layers; ++layer) {
    stages.push_back(stage_of(layer, experts, intermediate));
  }
  Index index = make_index(std::move(stages));
  index.chunk_crcs.assign(index.num_chunks(), 0);
  return index;
}

// A folder whose data files are holes.
void write_sparse(const std::filesystem::path& folder, const Index& index,
                  const testing_support::PreparedNames& names = {}) {
  const std::vector<std::uint64_t> sizes = file_bytes(index.sections);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::ofstream(folder / data_file_name(i)).put('\0');
    std::filesystem::resize_file(folder / data_file_name(i), sizes[i]);
  }
  testing_support::write_head(folder, index, names);
}

class PreparedFolder : public ::testing::Test {
 protected:
  PreparedFolder() {
    companions_.write("config.json", "{\"model_type\": \"none\"}");
    write_sparse(folder_.path(), index_of(2, 4, 128),
                 {.companions = {companions_.path() / "config.json"}});
  }
  Error fault(Verification verification = Verification::kHeader) const {
    const auto checkpoint = open(folder_.path(), verification);
    return checkpoint ? Error{.thing = "no fault"} : checkpoint.error();
  }
  std::filesystem::path file(std::string_view name) const { return folder_.path() / name; }

  TempFolder companions_;
  TempFolder folder_;
};

TEST_F(PreparedFolder, OpensWhatWasWritten) {
  for (const auto verification :
       {Verification::kNone, Verification::kHeader, Verification::kSampled, Verification::kFull}) {
    const auto checkpoint = open(folder_.path(), verification);
    ASSERT_TRUE(checkpoint) << to_string(checkpoint.error());
    EXPECT_EQ(checkpoint->index.stages.size(), 3U);
    EXPECT_EQ(checkpoint->files.size(), 1U);
    std::uint64_t bytes = 0;
    for (const Section& section : checkpoint->index.sections) bytes += section.bytes;
    EXPECT_EQ(checkpoint->data_bytes(), bytes);
    EXPECT_LE(bytes, std::filesystem::file_size(file("weights-00000.bin"))) << "with its holes";
    EXPECT_GT(checkpoint->held_bytes(), 0U);
  }
}

TEST_F(PreparedFolder, WithoutManifestIsUnfinishedAndSaysHowToGoOn) {
  std::filesystem::remove(file("manifest.json"));
  EXPECT_TRUE(is_prepared(folder_.path()));
  EXPECT_EQ(fault().code, Code::kInvalidSource);
  EXPECT_THAT(fault().hint, HasSubstr("lode prepare DIR " + folder_.path().string()));
}

TEST_F(PreparedFolder, IsToldFromOtherFolders) {
  EXPECT_TRUE(is_prepared(folder_.path()));
  EXPECT_FALSE(is_prepared(companions_.path()));
  EXPECT_FALSE(is_prepared("/nonexistent"));
}

TEST_F(PreparedFolder, ADataFileOfAnotherSizeOrNoneIsNamed) {
  const auto bytes = std::filesystem::file_size(file("weights-00000.bin"));
  for (const auto verification : {Verification::kNone, Verification::kHeader}) {
    for (const auto other : {bytes - 1, bytes + 1, std::uintmax_t{0}}) {
      std::filesystem::resize_file(file("weights-00000.bin"), other);
      EXPECT_EQ(fault(verification).code, Code::kInvalidSource);
      EXPECT_THAT(fault(verification).thing, EndsWith("weights-00000.bin"));
    }
  }
  std::filesystem::remove(file("weights-00000.bin"));
  EXPECT_EQ(fault().code, Code::kInvalidSource);
}

TEST_F(PreparedFolder, AnIndexOfAnotherCheckpointIsRefusedWhateverItsOwnSum) {
  testing_support::write_bytes(file("index.bin"), encode(index_of(2, 4, 256)));
  EXPECT_EQ(fault(Verification::kHeader).code, Code::kInvalidSource);
  EXPECT_THAT(fault(Verification::kHeader).found, HasSubstr("another"));
  EXPECT_EQ(fault(Verification::kNone).code, Code::kInvalidSource) << "the sizes differ";
}

TEST_F(PreparedFolder, EveryByteOfTheIndexCounts) {
  const testing_support::Bytes whole = testing_support::read_bytes(file("index.bin"));
  for (std::size_t i = 0; i < whole.size(); i += 13) {
    testing_support::Bytes other = whole;
    other[i] ^= std::byte{1};
    testing_support::write_bytes(file("index.bin"), other);
    EXPECT_NE(fault(Verification::kHeader).thing, "no fault") << i;
    EXPECT_NE(fault(Verification::kNone).thing, "no fault") << i;
  }
  testing_support::Bytes cut(whole.begin(), whole.end() - 1);
  testing_support::write_bytes(file("index.bin"), cut);
  EXPECT_THAT(fault().thing, EndsWith("index.bin"));
}

TEST_F(PreparedFolder, AChangedCompanionIsNamedUnlessNothingIsLookedAt) {
  folder_.write("config.json", "{\"model_type\": \"NONE\"}");
  EXPECT_EQ(fault(Verification::kNone).thing, "no fault");
  EXPECT_THAT(fault(Verification::kHeader).thing, EndsWith("config.json"));
  folder_.write("config.json", "{}");
  EXPECT_THAT(fault(Verification::kHeader).thing, EndsWith("config.json"));
  std::filesystem::remove(file("config.json"));
  EXPECT_THAT(fault(Verification::kHeader).thing, EndsWith("config.json"));
}

TEST_F(PreparedFolder, AnotherLayoutOrTargetIsRefusedWithTheCommandThatPreparesAgain) {
  const testing_support::Bytes bytes = testing_support::read_bytes(file("manifest.json"));
  const std::string text(static_cast<const char*>(static_cast<const void*>(bytes.data())),
                         bytes.size());
  const auto with = [&](auto change) {
    Manifest manifest = *decode_manifest(text);
    change(manifest);
    folder_.write("manifest.json", encode(manifest));
    return fault();
  };
  for (const Error& error : {with([](Manifest& m) { m.target = "cuda"; }),
                             with([](Manifest& m) { m.layout.panel_rows = 32; }),
                             with([](Manifest& m) { m.layout.version += 1; }),
                             with([](Manifest& m) { m.format_version += 1; })}) {
    EXPECT_EQ(error.code, Code::kLayoutMismatch);
    EXPECT_THAT(error.hint, HasSubstr("lode prepare"));
  }
  EXPECT_EQ(with([](Manifest& m) { m.weight_bytes += 1; }).code, Code::kInvalidSource);
  EXPECT_EQ(with([](Manifest& m) { m.data_file_bytes.push_back(1); }).code, Code::kInvalidSource);
  EXPECT_EQ(with([](Manifest& m) { m.index_bytes += 1; }).code, Code::kInvalidSource);
  EXPECT_EQ(with([](Manifest& m) { m.index_bytes = ~0ULL >> 1; }).code, Code::kInvalidSource);
}

// 61 layers of 256 experts, three matrices each with codes, scales and two scalars: what makes
// 180,000 tensors in the files is 122 sections here. 350 GB of holes.
TEST(PreparedGiant, IsMappedInAHandfulOfStepsWhateverItsTensors) {
  const TempFolder folder;
  const Index index = index_of(61, 256, 11000);
  write_sparse(folder.path(), index);
  const auto begin = std::chrono::steady_clock::now();
  const auto checkpoint = open(folder.path(), Verification::kHeader);
  ASSERT_TRUE(checkpoint) << to_string(checkpoint.error());
  const loader::LoadPlan plan = load_plan(*checkpoint, {});
  memory::Ledger ledger(plan.peak_bytes());
  const auto weights = start(*checkpoint, plan, {}, ledger);
  const auto passed = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(weights) << to_string(weights.error());
  EXPECT_GT(checkpoint->data_bytes(), 140ULL * 1000 * 1000 * 1000);
  EXPECT_EQ(index.sections.size(), 1U + 2 * 61) << "what is mapped, one by one";
  EXPECT_LT(checkpoint->held_bytes(), 4 * kMiB);
  RecordProperty("microseconds", static_cast<int>(passed / std::chrono::microseconds(1)));
  EXPECT_LT(passed, std::chrono::seconds(5)) << "a machine that is busy; 50 ms are wanted";
}

}  // namespace
}  // namespace lode::prepared
