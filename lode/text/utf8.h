#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lode::text {

inline constexpr char32_t kReplacement = 0xFFFD;

/// What stands at one place of a byte string.
struct Utf8Step {
  char32_t code_point = kReplacement;
  std::size_t length = 1;  // bytes to go on by; never 0 inside the text
  bool well_formed = true;
  bool unfinished = false;  // ill-formed only because the text ends here
};

/// Reads one code point at `position` < text.size(). Ill-formed input gives U+FFFD for each maximal
/// part that could have begun a character (Unicode 3.9, the practice of W3C and of the reference).
Utf8Step utf8_step(std::string_view text, std::size_t position) noexcept;

void append_utf8(char32_t code_point, std::string& out);

bool is_well_formed_utf8(std::string_view text) noexcept;

/// The text with every ill-formed part replaced by U+FFFD.
std::string lossy_utf8(std::string_view text);

constexpr bool is_utf8_continuation(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

}  // namespace lode::text
