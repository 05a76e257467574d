#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lode::text {

/// A character that NFC gives, and how many characters of its input it stands for, as 1 - change: 0
/// replaces one, 1 is inserted, -n replaces n + 1.
struct NfcChar {
  char32_t code_point = 0;
  std::int32_t change = 0;
};

/// True for a character that NFC leaves alone whatever follows or precedes it.
bool is_nfc_inert(char32_t code_point) noexcept;

/// NFC of the characters `input`, in the reference's Unicode 9. Appends to `out`.
void append_nfc(const std::vector<char32_t>& input, std::vector<NfcChar>& out);

}  // namespace lode::text
