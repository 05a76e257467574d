#include "lode/prepared/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lode/prepared/consume.h"
#include "lode/prepared/prepare_test_support.h"

namespace lode::prepared {
namespace {

using testing::HasSubstr;

TEST(Prepare, MakesAFolderThatIsWhatALoadMakes) {
  const PreparedModel model;
  const auto report = model.prepare();
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_EQ(report->written_bytes, report->output_bytes);
  model.expect_whole();
}

TEST(Prepare, HasALedgerAsPlanned) {
  const PreparedModel model;
  memory::Ledger ledger(kRoomy);
  auto preparation = model.open();
  ASSERT_TRUE(preparation) << to_string(preparation.error());
  ledger.begin_stage("scan");
  const auto expected = (*preparation)->expected_stages();
  const std::uint64_t tables = (*preparation)->table_bytes();
  ASSERT_TRUE((*preparation)->run(ledger));
  ASSERT_EQ(ledger.stages().size(), expected.size() + 1);
  EXPECT_EQ(memory::total(ledger.stages().front().held_bytes), tables);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(ledger.stages()[i + 1], expected[i]);
  EXPECT_EQ(ledger.held_bytes(), 0U);
}

TEST(Prepare, OfWhatIsPreparedSaysSoAndTouchesNothing) {
  const PreparedModel model;
  ASSERT_TRUE(model.prepare());
  const auto before = std::filesystem::last_write_time(model.out() / "weights-00000.bin");
  auto again = model.open();
  ASSERT_TRUE(again) << to_string(again.error());
  EXPECT_TRUE((*again)->is_finished());
  EXPECT_EQ((*again)->done_bytes(), (*again)->output_bytes());
  memory::Ledger ledger(kRoomy);
  const auto report = (*again)->run(ledger);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->written_bytes, 0U);
  EXPECT_EQ(std::filesystem::last_write_time(model.out() / "weights-00000.bin"), before);
}

TEST(Prepare, IntoAFolderWithOtherSettingsIsRefusedUnlessForced) {
  PreparedModel model;
  ASSERT_TRUE(model.prepare());
  model.replan(loader::DenseFormat::kInt8);
  const auto other = model.open();
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kUsage);
  EXPECT_THAT(other.error().hint, HasSubstr("--force"));
  ASSERT_TRUE(model.prepare({.force = true}));
  model.expect_whole();
}

TEST(Prepare, IntoTheSourceOrAFolderOfAnotherKindIsRefused) {
  const PreparedModel model;
  for (const auto& out : {model.source_folder(), model.source_folder() / "out",
                          model.source_folder() / ".." / model.source_folder().filename()}) {
    const auto preparation = model.open({}, io::system_calls(), out);
    ASSERT_FALSE(preparation) << out;
    EXPECT_EQ(preparation.error().code, Code::kUsage);
  }
  const testing_support::TempFolder other;
  other.write("thesis.txt", "years of work");
  for (const bool force : {false, true}) {
    const auto preparation = model.open({.force = force}, io::system_calls(), other.path());
    ASSERT_FALSE(preparation);
    EXPECT_EQ(preparation.error().code, Code::kUsage);
    EXPECT_THAT(preparation.error().found, HasSubstr("thesis.txt"));
  }
  EXPECT_EQ(testing_support::read_text(other.path() / "thesis.txt"), "years of work");
}

TEST(Prepare, AtOnceIntoOneFolderIsRefused) {
  const PreparedModel model;
  class Meanwhile final : public io::SystemCalls {
   public:
    explicit Meanwhile(const PreparedModel& model) : model_(model) {}
    int rename(const std::string& from, const std::string& to) override {
      if (!second) second = model_.prepare();
      return io::SystemCalls::rename(from, to);
    }
    std::optional<Result<Report>> second;

   private:
    const PreparedModel& model_;
  } calls(model);
  ASSERT_TRUE(model.prepare({}, calls));
  ASSERT_TRUE(calls.second);
  ASSERT_FALSE(*calls.second);
  EXPECT_THAT(to_string(calls.second->error()), HasSubstr("another lode prepare"));
  model.expect_whole();
}

class SmallDisk final : public io::SystemCalls {
 public:
  std::int64_t free_bytes(const std::string&) override { return 1 << 20; }
};

TEST(Prepare, ThatIsRefusedMakesNothing) {
  PreparedModel model;
  SmallDisk small;
  EXPECT_EQ(model.prepare({}, small).error().code, Code::kNoSpace);
  memory::Ledger tight(kMiB);
  const auto preparation = model.open();
  ASSERT_TRUE(preparation);
  EXPECT_EQ((*preparation)->run(tight).error().code, Code::kOverBudget);
  std::filesystem::create_hard_link(model.shard(), model.source_folder() / ".." / "second-name");
  model.reindex();
  EXPECT_EQ(model.prepare({.consume = true}).error().code, Code::kUsage);
  EXPECT_FALSE(std::filesystem::exists(model.out()));
}

