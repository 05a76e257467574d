#include "lode/text/byte_alphabet.h"

#include <array>

#include "lode/text/utf8.h"

namespace lode::text {
namespace {

constexpr std::size_t kNumCharacters = 0x144;  // the alphabet ends at U+0143
constexpr std::uint16_t kNoByte = 0x100;

constexpr bool is_itself(unsigned byte) noexcept {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<std::uint16_t, kNumCharacters> bytes{};
};

constexpr Alphabet make_alphabet() noexcept {
  Alphabet alphabet;
  for (std::uint16_t& byte : alphabet.bytes) byte = kNoByte;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t character = is_itself(byte) ? char32_t{byte} : next++;
    alphabet.characters[byte] = character;
    alphabet.bytes[character] = static_cast<std::uint16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::optional<std::uint8_t> byte_of(char32_t character) noexcept {
  if (character >= kNumCharacters || kAlphabet.bytes[character] == kNoByte) return std::nullopt;
  return static_cast<std::uint8_t>(kAlphabet.bytes[character]);
}

char32_t character_of(std::uint8_t byte) noexcept { return kAlphabet.characters[byte]; }

std::optional<std::string> spelled_bytes(std::string_view entry) {
  std::string bytes;
  for (std::size_t at = 0; at < entry.size();) {
    const Utf8Step step = utf8_step(entry, at);
    const auto byte = byte_of(step.code_point);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += step.length;
  }
  return bytes;
}

std::string spell(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(character_of(static_cast<std::uint8_t>(byte)), text);
  return text;
}

}  // namespace lode::text
