#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lode/text/utf8.h"

namespace lode::text {

/// Classes a code point belongs to, as the reference tokeniser's regex engine sees them (Unicode
/// 16). Several bits may be set; kLetter and the like are unions.
using CharClass = std::uint16_t;
inline constexpr CharClass kUpper = 1U << 0;      // \p{Lu}
inline constexpr CharClass kLower = 1U << 1;      // \p{Ll}
inline constexpr CharClass kTitle = 1U << 2;      // \p{Lt}
inline constexpr CharClass kModifier = 1U << 3;   // \p{Lm}
inline constexpr CharClass kOther = 1U << 4;      // \p{Lo}
inline constexpr CharClass kMark = 1U << 5;       // \p{M}
inline constexpr CharClass kNumber = 1U << 6;     // \p{N}
inline constexpr CharClass kPunct = 1U << 7;      // \p{P}
inline constexpr CharClass kSymbol = 1U << 8;     // \p{S}
inline constexpr CharClass kHan = 1U << 9;        // the script property
inline constexpr CharClass kSpace = 1U << 10;     // \s: the 25 White_Space characters
inline constexpr CharClass kWord = 1U << 11;      // \w and \b
inline constexpr CharClass kReorders = 1U << 12;  // non-zero combining class in Unicode 9
inline constexpr CharClass kLetter = kUpper | kLower | kTitle | kModifier | kOther;  // \p{L}

CharClass class_of(char32_t code_point) noexcept;

/// One character of well-formed text with its classes.
struct ClassedChar {
  char32_t code_point = 0;
  std::size_t length = 0;
  CharClass classes = 0;
  bool is(CharClass any_of) const noexcept { return (classes & any_of) != 0; }
};

/// The character at `position`; at the end of the text one of length 0 and no class.
ClassedChar char_at(std::string_view text, std::size_t position) noexcept;

/// The character that ends just before `position`; at 0 one of length 0 and no class.
ClassedChar char_before(std::string_view text, std::size_t position) noexcept;

}  // namespace lode::text
