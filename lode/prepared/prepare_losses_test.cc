#include <gmock/gmock.h>

#include <algorithm>

#include "lode/prepared/prepare_test_support.h"
#include "lode/prepared/test_faulty_calls.h"

// What an engine's layout loses is counted on the way, and refused where that was asked for.

namespace lode::prepared {
namespace {

using loader::LayerLosses;
using targets::Loss;
using targets::Target;
using ::testing::HasSubstr;

constexpr testing_support::SyntheticShape kModel{.storage = ExpertStorage::kNvfp4,
                                                 .layers = 2,
                                                 .experts = 8,
                                                 .hidden = 512,
                                                 .intermediate = 512,
                                                 .vocab = 64};
constexpr Options kStrict{.strict = true, .unit_bytes = 1};
constexpr Options kSmallUnits{.unit_bytes = 1};

/// NVFP4 experts that Marlin holds as they are: all scales are 1.
class CleanModel : public PreparedModel {
 public:
  CleanModel() : PreparedModel(kModel) {
    const std::string ones(kModel.hidden * kModel.intermediate / 16, '\x38');
    const std::string one(std::string_view("\0\0\x80\x3F", 4));
    for (auto& layer : binding().experts) {
      for (loader::ExpertSource& expert : layer) {
        for (const loader::MatrixSource* matrix : {&expert.gate, &expert.up, &expert.down}) {
          write(matrix->scales.offset_bytes, ones);
          write(matrix->matrix_scale_offset_bytes, one);
        }
      }
    }
    reindex();
    replan(loader::DenseFormat::kAsStored);
    choose({.target = Target::kMarlin});
  }

  /// Bytes at the beginning of a matrix's scales.
  void put(const loader::MatrixSource& matrix, std::string_view scales) {
    write(matrix.scales.offset_bytes, scales);
    reindex();
    replan(loader::DenseFormat::kAsStored);
    choose({.target = Target::kMarlin});
  }

 private:
  void write(std::uint64_t offset_bytes, std::string_view bytes) const {
    std::fstream file(shard(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset_bytes));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
};

TEST(PrepareLosses, AreNoneOfScalesThatTheLayoutHolds) {
  const FoldersInMemory in_memory;
  const CleanModel model;
  const auto report = model.prepare(kStrict);
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_TRUE(report->losses.empty());
}

TEST(PrepareLosses, AreCountedOverTheExpertsOfEachLayer) {
  const FoldersInMemory in_memory;
  CleanModel model;
  // 448 leaves no room for 2^-9; -1.
  model.put(model.binding().experts[1][2].up, "\x7E\x01\xB8");
  model.put(model.binding().experts[1][5].gate, "\x02\x03");
  model.put(model.binding().experts[0][7].down, "\xB8");
  const auto report = model.prepare();
  ASSERT_TRUE(report) << to_string(report.error());
  ASSERT_EQ(report->losses.size(), 2U);
  EXPECT_EQ(report->losses[0].layer, 0U);
  EXPECT_EQ(report->losses[0].counts.of(Loss::kNegativeScales), 1U);
  EXPECT_EQ(report->losses[0].counts.of(Loss::kFlushedScales), 0U);
  EXPECT_EQ(report->losses[1].layer, 1U);
  EXPECT_EQ(report->losses[1].counts.of(Loss::kNegativeScales), 1U);
  EXPECT_EQ(report->losses[1].counts.of(Loss::kFlushedScales), 3U);
}

TEST(PrepareLosses, StrictRefusesNamingLayerExpertAndTensorAndLeavesWhatCanBeGoneOnWith) {
  const FoldersInMemory in_memory;
  CleanModel model;
  model.put(model.binding().experts[1][5].down, "\xB8");
  const auto refused = model.prepare(kStrict);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCheckFailed);
  EXPECT_THAT(to_string(refused.error()), HasSubstr("layer 1"));
  EXPECT_THAT(to_string(refused.error()), HasSubstr("expert 5"));
  EXPECT_THAT(to_string(refused.error()), HasSubstr("w2_weight_scale"));
  EXPECT_THAT(to_string(refused.error()), HasSubstr("1 block scales below zero"));
  EXPECT_FALSE(std::filesystem::exists(model.out() / kManifestFile));
  const auto report = model.prepare();
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_LT(report->written_bytes, report->output_bytes);
  model.expect_whole();
}

TEST(PrepareLosses, StrictFindsThemInWhatIsFinished) {
  const FoldersInMemory in_memory;
  CleanModel model;
  ASSERT_TRUE(model.prepare());
  EXPECT_TRUE(model.prepare(kStrict));
  model.put(model.binding().experts[0][0].gate, "\xB8");
  ASSERT_TRUE(model.prepare({.force = true}));
  const auto refused = model.prepare(kStrict);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCheckFailed);
  EXPECT_THAT(to_string(refused.error()), HasSubstr("layer 0"));
  model.expect_whole();  // and is left alone
}

TEST(PrepareLosses, StrictFindsThemInWhatAnEarlierRunMadeWhereverItStopped) {
  const FoldersInMemory in_memory;
  CleanModel model;
  model.put(model.binding().experts[0][1].gate, "\xB8");
  std::uint64_t least_rest = UINT64_MAX;
  for (std::uint64_t first = 0;; ++first) {
    FailingWrites calls(first);
    static_cast<void>(model.prepare(kSmallUnits, calls));
    if (!calls.failed()) break;
    const auto begun = *model.open(kSmallUnits);
    least_rest = std::min(least_rest, begun->output_bytes() - begun->done_bytes());
    const auto refused = model.prepare(kStrict);
    ASSERT_FALSE(refused) << first;
    EXPECT_EQ(refused.error().code, Code::kCheckFailed) << to_string(refused.error());
    EXPECT_THAT(to_string(refused.error()), HasSubstr("expert 1"));
    std::filesystem::remove_all(model.out());
  }
  EXPECT_LT(least_rest, model.engine_plan().banks[1].bytes);  // the first bank was whole once
}

TEST(PrepareLosses, StrictRecordsInTheLedgerWhatItPlannedOfALookBackToo) {
  const FoldersInMemory in_memory;
  const CleanModel model;
  const std::uint64_t last_bank_bytes = model.engine_plan().banks[1].bytes;
  const auto rest_bytes = [&model] {
    const auto preparation = *model.open(kSmallUnits);
    return preparation->output_bytes() - preparation->done_bytes();
  };
  for (std::uint64_t first = 0;; ++first) {  // until the first bank is there
    FailingWrites calls(first);
    ASSERT_FALSE(model.prepare(kSmallUnits, calls));
    if (rest_bytes() < last_bank_bytes) break;
    std::filesystem::remove_all(model.out());
  }
  for (int i = 0; i < 2; ++i) {  // gone on with; then of what is finished
    memory::Ledger ledger(kRoomy);
    const auto preparation = model.open(kStrict);
    ASSERT_TRUE(preparation);
    const auto planned = (*preparation)->expected_stages();
    ASSERT_TRUE((*preparation)->run(ledger));
    EXPECT_EQ(ledger.stages(), planned);
    EXPECT_TRUE(std::ranges::any_of(planned, [](const memory::StageUse& stage) {
      return stage.name == "a look at what was made";
    }));
  }
}

}  // namespace
}  // namespace lode::prepared
