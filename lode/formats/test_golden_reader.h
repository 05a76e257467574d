#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace lode::formats::golden {

/// Source: tests/golden, whose README says who made it.
// For tests only: reads the golden files, whose form we know, without the JSON room, which this
// room may not see. A missing name aborts the test.

/// The whole file below tests/golden/.
std::string read_file(const std::string& path);

/// Text behind `"name":` for each name in turn, so {"encode", "x", "torch"} finds encode.x.torch.
std::string_view behind(std::string_view json, std::initializer_list<std::string_view> names);

/// A list of fp32 bit patterns written in hexadecimal, and one of integers.
std::vector<std::uint32_t> hex_list(std::string_view text);
std::vector<std::uint32_t> integer_list(std::string_view text);

/// The integer at the front of `text`.
std::uint32_t integer(std::string_view text);

/// The bytes of one tensor of a safetensors file.
std::vector<std::byte> tensor_bytes(std::string_view file, std::string_view name);

}  // namespace lode::formats::golden
