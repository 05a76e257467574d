#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lode/json/json.h"

// For tests only: tests/golden/moe_routing.json.

namespace lode::moe::test {

inline const json::Value& golden() {
  static const json::Value value = [] {
    std::ifstream file(LODE_GOLDEN_DIR "/moe_routing.json");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    auto parsed = json::parse(text);
    if (!parsed) std::abort();
    return *std::move(parsed);
  }();
  return value;
}

inline const json::Value& section(std::string_view name) { return *golden().find(name); }

/// A list of numbers, some of them written as "nan", "inf" or "-inf".
inline std::vector<float> floats(const json::Value& list) {
  std::vector<float> out;
  for (const json::Value& value : *list.as_array()) {
    out.push_back(value.is_number() ? static_cast<float>(value.number())
                                    : std::strtof(value.as_string()->c_str(), nullptr));
  }
  return out;
}

}  // namespace lode::moe::test
