#include "lode/cli/fault_handler.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "lode/base/bytes.h"
#include "lode/memory/mapped_file.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/sanitizers.h"

namespace lode::cli {
namespace {

// Maps the second MiB of a file, cuts the file off, and touches it.
void touch_what_was_cut_off(const std::filesystem::path& path) {
  install_fault_handler();
  memory::Ledger ledger(kGiB);
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  const auto buffer = memory::map_file(
      ledger, memory::Tag::kWeights,
      {.descriptor = descriptor, .offset_bytes = kMiB, .bytes = kMiB, .path = path.string()}, "x");
  std::filesystem::resize_file(path, 4096);
  const volatile std::byte* const bytes = buffer->bytes().data();
  const std::byte lost = bytes[12345];
  static_cast<void>(lost);
}

TEST(FaultHandler, NamesFileAndOffsetAndExitsAsForAChangedSource) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const testing_support::TempFolder folder;
  const auto path = folder.write("weights.bin", std::string(2 * kMiB, 'x'));
  EXPECT_EXIT(touch_what_was_cut_off(path), ::testing::ExitedWithCode(5),
              "weights.bin: want its byte 1060921, found the file cut off");
}

TEST(FaultHandler, LeavesOtherBusErrorsAsTheyAre) {
  if (testing_support::kSanitized) GTEST_SKIP() << "the sanitizer has a handler of its own";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        install_fault_handler();
        ::raise(SIGBUS);
        ::raise(SIGBUS);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace lode::cli
