#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lode/json/json.h"

namespace lode::text::golden {

// For tests: files of tests/golden/text. A missing file or member ends the test program loudly.

std::string read_file(const std::string& name);
json::Value read_json(const std::string& name);

const json::Array& items(const json::Value& object, std::string_view name);
const std::string& text(const json::Value& object, std::string_view name);
bool flag(const json::Value& object, std::string_view name);
std::vector<std::int32_t> ids(const json::Value& object, std::string_view name);
std::vector<std::string> texts(const json::Value& object, std::string_view name);
std::string from_hex(std::string_view hex);

}  // namespace lode::text::golden
