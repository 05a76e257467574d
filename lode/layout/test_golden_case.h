#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lode/json/json.h"

namespace lode::layout::testing {

/// For tests only: a case of the golden weight layouts, whose README says what it is, by the bytes
/// of its tensors; none where there is no such tensor, and the test fails.
class GoldenCase {
 public:
  explicit GoldenCase(const std::string& name) {
    std::ifstream stream(LODE_GOLDEN_DIR "/weight_layouts/" + name + ".safetensors",
                         std::ios::binary);
    file_.assign(std::istreambuf_iterator<char>(stream), {});
    std::uint64_t header_bytes = 0;
    EXPECT_GE(file_.size(), sizeof header_bytes) << name;
    std::memcpy(&header_bytes, file_.data(), sizeof header_bytes);
    data_ = sizeof header_bytes + header_bytes;
    auto header = json::parse(std::string_view(file_).substr(sizeof header_bytes, header_bytes));
    EXPECT_TRUE(header) << name;
    if (header) header_ = *std::move(header);
  }

  std::vector<std::byte> bytes(const std::string& name) const {
    const json::Value* const entry = header_.find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (entry == nullptr) return {};
    const json::Array& offsets = *entry->find("data_offsets")->as_array();
    const auto begin = static_cast<std::size_t>(offsets[0].number());
    std::vector<std::byte> out(static_cast<std::size_t>(offsets[1].number()) - begin);
    std::memcpy(out.data(), file_.data() + data_ + begin, out.size());
    return out;
  }

 private:
  std::string file_;
  std::uint64_t data_ = 0;
  json::Value header_;
};

}  // namespace lode::layout::testing
