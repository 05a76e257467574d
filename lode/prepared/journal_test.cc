#include "lode/prepared/journal.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/checkpoint_files.h"
#include "tests/support/edited_checkpoint.h"

namespace lode::prepared {
namespace {

using testing_support::bytes_of;
using testing_support::read_text;
using testing_support::TempFolder;

Fingerprint fingerprint(char of) {
  const std::string text(1, of);
  return {io::sha256(bytes_of(text)), io::sha256(bytes_of(text + "s")),
          io::sha256(bytes_of(text + "t"))};
}

Result<OutputFile> open(const std::filesystem::path& path) {
  return OutputFile::open(io::system_calls(), path.string(), OutputFile::Way::kBuffered);
}

// A journal of three records: two of chunks, one of holes between them.
std::string example(const TempFolder& folder, char of) {
  const auto path = folder.path() / (std::string("journal-") + of);
  auto journal = Journal::create(*open(path), fingerprint(of), 8);
  EXPECT_TRUE(journal);
  EXPECT_TRUE(journal->add_chunks(0, std::vector<std::uint32_t>{11, 12, 13}));
  EXPECT_TRUE(journal->add_holes(4));
  EXPECT_TRUE(journal->add_chunks(3, std::vector<std::uint32_t>{14, 15}));
  return read_text(path);
}

TEST(Journal, SaysWhatWasWrittenInto) {
  const TempFolder folder;
  const auto state = read_journal(bytes_of(example(folder, 'a')));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->fingerprint, fingerprint('a'));
  EXPECT_EQ(state->chunk_crcs, (std::vector<std::uint32_t>{11, 12, 13, 14, 15}));
  EXPECT_EQ(state->holes_up_to_stage, 4U);
}

TEST(Journal, CutAnywhereSaysWhatItsWholeRecordsSay) {
  const TempFolder folder;
  const std::string text = example(folder, 'a');
  const std::uint64_t end = read_journal(bytes_of(text))->end_bytes;
  std::size_t before = 0;
  for (std::size_t size = 0; size <= end; ++size) {
    const auto state = read_journal(bytes_of(std::string_view(text).substr(0, size)));
    ASSERT_EQ(state.has_value(), size >= 256) << size;
    if (!state) continue;
    EXPECT_GE(state->chunk_crcs.size(), before);
    before = state->chunk_crcs.size();
    EXPECT_EQ(before, size < 288 ? 0U : (size < end ? 3U : 5U)) << size;
  }
}

TEST(Journal, WithAChangedBitSaysNoMoreThanWhatStandsBeforeIt) {
  const TempFolder folder;
  const std::string text = example(folder, 'a');
  const auto whole = *read_journal(bytes_of(text));
  for (std::size_t i = 0; i < whole.end_bytes; ++i) {
    std::string bad = text;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    const auto state = read_journal(bytes_of(bad));
    EXPECT_TRUE(!state || state->chunk_crcs.size() < whole.chunk_crcs.size()) << i;
    if (!state) continue;
    EXPECT_TRUE(
        std::equal(state->chunk_crcs.begin(), state->chunk_crcs.end(), whole.chunk_crcs.begin()));
  }
}

TEST(Journal, TakesNoRecordOfAnother) {
  const TempFolder folder;
  const std::string a = example(folder, 'a');
  const std::string b = example(folder, 'b');
  const auto state = read_journal(bytes_of(a.substr(0, 256) + b.substr(256)));
  ASSERT_TRUE(state);
  EXPECT_TRUE(state->chunk_crcs.empty());
}

TEST(Journal, GoesOnBehindItsLastWholeRecord) {
  const TempFolder folder;
  const std::string text = example(folder, 'a');
  const auto path = folder.write("journal", text.substr(0, text.find("CHNK", 300) + 7));
  const auto state = read_journal(bytes_of(read_text(path)));
  ASSERT_TRUE(state);
  ASSERT_EQ(state->chunk_crcs.size(), 3U);
  Journal journal = Journal::resume(*open(path), *state);
  ASSERT_TRUE(journal.add_chunks(3, std::vector<std::uint32_t>{99}));
  const auto again = read_journal(bytes_of(read_text(path)));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->chunk_crcs, (std::vector<std::uint32_t>{11, 12, 13, 99}));
}

}  // namespace
}  // namespace lode::prepared
