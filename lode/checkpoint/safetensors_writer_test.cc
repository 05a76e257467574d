#include "lode/checkpoint/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <fstream>

#include "lode/checkpoint/tensor_index.h"

namespace lode::checkpoint {
namespace {

using ::testing::HasSubstr;

std::filesystem::path temporary(const char* name) {
  return std::filesystem::path(::testing::TempDir()) / name;
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const std::filesystem::path path = temporary("writer.safetensors");
  const std::array<float, 6> numbers = {1, 2, 3, 4, 5, -6};
  const std::array<std::int32_t, 1> one = {7};
  const std::vector<TensorToWrite> tensors = {
      {"logits", formats::Format::kF32, {2, 3}, std::as_bytes(std::span(numbers))},
      {"a \"name\"", formats::Format::kI32, {}, std::as_bytes(std::span(one))}};
  ASSERT_TRUE(write_safetensors(path, tensors));

  const auto index = open_file(path);
  ASSERT_TRUE(index) << to_string(index.error());
  ASSERT_EQ(index->tensors().size(), 2U);
  const TensorRecord* const logits = index->find("logits");
  ASSERT_NE(logits, nullptr);
  EXPECT_EQ(describe(*logits), "F32 [2, 3]");
  EXPECT_EQ(logits->file_offset % 8, 0U);
  const auto bytes = read_tensor(*index, *logits);
  ASSERT_TRUE(bytes);
  EXPECT_TRUE(std::ranges::equal(*bytes, std::as_bytes(std::span(numbers))));
  EXPECT_NE(index->find("a \"name\""), nullptr);
}

TEST(SafetensorsWriter, RefusesBytesThatDoNotFitAndLeavesNothing) {
  const std::filesystem::path path = temporary("refused.safetensors");
  const std::array<float, 2> numbers = {};
  const TensorToWrite wrong{"x", formats::Format::kF32, {3}, std::as_bytes(std::span(numbers))};
  const TensorToWrite right{"x", formats::Format::kF32, {2}, std::as_bytes(std::span(numbers))};
  const Status misfit = write_safetensors(path, std::vector{wrong});
  ASSERT_FALSE(misfit);
  EXPECT_EQ(misfit.error().code, Code::kUsage);
  const Status twice = write_safetensors(path, std::vector{right, right});
  ASSERT_FALSE(twice);
  EXPECT_THAT(to_string(twice.error()), HasSubstr("twice"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SafetensorsWriter, SaysWhereItCannotWrite) {
  const Status status = write_safetensors("/nowhere/at/all.safetensors", {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kIo);
  EXPECT_THAT(to_string(status.error()), HasSubstr("/nowhere/at/all.safetensors"));
}

TEST(SafetensorsWriter, DoesNotReplaceAPipeOrAFolder) {
  const std::filesystem::path pipe = temporary("writer.pipe");
  std::filesystem::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::filesystem::path folder = temporary("writer.folder");
  std::filesystem::create_directory(folder);
  for (const std::filesystem::path& path : {pipe, folder}) {
    const Status written = write_safetensors(path, {});
    ASSERT_FALSE(written) << path;
    EXPECT_EQ(written.error().code, Code::kIo);
    EXPECT_EQ(written.error().thing, path.string());
    EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_directory(folder));
}

TEST(SafetensorsWriter, WritesWhereALinkLeadsAndLeavesTheLink) {
  const std::filesystem::path file = temporary("writer.target");
  const std::filesystem::path link = temporary("writer.link");
  std::filesystem::remove(link);
  std::ofstream(file) << "old";
  std::filesystem::create_symlink(file, link);
  ASSERT_TRUE(write_safetensors(link, {}));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(open_file(file));
}

}  // namespace
}  // namespace lode::checkpoint
