#include "lode/text/utf8.h"

#include <cstdint>

namespace lode::text {
namespace {

// How a lead byte begins: its length and which second bytes may follow (later ones are 80..BF).
struct Lead {
  std::size_t length;
  std::uint8_t second_from;
  std::uint8_t second_to;
};

constexpr Lead lead_of(std::uint8_t byte) noexcept {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // below are overlong forms
  if (byte == 0xED) return {3, 0x80, 0x9F};  // above are surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // above is beyond U+10FFFF
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t position) noexcept {
  const auto first = static_cast<std::uint8_t>(text[position]);
  if (first < 0x80) return {.code_point = first};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {.well_formed = false};
  char32_t code_point = first & (0x7FU >> lead.length);
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (position + i >= text.size()) {
      return {.length = i, .well_formed = false, .unfinished = true};
    }
    const auto byte = static_cast<std::uint8_t>(text[position + i]);
    const std::uint8_t from = i == 1 ? lead.second_from : std::uint8_t{0x80};
    const std::uint8_t to = i == 1 ? lead.second_to : std::uint8_t{0xBF};
    if (byte < from || byte > to) return {.length = i, .well_formed = false};
    code_point = (code_point << 6) | (byte & 0x3FU);
  }
  return {.code_point = code_point, .length = lead.length};
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t bits) { out.push_back(static_cast<char>(bits)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    return put(0x80 | (code_point & 0x3F));
  }
  if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
  }
  put(0x80 | ((code_point >> 6) & 0x3F));
  put(0x80 | (code_point & 0x3F));
}

bool is_well_formed_utf8(std::string_view text) noexcept {
  for (std::size_t position = 0; position < text.size();) {
    const Utf8Step step = utf8_step(text, position);
    if (!step.well_formed) return false;
    position += step.length;
  }
  return true;
}

std::string lossy_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) {
    const Utf8Step step = utf8_step(text, position);
    if (step.well_formed) {
      out.append(text.substr(position, step.length));
    } else {
      append_utf8(kReplacement, out);
    }
    position += step.length;
  }
  return out;
}

}  // namespace lode::text
