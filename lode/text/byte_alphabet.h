#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lode::text {

/// Byte-level vocabularies spell bytes as characters: printable Latin-1 bytes as themselves, all
/// others as U+0100, U+0101, ... in the order of the bytes.
std::optional<std::uint8_t> byte_of(char32_t character) noexcept;
char32_t character_of(std::uint8_t byte) noexcept;

/// The bytes that a vocabulary entry spells, or nothing if it has a character outside the alphabet.
std::optional<std::string> spelled_bytes(std::string_view entry);

/// The spelling of `bytes`.
std::string spell(std::string_view bytes);

}  // namespace lode::text
