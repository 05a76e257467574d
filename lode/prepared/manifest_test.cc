#include "lode/prepared/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lode/json/json.h"
#include "lode/prepared/format.h"

namespace lode::prepared {
namespace {

Manifest example() {
  return {.format_version = kFormatVersion,
          .target = "cpu",
          .layout = cpu_layout(),
          .dense = "int8",
          .family = "qwen3_moe",
          .weight_bytes = 12'884'901'888,
          .sources = {{"model-00001-of-00001.safetensors", 5'000'000'000, -7,
                       io::sha256(std::as_bytes(std::span("header", 6)))}},
          .companions = {{"config.json", 1234, io::sha256({})}},
          .data_file_bytes = {34'359'738'368, 4096},
          .index_bytes = 99,
          .root_sha256 = io::sha256(std::as_bytes(std::span("index", 5)))};
}

TEST(Manifest, ComesBackAsItWas) {
  const auto read = decode_manifest(encode(example()));
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(*read, example());
  EXPECT_TRUE(check_runnable(*read));
}

TEST(Manifest, AnyChangedCharacterIsRefused) {
  const std::string text = encode(example());
  const auto whole = json::parse(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string bad = text;
    bad[i] = bad[i] == '1' ? '2' : '1';
    const auto value = json::parse(bad);
    if (value && *value == *whole) continue;  // white space
    EXPECT_FALSE(decode_manifest(bad)) << i;
  }
}

TEST(Manifest, HalfAManifestIsNone) {
  const std::string text = encode(example());
  for (std::size_t size = 0; size + 2 < text.size(); ++size) {
    EXPECT_FALSE(decode_manifest(text.substr(0, size))) << size;
  }
}

TEST(Manifest, NamesThatLeadOutOfTheFolderAreRefused) {
  Manifest manifest = example();
  manifest.companions[0].name = "../config.json";
  const auto read = decode_manifest(encode(manifest));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kInvalidSource);
}

TEST(Manifest, AnotherVersionIsToBePreparedAgain) {
  Manifest manifest = example();
  manifest.format_version = kFormatVersion + 1;
  const auto read = decode_manifest(encode(manifest));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kLayoutMismatch);
  EXPECT_THAT(read.error().hint, testing::HasSubstr("lode prepare"));
}

TEST(Manifest, AnotherLayoutIsReadButNotRun) {
  Manifest manifest = example();
  manifest.layout.panel_rows = 32;
  const auto read = decode_manifest(encode(manifest));
  ASSERT_TRUE(read);
  const Status status = check_runnable(*read);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kLayoutMismatch);
}

}  // namespace
}  // namespace lode::prepared
