#include "lode/text/added_tokens.h"

#include <algorithm>

#include "lode/text/json_fields.h"
#include "lode/text/unicode_classes.h"

namespace lode::text {
namespace {

constexpr std::size_t kMostContentBytes = 1024;

// Neighbours of single_word tokens are judged by Unicode's word characters: unlike those of the
// patterns they hold the two join controls and none of Latin-1's superscripts and fractions.
bool is_word(const ClassedChar& c) noexcept {
  if (c.code_point == 0x200C || c.code_point == 0x200D) return true;
  const bool latin1_number = c.code_point >= 0x80 && c.code_point < 0x100 && c.is(kNumber);
  return c.is(kWord) && !latin1_number;
}

std::size_t spaces_before(std::string_view text, std::size_t at) noexcept {
  while (at > 0) {
    const ClassedChar c = char_before(text, at);
    if (!c.is(kSpace)) break;
    at -= c.length;
  }
  return at;
}

std::size_t spaces_after(std::string_view text, std::size_t at) noexcept {
  for (ClassedChar c = char_at(text, at); c.is(kSpace); c = char_at(text, at)) at += c.length;
  return at;
}

Result<AddedToken> read_added_token(const json::Value& value, const std::string& path) {
  AddedToken token;
  const json::Value* id = value.find("id");
  if (id == nullptr) return invalid(path + ".id", "a token id", "nothing");
  LODE_TRY(token.id, token_id(*id, path + ".id"));
  LODE_TRY(const std::string* content, string_field(value, "content", path));
  if (content->size() > kMostContentBytes) {
    return unsupported(path + ".content", "at most 1024 bytes", std::to_string(content->size()));
  }
  token.content = *content;
  LODE_TRY(token.special, bool_field(value, "special", path));
  LODE_TRY(token.single_word, bool_field(value, "single_word", path));
  LODE_TRY(token.lstrip, bool_field(value, "lstrip", path));
  LODE_TRY(token.rstrip, bool_field(value, "rstrip", path));
  LODE_TRY(token.normalized, bool_field(value, "normalized", path));
  return token;
}

}  // namespace

Result<std::vector<AddedToken>> read_added_tokens(const json::Value* array) {
  std::vector<AddedToken> tokens;
  if (array == nullptr || array->is_null()) return tokens;
  if (array->as_array() == nullptr) return invalid("added_tokens", "an array", "another kind");
  const json::Array& values = *array->as_array();
  tokens.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    LODE_TRY(AddedToken token,
             read_added_token(values[i], "added_tokens[" + std::to_string(i) + "]"));
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized,
                                   const Normalizer& normalizer) {
  for (const bool special : {true, false}) {  // of two alike the special one is found
    for (const AddedToken& token : tokens) {
      if (token.normalized != normalized || token.special != special) continue;
      std::string text =
          normalized ? normalizer.apply(token.content, false, 0).text : token.content;
      needles_.push_back({std::move(text), token});
      needles_.back().token.content.clear();
      needles_.back().token.content.shrink_to_fit();
    }
  }
  std::stable_sort(needles_.begin(), needles_.end(),
                   [](const Needle& a, const Needle& b) { return a.text < b.text; });
  needles_.erase(std::unique(needles_.begin(), needles_.end(),
                             [](const Needle& a, const Needle& b) { return a.text == b.text; }),
                 needles_.end());
  needles_.shrink_to_fit();
  for (const Needle& needle : needles_) {
    first_bytes_.set(static_cast<std::uint8_t>(needle.text.front()));
  }
}

// Narrows the sorted needles byte by byte; one that ends where the others go on stands first.
const AddedTokenFinder::Needle* AddedTokenFinder::longest_at(std::string_view text,
                                                             std::size_t at) const noexcept {
  const Needle* longest = nullptr;
  auto from = needles_.begin();
  auto to = needles_.end();
  for (std::size_t depth = 0; from != to; ++depth) {
    if (from->text.size() == depth) longest = &*from++;
    if (at + depth >= text.size()) break;
    const auto byte = static_cast<std::uint8_t>(text[at + depth]);
    const auto byte_of = [depth](const Needle& needle) {
      return static_cast<std::uint8_t>(needle.text[depth]);
    };
    from = std::partition_point(from, to, [&](const Needle& n) { return byte_of(n) < byte; });
    to = std::partition_point(from, to, [&](const Needle& n) { return byte_of(n) == byte; });
  }
  return longest;
}

std::vector<TextPart> AddedTokenFinder::split(std::string_view text,
                                              bool keep_special_as_text) const {
  std::vector<TextPart> parts;
  std::size_t done = 0;  // up to here the text is in `parts`
  for (std::size_t at = 0; at < text.size();) {
    const bool may_begin = first_bytes_[static_cast<std::uint8_t>(text[at])];
    const Needle* needle = may_begin ? longest_at(text, at) : nullptr;
    if (needle == nullptr) {
      ++at;
      continue;
    }
    const AddedToken& token = needle->token;
    std::size_t begin = at;
    std::size_t end = at + needle->text.size();
    at = end;
    if (keep_special_as_text && token.special) continue;
    const bool in_word = is_word(char_before(text, begin)) || is_word(char_at(text, end));
    if (token.single_word && in_word) continue;
    if (token.lstrip) begin = std::max(spaces_before(text, begin), done);
    if (token.rstrip) end = spaces_after(text, end);
    if (done < begin) parts.push_back({{done, begin}, -1});
    parts.push_back({{begin, end}, token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, -1});
  return parts;
}

std::uint64_t AddedTokenFinder::held_bytes() const noexcept {
  std::uint64_t bytes = needles_.capacity() * sizeof(Needle);
  for (const Needle& needle : needles_) bytes += needle.text.capacity();
  return bytes;
}

}  // namespace lode::text
