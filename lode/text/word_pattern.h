#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lode::text {

/// A regular expression that pre-tokenisers split by, known by its exact text and written by hand
/// over the reference's character classes.
struct WordPattern {
  std::string_view name;
  std::string_view regex;
  /// The end of the match that begins at `position` < text.size(), or `position` if none does.
  std::size_t (*match)(std::string_view text, std::size_t position);
};

/// Every pattern that is known.
std::span<const WordPattern> word_patterns() noexcept;

/// The pattern with exactly this text, or null.
const WordPattern* find_word_pattern(std::string_view regex) noexcept;

/// The pattern that ByteLevel splits by when `use_regex` is set.
const WordPattern& gpt2_pattern() noexcept;

}  // namespace lode::text
