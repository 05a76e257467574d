#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/json/json.h"
#include "lode/text/normalizer.h"
#include "lode/text/sourced_text.h"

namespace lode::text {

/// One of the `added_tokens` of a tokenizer.json.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;
  bool single_word = false;  // only where no word character is next to it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in the normalised text, and normalised itself
};

/// A stretch of text, and the added token it is or -1.
struct TextPart {
  ByteRange range;
  std::int32_t added_id = -1;
};

/// Finds the added tokens of one pass in a text: leftmost, of these the longest.
class AddedTokenFinder {
 public:
  /// The tokens with this `normalized` flag; the texts of normalised ones go through `normalizer`.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized,
                   const Normalizer& normalizer);

  /// The text in parts, in order. With `keep_special_as_text` special tokens stay text, but what
  /// they would have covered is not searched for others, as in the reference.
  std::vector<TextPart> split(std::string_view text, bool keep_special_as_text) const;

  std::uint64_t held_bytes() const noexcept;

 private:
  struct Needle {
    std::string text;
    AddedToken token;  // its content is not kept: `text` stands for it
  };
  const Needle* longest_at(std::string_view text, std::size_t at) const noexcept;

  std::vector<Needle> needles_;  // sorted by text
  std::bitset<256> first_bytes_;
};

/// Reads the array `added_tokens`; entries without content are left out, as in the reference.
/// Errors: kInvalidSource naming the path of a damaged entry or of two entries that contradict each
/// other; kUnsupported for a content of more than 1024 bytes.
Result<std::vector<AddedToken>> read_added_tokens(const json::Value* array);

}  // namespace lode::text
