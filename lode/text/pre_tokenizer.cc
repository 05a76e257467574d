#include "lode/text/pre_tokenizer.h"

#include <utility>

#include "lode/text/json_fields.h"
#include "lode/text/pattern_parts.h"

namespace lode::text {
namespace {

constexpr std::size_t kMostStages = 16;  // each goes over the whole text

using Match = std::size_t (*)(std::string_view text, std::size_t position);

std::size_t match_each_digit(std::string_view text, std::size_t at) {
  return match_up_to(text, at, kNumber, 1);
}
std::size_t match_digits(std::string_view text, std::size_t at) {
  return match_run(text, at, kNumber);
}

// Cuts one word by the matches of a pattern. The pattern sees the word alone, not its neighbours.
void cut(std::string_view text, ByteRange word, Match match, bool keep_gaps,
         std::vector<ByteRange>& out) {
  const std::string_view inside = text.substr(word.begin, word.end - word.begin);
  std::size_t gap = 0;
  const auto end_gap = [&](std::size_t at) {
    if (keep_gaps && at > gap) out.push_back({word.begin + gap, word.begin + at});
  };
  for (std::size_t at = 0; at < inside.size();) {
    const std::size_t end = match(inside, at);
    if (end == at) {
      at += utf8_step(inside, at).length;
      continue;
    }
    end_gap(at);
    out.push_back({word.begin + at, word.begin + end});
    at = gap = end;
  }
  end_gap(inside.size());
}

std::vector<ByteRange> cut_all(std::string_view text, const std::vector<ByteRange>& words,
                               Match match, bool keep_gaps) {
  std::vector<ByteRange> out;
  for (const ByteRange word : words) cut(text, word, match, keep_gaps, out);
  return out;
}

// Puts a space before each word that has none; its source is the character after it.
std::vector<ByteRange> add_spaces(SourcedText& piece, const std::vector<ByteRange>& words) {
  SourcedText spaced;
  std::vector<ByteRange> out;
  for (const ByteRange word : words) {
    const std::size_t begin = spaced.text.size();
    if (piece.text[word.begin] != ' ') {
      spaced.text.push_back(' ');
      if (!piece.sources.empty()) spaced.sources.push_back(piece.sources[word.begin]);
    }
    spaced.text.append(piece.text, word.begin, word.end - word.begin);
    if (!piece.sources.empty()) {
      const auto from = piece.sources.begin();
      spaced.sources.insert(spaced.sources.end(), from + static_cast<std::ptrdiff_t>(word.begin),
                            from + static_cast<std::ptrdiff_t>(word.end));
    }
    out.push_back({begin, spaced.text.size()});
  }
  piece = std::move(spaced);
  return out;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const json::Value& value, const std::string& path) {
  PreTokenizer result;
  if (value.is_null()) return unsupported(path, "a byte-level pre-tokeniser", "null");
  LODE_TRY(const std::string* type, string_field(value, "type", path));
  if (*type == "Sequence") {
    LODE_TRY(const json::Array* parts, array_field(value, "pretokenizers", path));
    for (std::size_t i = 0; i < parts->size(); ++i) {
      const std::string place = path + ".pretokenizers[" + std::to_string(i) + "]";
      LODE_TRY_STATUS(result.add((*parts)[i], place));
    }
  } else {
    LODE_TRY_STATUS(result.add(value, path));
  }
  if (!result.byte_level_) return unsupported(path, "one that ends in ByteLevel", *type);
  return result;
}

Status PreTokenizer::add(const json::Value& value, const std::string& path) {
  LODE_TRY(const std::string* type, string_field(value, "type", path));
  if (byte_level_) return unsupported(path, "nothing after ByteLevel", *type);
  if (stages_.size() == kMostStages) return unsupported(path, "at most 16 stages", *type);
  if (*type == "Split") return add_split(value, path);
  if (*type == "ByteLevel") return add_byte_level(value, path);
  if (*type == "Digits") {
    LODE_TRY(const bool each, bool_field_or(value, "individual_digits", false, path));
    stages_.push_back({each ? match_each_digit : match_digits, Gaps::kKept});
    return {};
  }
  return unsupported(path + ".type", "Split, Digits, ByteLevel or a Sequence of them", *type);
}

Status PreTokenizer::add_split(const json::Value& value, const std::string& path) {
  const json::Value* pattern = value.find("pattern");
  if (pattern == nullptr) return invalid(path + ".pattern", "a pattern", "nothing");
  if (pattern->find("Regex") == nullptr) {
    return unsupported(path + ".pattern", "a Regex", json::dump(*pattern));
  }
  LODE_TRY(const std::string* regex, string_field(*pattern, "Regex", path + ".pattern"));
  const WordPattern* known = find_word_pattern(*regex);
  if (known == nullptr) {
    return unsupported(path + ".pattern.Regex", "a pattern that Lode knows by its text", *regex);
  }
  LODE_TRY(const std::string* behavior, string_field(value, "behavior", path));
  LODE_TRY(const bool invert, bool_field_or(value, "invert", false, path));
  if (*behavior == "Isolated") {
    stages_.push_back({known->match, Gaps::kKept});  // inverted it cuts at the same places
    return {};
  }
  if (*behavior == "Removed" && invert) {
    stages_.push_back({known->match, Gaps::kDropped});
    return {};
  }
  return unsupported(path + ".behavior", "Isolated, or Removed with invert", *behavior);
}

Status PreTokenizer::add_byte_level(const json::Value& value, const std::string& path) {
  byte_level_ = true;
  LODE_TRY(prefix_space_, bool_field(value, "add_prefix_space", path));
  LODE_TRY(last_is_regex_, bool_field_or(value, "use_regex", true, path));
  return {};
}

std::vector<ByteRange> PreTokenizer::split(SourcedText& piece) const {
  std::vector<ByteRange> words;
  if (!piece.text.empty()) words.push_back({0, piece.text.size()});
  for (const Stage& stage : stages_) {
    words = cut_all(piece.text, words, stage.match, stage.gaps == Gaps::kKept);
  }
  if (prefix_space_) words = add_spaces(piece, words);
  if (last_is_regex_) words = cut_all(piece.text, words, gpt2_pattern().match, true);
  return words;
}

}  // namespace lode::text
