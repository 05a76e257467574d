#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lode/text/bpe.h"

namespace lode::text {

/// Remembers the tokens of short words during one call, so that encoding needs no lock and keeps
/// nothing. Memory: kSlots slots of under 128 bytes, taken at the first word.
class WordCache {
 public:
  /// The tokens of `word` if they are known, else an empty span.
  std::span<const WordToken> find(std::string_view word) const noexcept;
  void keep(std::string_view word, std::span<const WordToken> tokens);

 private:
  static constexpr std::size_t kSlots = 4096;
  static constexpr std::size_t kMostBytes = 20;
  static constexpr std::size_t kMostTokens = 8;
  struct Slot {
    std::array<char, kMostBytes> word;
    std::uint8_t length = 0;
    std::uint8_t count = 0;
    std::array<WordToken, kMostTokens> tokens;
  };
  std::vector<Slot> slots_;
};

}  // namespace lode::text
