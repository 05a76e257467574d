#include "lode/prepared/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "lode/layout/panels.h"
#include "lode/memory/buffer.h"
#include "lode/prepared/checkpoint.h"
#include "lode/prepared/chunk_check.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/prepared_writer.h"

namespace lode::prepared {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing_support::TempFolder;

// A model that is one matrix of five chunks and a bit, of zeros and holes.
Index one_matrix() {
  loader::StagePlan stage;
  stage.name = "model";
  const auto panels = *layout::PanelLayout::make(formats::kPlainBf16, 1312, 4096);
  stage.places = {{families::Role::kOutputHead, panels.meta(), 0, panels.total_bytes()}};
  stage.slab_bytes = panels.total_bytes();
  stage.used_bytes = panels.used_bytes();
  const memory::BufferCost cost = memory::buffer_cost(stage.slab_bytes);
  stage.mapped_bytes = cost.tag_bytes;
  stage.page_table_bytes = cost.page_table_bytes;
  Index index = make_index({stage});
  for (std::uint64_t i = 0; i < index.num_chunks(); ++i) {
    const std::uint64_t bytes = std::min(kChunkBytes, index.sections[0].bytes - i * kChunkBytes);
    index.chunk_crcs[i] = io::crc32c(testing_support::Bytes(bytes));
  }
  return index;
}

class VerifiedFolder : public ::testing::Test {
 protected:
  VerifiedFolder() {
    companions_.write("config.json", "{}");
    companions_.write("tokenizer.json", "[]");
    const Index index = one_matrix();
    std::ofstream(data()).put('\0');
    std::filesystem::resize_file(data(), file_bytes(index.sections)[0]);
    testing_support::write_head(folder_.path(), index,
                                {.companions = {companions_.path() / "config.json",
                                                companions_.path() / "tokenizer.json"}});
  }
  std::filesystem::path data() const { return folder_.path() / "weights-00000.bin"; }
  void damage(std::uint64_t offset) const {
    std::fstream file(data(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put('x');
  }
  VerifyReport report() const {
    memory::Ledger ledger(kGiB);
    auto found = verify(folder_.path(), 2, ledger);
    EXPECT_TRUE(found) << to_string(found.error());
    EXPECT_EQ(ledger.held_bytes(), 0U);
    return found ? *std::move(found) : VerifyReport{};
  }

  TempFolder companions_;
  TempFolder folder_;
};

TEST_F(VerifiedFolder, HasNoFaultAsItWasWritten) {
  const VerifyReport found = report();
  EXPECT_TRUE(found.faults.empty()) << to_string(found.faults.front());
  EXPECT_EQ(found.num_companions, 2U);
  EXPECT_EQ(found.num_files, 1U);
  EXPECT_EQ(found.num_chunks, 6U);
  EXPECT_EQ(found.num_bytes, std::filesystem::file_size(data()));
}

TEST_F(VerifiedFolder, EveryFaultIsNamedNotTheFirstAlone) {
  damage(5);                    // chunk 0
  damage(2 * kChunkBytes + 9);  // chunks 2 and 3: one fault
  damage(3 * kChunkBytes + 70);
  damage(std::filesystem::file_size(data()) - 1);  // the last, a short one
  folder_.write("config.json", "[]");
  std::filesystem::remove(folder_.path() / "tokenizer.json");
  const VerifyReport found = report();
  ASSERT_EQ(found.faults.size(), 5U);
  EXPECT_THAT(found.faults[0].thing, EndsWith("config.json"));
  EXPECT_THAT(found.faults[1].thing, EndsWith("tokenizer.json"));
  EXPECT_EQ(found.faults[2].thing, "model");
  EXPECT_THAT(found.faults[2].where, EndsWith("weights-00000.bin at byte 0"));
  EXPECT_THAT(found.faults[3].where, EndsWith("at byte " + std::to_string(2 * kChunkBytes)));
  EXPECT_THAT(found.faults[3].found, HasSubstr("2 chunks"));
  EXPECT_THAT(found.faults[4].where, EndsWith("at byte " + std::to_string(5 * kChunkBytes)));
}

TEST_F(VerifiedFolder, AFileThatWasCutOffIsNamedWithTheChunksThatAreGone) {
  std::filesystem::resize_file(data(), 3 * kChunkBytes + 100);
  const VerifyReport found = report();
  ASSERT_EQ(found.faults.size(), 2U);
  EXPECT_THAT(found.faults[0].found, HasSubstr("cut off"));
  EXPECT_THAT(found.faults[1].where, EndsWith("at byte " + std::to_string(3 * kChunkBytes)));
  EXPECT_THAT(found.faults[1].found, HasSubstr("its end at byte"));
  std::filesystem::remove(data());
  EXPECT_EQ(report().faults.size(), 1U);
}

TEST_F(VerifiedFolder, WithoutManifestOrWithADamagedIndexThereIsOneFault) {
  std::filesystem::resize_file(folder_.path() / "index.bin", 200);
  EXPECT_EQ(report().faults.size(), 1U);
  std::filesystem::remove(folder_.path() / "manifest.json");
  ASSERT_EQ(report().faults.size(), 1U);
  EXPECT_THAT(report().faults[0].hint, HasSubstr("lode prepare"));
}

TEST_F(VerifiedFolder, StopsWhereTheProgressIsTold) {
  loader::Progress progress;
  progress.cancel = true;
  memory::Ledger ledger(kGiB);
  EXPECT_EQ(verify(folder_.path(), 2, ledger, &progress).error().code, Code::kInterrupted);
}

TEST_F(VerifiedFolder, EveryRefusedReservationIsAnError) {
  for (std::uint64_t refused_idx = 0;; ++refused_idx) {
    memory::FailingLedger ledger(kGiB, refused_idx);
    const auto found = verify(folder_.path(), 2, ledger);
    if (!ledger.refused()) break;
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Code::kOverBudget);
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

// Reads that are short, interrupted, and from one chunk on not possible.
class Faulty final : public io::SystemCalls {
 public:
  explicit Faulty(std::uint64_t bad_offset) : bad_offset_(bad_offset) {}
  std::int64_t pread(int descriptor, std::span<std::byte> out, std::uint64_t offset) override {
    if (offset >= bad_offset_) return -EIO;
    if (interrupt_.exchange(!interrupt_.load())) return -EINTR;
    return SystemCalls::pread(descriptor, out.first(std::min<std::size_t>(out.size(), 10007)),
                              offset);
  }

 private:
  std::uint64_t bad_offset_;
  std::atomic<bool> interrupt_ = true;
};

TEST_F(VerifiedFolder, ShortAndInterruptedReadsDoNotMatterAndAnUnreadableDiskIsAFault) {
  const Checkpoint checkpoint = *open(folder_.path(), Verification::kHeader);
  testing_support::Bytes buffers(2 * kCheckBufferBytes);
  Faulty whole(~std::uint64_t{0});
  const auto fine = check_chunks(checkpoint, {}, buffers, nullptr, whole);
  ASSERT_TRUE(fine);
  EXPECT_TRUE(fine->faults.empty());
  EXPECT_EQ(fine->num_bytes, checkpoint.data_bytes());
  Faulty torn(4 * kChunkBytes);
  const auto found = check_chunks(checkpoint, {}, buffers, nullptr, torn);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->num_bad_chunks, 2U);
  ASSERT_EQ(found->faults.size(), 1U);
  EXPECT_THAT(found->faults[0].found, HasSubstr("Input/output error"));
}

}  // namespace
}  // namespace lode::prepared
