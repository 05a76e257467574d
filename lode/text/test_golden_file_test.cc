#include "lode/text/test_golden_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

namespace lode::text::golden {
namespace {

[[noreturn]] void fail(std::string_view what) {
  std::cerr << "golden data: " << what << '\n';
  std::abort();
}

const json::Value& member(const json::Value& object, std::string_view name) {
  const json::Value* value = object.find(name);
  if (value == nullptr) fail(name);
  return *value;
}

}  // namespace

std::string read_file(const std::string& name) {
  std::ifstream in(std::string(LODE_GOLDEN_DIR) + "/text/" + name, std::ios::binary);
  if (!in) fail(name);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

json::Value read_json(const std::string& name) {
  auto parsed = json::parse(read_file(name));
  if (!parsed) fail(to_string(parsed.error()));
  return *std::move(parsed);
}

const json::Array& items(const json::Value& object, std::string_view name) {
  const json::Array* array = member(object, name).as_array();
  if (array == nullptr) fail(name);
  return *array;
}

const std::string& text(const json::Value& object, std::string_view name) {
  const std::string* value = member(object, name).as_string();
  if (value == nullptr) fail(name);
  return *value;
}

bool flag(const json::Value& object, std::string_view name) {
  const bool* value = member(object, name).as_bool();
  if (value == nullptr) fail(name);
  return *value;
}

std::vector<std::int32_t> ids(const json::Value& object, std::string_view name) {
  std::vector<std::int32_t> out;
  for (const json::Value& id : items(object, name)) {
    out.push_back(static_cast<std::int32_t>(*id.as_int()));
  }
  return out;
}

std::vector<std::string> texts(const json::Value& object, std::string_view name) {
  std::vector<std::string> out;
  for (const json::Value& item : items(object, name)) out.push_back(*item.as_string());
  return out;
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

TEST(GoldenFile, HexIsReadByteForByte) {
  EXPECT_EQ(from_hex("00ff41"), std::string("\0\xFF"
                                            "A",
                                            3));
}

}  // namespace lode::text::golden
