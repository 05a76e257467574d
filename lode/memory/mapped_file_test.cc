#include "lode/memory/mapped_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/memory/held_probe.h"
#include "lode/memory/mapped_table.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/sanitizers.h"

namespace lode::memory {
namespace {

using ::testing::EndsWith;

// Byte i is i / 4096 + i.
std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i / 4096 + i);
  return text;
}

class MappedFile : public ::testing::Test {
 protected:
  FileRange range(std::uint64_t offset, std::uint64_t bytes) const {
    return {.descriptor = descriptor_, .offset_bytes = offset, .bytes = bytes, .path = path_};
  }
  void write(const std::string& text) {
    path_ = folder_.write("weights.bin", text).string();
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(descriptor_, 0);
  }
  ~MappedFile() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  testing_support::TempFolder folder_;
  std::string path_;
  int descriptor_ = -1;
  Ledger ledger_{kGiB};
};

TEST_F(MappedFile, HoldsTheBytesOfTheRangeAfterTheDescriptorIsClosed) {
  const std::string text = pattern(5 * kMiB + 100);
  write(text);
  const auto buffer = map_file(ledger_, Tag::kWeights, range(2 * kMiB, 3 * kMiB + 100), "stage");
  ASSERT_TRUE(buffer) << to_string(buffer.error());
  ::close(std::exchange(descriptor_, -1));
  ASSERT_EQ(buffer->bytes().size(), 3 * kMiB + 100);
  EXPECT_TRUE(
      std::ranges::equal(buffer->bytes(), std::as_bytes(std::span(text)).subspan(2 * kMiB)));
  EXPECT_TRUE(buffer->sealed());
}

TEST_F(MappedFile, IsChargedAsAnAnonymousBufferOfTheSameSizeIs) {
  write(pattern(4 * kMiB));
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kMiB, 3 * kMiB}) {
    const auto buffer = map_file(ledger_, Tag::kWeights, range(0, bytes), "stage");
    ASSERT_TRUE(buffer);
    EXPECT_EQ(ledger_.held_bytes(Tag::kWeights), buffer_cost(bytes).tag_bytes);
    EXPECT_EQ(ledger_.held_bytes(Tag::kPageTables), buffer_cost(bytes).page_table_bytes);
  }
  EXPECT_EQ(ledger_.held_bytes(), 0U);
}

TEST_F(MappedFile, HoldsNothingWhereEitherReservationIsRefused) {
  write(pattern(kMiB));
  for (std::uint64_t k = 0; k < 2; ++k) {
    FailingLedger ledger(kGiB, k);
    const auto buffer = map_file(ledger, Tag::kWeights, range(0, kMiB), "stage");
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code, Code::kOverBudget);
    EXPECT_EQ(ledger.held_bytes(), 0U);
  }
}

TEST_F(MappedFile, RefusesARangeThatTheFileDoesNotHave) {
  write(pattern(8192));
  for (const auto& [offset, bytes] : {std::pair<std::uint64_t, std::uint64_t>{0, 8193},
                                      {8192, 1},
                                      {4096, ~std::uint64_t{0} - 100}}) {
    const auto buffer = map_file(ledger_, Tag::kWeights, range(offset, bytes), "stage");
    ASSERT_FALSE(buffer) << offset;
    EXPECT_EQ(buffer.error().code, Code::kSourceChanged);
    EXPECT_THAT(buffer.error().thing, EndsWith("weights.bin"));
    EXPECT_EQ(ledger_.held_bytes(), 0U);
  }
}

TEST_F(MappedFile, PopulateOfAFileThatWasCutOffIsAnErrorAndNoSignal) {
  write(pattern(4 * kMiB));
  const auto buffer = map_file(ledger_, Tag::kWeights, range(0, 4 * kMiB), "stage");
  ASSERT_TRUE(buffer);
  EXPECT_TRUE(populate(*buffer, "weights.bin"));
  std::filesystem::resize_file(path_, kMiB);
  const Status found = populate(*buffer, "weights.bin");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kSourceChanged);
  EXPECT_EQ(found.error().thing, "weights.bin");
}

TEST_F(MappedFile, IsFoundByAddressWhileItStands) {
  write(pattern(4 * kMiB));
  std::optional<Buffer> buffer;
  {
    auto mapped = map_file(ledger_, Tag::kWeights, range(kMiB, 2 * kMiB), "stage");
    ASSERT_TRUE(mapped);
    buffer = *std::move(mapped);
  }
  const std::byte* const begin = buffer->bytes().data();
  MappedPlace place;
  ASSERT_TRUE(find_mapped(begin + 12345, place));
  EXPECT_EQ(std::string(place.path.data()), path_);
  EXPECT_EQ(place.offset_bytes, kMiB + 12345);
  EXPECT_FALSE(find_mapped(begin - 1, place));
  EXPECT_FALSE(find_mapped(begin + 2 * kMiB, place));
  EXPECT_FALSE(find_mapped(nullptr, place));
  buffer.reset();
  EXPECT_FALSE(find_mapped(begin + 12345, place));
}

TEST(MappedTable, KeepsTheLastPartOfALongPathAndGoesOnWhenFull) {
  const std::string path = std::string(1000, 'x') + "/weights.bin";
  std::vector<int> entries;
  std::array<char, 4096> memory{};
  for (int i = 0; i < 3000; ++i) entries.push_back(remember_mapped(memory.data(), 4096, 0, path));
  EXPECT_GE(entries.front(), 0);
  EXPECT_EQ(entries.back(), -1);
  MappedPlace place;
  ASSERT_TRUE(find_mapped(memory.data(), place));
  EXPECT_THAT(std::string(place.path.data()), EndsWith("x/weights.bin"));
  for (const int entry : entries) forget_mapped(entry);
  EXPECT_FALSE(find_mapped(memory.data(), place));
}

TEST_F(MappedFile, CountsAsHeldFromWhenItsPagesAreIn) {
  if (testing_support::kSanitized) GTEST_SKIP() << "shadow memory counts as held";
  write(pattern(32 * kMiB));
  auto made = HeldProbe::make();
  ASSERT_TRUE(made);
  const HeldProbe probe = made->with_mapped_files();
  const auto buffer = map_file(ledger_, Tag::kWeights, range(0, 32 * kMiB), "stage");
  ASSERT_TRUE(buffer);
  EXPECT_LT(*probe.exact_held_bytes(), 8 * kMiB);
  ASSERT_TRUE(populate(*buffer, "weights.bin"));
  EXPECT_GE(*probe.exact_held_bytes(), 32 * kMiB);
  EXPECT_LT(*probe.exact_held_bytes(), 40 * kMiB);
  EXPECT_GE(*probe.held_bytes(), 31 * kMiB);  // counters lag by a few pages
  EXPECT_LT(*made->exact_held_bytes(), 8 * kMiB) << "without mapped files as before";
}

}  // namespace
}  // namespace lode::memory