TEST(Prepare, ThatIsRefusedLeavesWhatWasPreparedBefore) {
  PreparedModel model;
  ASSERT_TRUE(model.prepare());
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(model.out())) {
      found.insert(entry.path().filename().string());
    }
    return found;
  };
  const std::set<std::string> before = names();
  memory::Ledger tight(kMiB);
  const auto forced = model.open({.force = true});
  ASSERT_TRUE(forced) << "what is dropped makes room";
  EXPECT_EQ((*forced)->run(tight).error().code, Code::kOverBudget);
  std::ofstream(model.source_folder() / kGivenAwayFile) << "{\"given_to\": \"/elsewhere\"}";
  EXPECT_EQ(model.prepare({.force = true}).error().code, Code::kInvalidSource);
  EXPECT_EQ(names(), before);
  model.expect_whole();
}

TEST(Prepare, ForcedCountsTheRoomOfWhatItDrops) {
  const PreparedModel model({.storage = ExpertStorage::kNvfp4, .layers = 3, .experts = 8});
  ASSERT_TRUE(model.prepare());
  class FullDisk final : public io::SystemCalls {
   public:
    std::int64_t free_bytes(const std::string&) override { return 4 << 20; }
  } calls;
  EXPECT_TRUE(model.open({.force = true}, calls));
  const testing_support::TempFolder other;
  EXPECT_FALSE(model.open({}, calls, other.path()));
}

TEST(Prepare, StoppedAndCalledAgainFromAChangedSourceIsRefusedUnlessForced) {
  PreparedModel model;
  loader::Progress progress;
  progress.cancel = true;
  const auto stopped = model.prepare({}, io::system_calls(), &progress);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kInterrupted);
  EXPECT_THAT(stopped.error().thing, HasSubstr("preparing"));
  EXPECT_THAT(stopped.error().hint, HasSubstr("the same command goes on"));
  EXPECT_FALSE(std::filesystem::exists(model.out() / kManifestFile));
  model.touch_source();
  const auto again = model.open();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kSourceChanged);
  EXPECT_THAT(again.error().hint, HasSubstr("--force"));
  ASSERT_TRUE(model.prepare({.force = true}));
  model.expect_whole();
}

TEST(Prepare, ThatDoesNotFitOnTheDiskIsRefusedBeforeWithWhatIsMissing) {
  const PreparedModel model;
  SmallDisk calls;
  const auto preparation = model.open({}, calls);
  ASSERT_FALSE(preparation);
  EXPECT_EQ(preparation.error().code, Code::kNoSpace);
  EXPECT_THAT(preparation.error().found, HasSubstr("more are needed"));
}

TEST(Prepare, ConsumesItsSourceBehindItsWork) {
  PreparedModel model({.storage = ExpertStorage::kNvfp4, .layers = 3, .experts = 8});
  const std::string header = model.source_header();
  const std::uint64_t before = model.source_disk_bytes();
  const auto report = model.prepare({.consume = true});
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_GT(report->freed_bytes, before - header.size() - 64 * kKiB);
  EXPECT_LE(report->freed_bytes, before);
  EXPECT_LT(model.source_disk_bytes(), header.size() + 64 * kKiB);
  EXPECT_EQ(model.source_header(), header);
  model.expect_whole();
  model.reindex();
  model.replan_sources();
  EXPECT_TRUE(model.open()) << "the same call says that it is done";
  const testing_support::TempFolder other;
  const auto again = model.open({}, io::system_calls(), other.path());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kInvalidSource);
  EXPECT_THAT(to_string(again.error()), HasSubstr(model.out().filename().string()));
  EXPECT_FALSE(model.open({.force = true}));
}

TEST(Prepare, ConsumesASourceForOneFolderAtATime) {
  const PreparedModel model;
  const auto first = model.open({.consume = true});
  ASSERT_TRUE(first) << to_string(first.error());
  const auto other = model.out().parent_path() / "other";
  const auto second = model.open({.consume = true}, io::system_calls(), other);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kIo);
  EXPECT_FALSE(std::filesystem::exists(other));
  memory::Ledger ledger(kRoomy);
  ASSERT_TRUE((*first)->run(ledger));
  model.expect_whole();
  const auto third = model.open({.consume = true}, io::system_calls(), other);
  EXPECT_FALSE(third);
}

TEST(Prepare, ConsumesNoFileThatOthersMayNeed) {
  PreparedModel model;
  std::filesystem::create_hard_link(model.source_folder() / "model.safetensors",
                                    model.source_folder().parent_path() / "second-name");
  model.reindex();
  const auto linked = model.open({.consume = true});
  ASSERT_FALSE(linked);
  EXPECT_EQ(linked.error().code, Code::kUsage);
  EXPECT_THAT(linked.error().found, HasSubstr("2 names"));
}

TEST(Prepare, EndsCleanlyWhicheverReservationIsRefused) {
  const PreparedModel model;
  for (std::uint64_t k = 0;; ++k) {
    memory::FailingLedger ledger(kRoomy, k);
    auto preparation = model.open();
    ASSERT_TRUE(preparation) << to_string(preparation.error());
    const auto report = (*preparation)->run(ledger);
    EXPECT_EQ(ledger.held_bytes(), 0U);
    if (!ledger.refused()) break;
    ASSERT_FALSE(report) << k;
    EXPECT_EQ(report.error().code, Code::kOverBudget);
  }
  model.expect_whole();
}

}  // namespace
}  // namespace lode::prepared
