#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lode/cli/program.h"
#include "lode/json/json.h"
#include "tests/support/checkpoint_files.h"

// For tests only: the command line called as a function.

namespace lode::cli {

inline const std::string kStory = std::string(LODE_SOURCE_DIR) + "/models/story-moe-nvfp4";
inline const std::string kGolden = LODE_GOLDEN_DIR;

struct Answer {
  int status = 0;
  std::string out;
  std::string err;
};

inline Answer lode(std::vector<std::string> words) {
  words.insert(words.begin(), "lode");
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Answer answer;
  answer.status = run_program(static_cast<int>(argv.size()), argv.data());
  answer.out = testing::internal::GetCapturedStdout();
  answer.err = testing::internal::GetCapturedStderr();
  return answer;
}

inline std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string temp(const std::string& name) {
  static const testing_support::TempFolder folder;
  return (folder.path() / name).string();
}

inline std::string write_temp(const std::string& name, std::string_view text) {
  const std::string path = temp(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline json::Value json_of(const std::string& text) {
  auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *std::move(value) : json::Value();
}

inline std::int64_t whole(const json::Value& value, std::string_view name) {
  const json::Value* const member = value.find(name);
  EXPECT_NE(member, nullptr) << name;
  return member == nullptr || member->as_int() == nullptr ? -1 : *member->as_int();
}

}  // namespace lode::cli
