#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "lode/json/json.h"

namespace lode::placement::golden {

// For tests only: tests/golden/eplb.json, whose "meta" says who made it.

/// The cases of one section; a missing one fails the test.
inline json::Array cases(std::string_view section) {
  std::ifstream file(LODE_GOLDEN_DIR "/eplb.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto parsed = json::parse(text);
  const json::Value* found = parsed ? parsed->find(section) : nullptr;
  if (found == nullptr || found->as_array() == nullptr || found->as_array()->empty()) {
    ADD_FAILURE() << "tests/golden/eplb.json has no cases of " << section;
    return {};
  }
  return *found->as_array();
}

inline std::int64_t integer(const json::Value& value, std::string_view name) {
  const json::Value* found = value.find(name);
  if (found == nullptr || found->as_int() == nullptr) {
    ADD_FAILURE() << "no integer " << name;
    return 0;
  }
  return *found->as_int();
}
inline std::size_t size(const json::Value& value, std::string_view name) {
  return static_cast<std::size_t>(integer(value, name));
}

template <class T>
std::vector<T> numbers(const json::Value& value) {
  std::vector<T> list;
  if (value.as_array() == nullptr) {
    ADD_FAILURE() << "want a list, found " << value.kind();
    return list;
  }
  for (const json::Value& one : *value.as_array()) list.push_back(static_cast<T>(one.number()));
  return list;
}
template <class T>
std::vector<T> numbers(const json::Value& value, std::string_view name) {
  const json::Value* found = value.find(name);
  return numbers<T>(found == nullptr ? json::Value() : *found);
}

template <class T>
std::vector<std::vector<T>> rows(const json::Value& value, std::string_view name) {
  std::vector<std::vector<T>> lists;
  const json::Value* found = value.find(name);
  if (found == nullptr || found->as_array() == nullptr) {
    ADD_FAILURE() << "no lists " << name;
    return lists;
  }
  for (const json::Value& row : *found->as_array()) lists.push_back(numbers<T>(row));
  return lists;
}

}  // namespace lode::placement::golden
