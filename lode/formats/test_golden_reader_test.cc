#include "lode/formats/test_golden_reader.h"

#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "lode/base/check.h"

namespace lode::formats::golden {
namespace {

/// The items of the JSON list that starts at the front of `text`, quotes taken off.
std::vector<std::string_view> items(std::string_view text) {
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']', open);
  LODE_CHECK(open != text.npos && close != text.npos, "a list was expected in the golden file");
  std::vector<std::string_view> found;
  std::size_t at = open + 1;
  while (at < close) {
    const std::size_t begin = text.find_first_not_of(" \n\t\",", at);
    if (begin >= close) break;
    const std::size_t end = text.find_first_of(" \n\t\",]", begin);
    found.push_back(text.substr(begin, end - begin));
    at = end;
  }
  return found;
}

std::vector<std::uint32_t> numbers(std::string_view text, int base) {
  std::vector<std::uint32_t> out;
  for (const std::string_view item : items(text)) {
    std::uint32_t value = 0;
    const auto parsed = std::from_chars(item.data(), item.data() + item.size(), value, base);
    LODE_CHECK(parsed.ec == std::errc{}, "a number was expected in the golden file");
    out.push_back(value);
  }
  return out;
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream in(std::string(LODE_GOLDEN_DIR "/") + path, std::ios::binary);
  LODE_CHECK(in.good(), "a golden file is missing");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string_view behind(std::string_view json, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const std::size_t found = json.find('"' + std::string(name) + "\":");
    LODE_CHECK(found != json.npos, "a name is missing in the golden file");
    json.remove_prefix(found + name.size() + 3);
  }
  return json;
}

std::vector<std::uint32_t> hex_list(std::string_view text) { return numbers(text, 16); }
std::vector<std::uint32_t> integer_list(std::string_view text) { return numbers(text, 10); }

std::uint32_t integer(std::string_view text) {
  text.remove_prefix(text.find_first_not_of(" \n"));
  std::uint32_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  LODE_CHECK(parsed.ec == std::errc{}, "a number was expected in the golden file");
  return value;
}

std::vector<std::byte> tensor_bytes(std::string_view file, std::string_view name) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const std::string_view header = file.substr(8, header_bytes);
  const auto offsets = integer_list(behind(header, {name, "data_offsets"}));
  LODE_CHECK(offsets.size() == 2, "two offsets were expected");
  const std::string_view data = file.substr(8 + header_bytes + offsets[0], offsets[1] - offsets[0]);
  std::vector<std::byte> out(data.size());
  std::memcpy(out.data(), data.data(), data.size());
  return out;
}

}  // namespace lode::formats::golden
