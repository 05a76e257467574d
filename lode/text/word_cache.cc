#include "lode/text/word_cache.h"

#include <algorithm>
#include <functional>

namespace lode::text {
namespace {

std::size_t slot_of(std::string_view word, std::size_t slots) noexcept {
  return std::hash<std::string_view>{}(word) % slots;
}

}  // namespace

std::span<const WordToken> WordCache::find(std::string_view word) const noexcept {
  if (slots_.empty() || word.size() > kMostBytes) return {};
  const Slot& slot = slots_[slot_of(word, kSlots)];
  if (std::string_view(slot.word.data(), slot.length) != word) return {};
  return std::span(slot.tokens).first(slot.count);
}

void WordCache::keep(std::string_view word, std::span<const WordToken> tokens) {
  if (word.empty() || word.size() > kMostBytes || tokens.size() > kMostTokens) return;
  if (slots_.empty()) slots_.resize(kSlots);
  Slot& slot = slots_[slot_of(word, kSlots)];
  std::copy(word.begin(), word.end(), slot.word.begin());
  std::copy(tokens.begin(), tokens.end(), slot.tokens.begin());
  slot.length = static_cast<std::uint8_t>(word.size());
  slot.count = static_cast<std::uint8_t>(tokens.size());
}

}  // namespace lode::text
