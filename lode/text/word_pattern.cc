#include "lode/text/word_pattern.h"

#include <algorithm>
#include <array>

#include "lode/text/pattern_parts.h"

namespace lode::text {
namespace {

// ` ?[classes]+`, tried only where the text has something of `classes` after the space.
std::size_t match_spaced_run(std::string_view text, std::size_t at, CharClass classes) noexcept {
  const std::size_t start = text[at] == ' ' ? at + 1 : at;
  const std::size_t end = match_run(text, start, classes);
  return end > start ? end : at;
}

// ` ?[^\s excluded]+` and then line ends where `tail` asks for them.
enum class Tail { kNone, kLines, kLinesAndSlashes };
std::size_t match_symbols(std::string_view text, std::size_t at, CharClass excluded, Tail tail) {
  const std::size_t start = text[at] == ' ' ? at + 1 : at;
  const std::size_t end = match_run_outside(text, start, kSpace | excluded);
  if (end == start) return at;
  return tail == Tail::kNone ? end : skip_line_ends(text, end, tail == Tail::kLinesAndSlashes);
}

// `[^\r\n excluded]?[letters]+`
std::size_t match_led_run(std::string_view text, std::size_t at, CharClass excluded,
                          CharClass letters) noexcept {
  const ClassedChar first = char_at(text, at);
  if (may_lead(first, excluded)) {
    const std::size_t start = at + first.length;
    const std::size_t end = match_run(text, start, letters);
    if (end > start) return end;
  }
  return match_run(text, at, letters);
}

std::size_t match_gpt2(std::string_view text, std::size_t at) {
  std::size_t end = match_contraction(text, at, false);
  if (end == at) end = match_spaced_run(text, at, kLetter);
  if (end == at) end = match_spaced_run(text, at, kNumber);
  if (end == at) end = match_symbols(text, at, kLetter | kNumber, Tail::kNone);
  return end == at ? match_spaces_in_line(text, at) : end;
}

// cl100k and its kin: they differ in what a word may hold and in how many digits go together.
template <CharClass kLetters, std::size_t kMostDigits>
std::size_t match_cl100k(std::string_view text, std::size_t at) {
  std::size_t end = match_contraction(text, at, true);
  if (end == at) end = match_led_run(text, at, kLetter | kNumber, kLetters);
  if (end == at) end = match_up_to(text, at, kNumber, kMostDigits);
  if (end == at) end = match_symbols(text, at, kLetters | kNumber, Tail::kLines);
  return end == at ? match_spaces(text, at) : end;
}

// A word of o200k: [upper]*[lower]+ with kLowerWord, else [upper]+[lower]*. The classes overlap, so
// the first form may have to give characters back from [upper]* to feed [lower]+.
constexpr CharClass kUpperLike = kUpper | kTitle | kModifier | kOther | kMark;
constexpr CharClass kLowerLike = kLower | kModifier | kOther | kMark;
constexpr CharClass kNoClass = 0;

bool in_word(const ClassedChar& c, CharClass classes, CharClass barred) noexcept {
  return c.is(classes) && !c.is(barred);
}
std::size_t run_in_word(std::string_view text, std::size_t at, CharClass classes,
                        CharClass barred) noexcept {
  for (ClassedChar c = char_at(text, at); in_word(c, classes, barred); c = char_at(text, at)) {
    at += c.length;
  }
  return at;
}

template <CharClass kBarred>
std::size_t match_lower_word(std::string_view text, std::size_t at) noexcept {
  const std::size_t uppers = run_in_word(text, at, kUpperLike, kBarred);
  const std::size_t end = run_in_word(text, uppers, kLowerLike, kBarred);
  if (end > uppers) return end;
  for (std::size_t back = uppers; back > at;) {
    const ClassedChar c = char_before(text, back);
    if (in_word(c, kLowerLike, kBarred)) return back;
    back -= c.length;
  }
  return at;
}

template <CharClass kBarred>
std::size_t match_upper_word(std::string_view text, std::size_t at) noexcept {
  const std::size_t uppers = run_in_word(text, at, kUpperLike, kBarred);
  return uppers == at ? at : run_in_word(text, uppers, kLowerLike, kBarred);
}

using Part = std::size_t (*)(std::string_view, std::size_t) noexcept;

// `[^\r\n\p{L}\p{N}]?WORD(contraction)?`
std::size_t match_cased_word(std::string_view text, std::size_t at, Part word) noexcept {
  const ClassedChar first = char_at(text, at);
  std::size_t end = at;
  if (may_lead(first, kLetter | kNumber)) {
    const std::size_t start = at + first.length;
    const std::size_t led = word(text, start);
    if (led > start) end = led;
  }
  if (end == at) end = word(text, at);
  return end == at ? at : match_contraction(text, end, true);
}

template <CharClass kBarred, Tail kTail>
std::size_t match_o200k(std::string_view text, std::size_t at) {
  std::size_t end = match_cased_word(text, at, match_lower_word<kBarred>);
  if (end == at) end = match_cased_word(text, at, match_upper_word<kBarred>);
  if (end == at) end = match_up_to(text, at, kNumber, 3);
  if (end == at) end = match_symbols(text, at, kLetter | kNumber, kTail);
  return end == at ? match_spaces(text, at) : end;
}

std::size_t match_kimi(std::string_view text, std::size_t at) {
  const std::size_t end = match_run(text, at, kHan);
  return end == at ? match_o200k<kHan, Tail::kLines>(text, at) : end;
}

std::size_t match_three_digits(std::string_view text, std::size_t at) {
  return match_up_to(text, at, kNumber, 3);
}

std::size_t match_deepseek_cjk(std::string_view text, std::size_t at) {
  const auto inside = [](char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
  };
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (!inside(step.code_point)) break;
    at += step.length;
  }
  return at;
}

bool is_ascii_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_punctuation(char c) noexcept {
  return c >= '!' && c <= '~' && !is_ascii_letter(c) && !(c >= '0' && c <= '9');
}

std::size_t match_deepseek_words(std::string_view text, std::size_t at) {
  if (is_ascii_punctuation(text[at])) {
    std::size_t end = at + 1;
    while (end < text.size() && is_ascii_letter(text[end])) ++end;
    if (end > at + 1) return end;
  }
  std::size_t end = match_led_run(text, at, kLetter | kPunct | kSymbol, kLetter | kMark);
  if (end != at) return end;
  end = match_spaced_run(text, at, kPunct | kSymbol);
  return end == at ? match_spaces(text, at) : skip_line_ends(text, end, false);
}

// What the texts have in common.
#define LODE_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LODE_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LODE_LEAD R"([^\r\n\p{L}\p{N}]?)"
#define LODE_UPPER R"(\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})"
#define LODE_LOWER R"(\p{Ll}\p{Lm}\p{Lo}\p{M})"
#define LODE_SYMBOLS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"

constexpr std::array kPatterns = {
    WordPattern{"gpt2",
                R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                match_gpt2},
    WordPattern{"qwen2", LODE_CONTRACTIONS "|" LODE_LEAD R"(\p{L}+|\p{N})" LODE_SYMBOLS LODE_SPACES,
                match_cl100k<kLetter, 1>},
    WordPattern{"cl100k",
                LODE_CONTRACTIONS "|" LODE_LEAD R"(\p{L}+|\p{N}{1,3})" LODE_SYMBOLS LODE_SPACES,
                match_cl100k<kLetter, 3>},
    WordPattern{"qwen3.5",
                LODE_CONTRACTIONS
                "|" LODE_LEAD R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" LODE_SPACES,
                match_cl100k<kLetter | kMark, 1>},
    WordPattern{
        "bailing",  // its possessive quantifiers change nothing: no class feeds the next one
        R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
        R"(|\s*[\r\n]|\s+(?!\S)|\s+)",
        match_cl100k<kLetter, 1>},
    WordPattern{"o200k",
                LODE_LEAD "[" LODE_UPPER "]*[" LODE_LOWER "]+" LODE_CONTRACTIONS "?|" LODE_LEAD
                          "[" LODE_UPPER "]+[" LODE_LOWER "]*" LODE_CONTRACTIONS "?"
                          R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" LODE_SPACES,
                match_o200k<kNoClass, Tail::kLinesAndSlashes>},
    WordPattern{"kimi",
                R"([\p{Han}]+|)" LODE_LEAD "[" LODE_UPPER R"(&&[^\p{Han}]]*[)" LODE_LOWER
                R"(&&[^\p{Han}]]+)" LODE_CONTRACTIONS "?|" LODE_LEAD "[" LODE_UPPER
                R"(&&[^\p{Han}]]+[)" LODE_LOWER R"(&&[^\p{Han}]]*)" LODE_CONTRACTIONS "?"
                R"(|\p{N}{1,3})" LODE_SYMBOLS LODE_SPACES,
                match_kimi},
    WordPattern{"deepseek digits", R"(\p{N}{1,3})", match_three_digits},
    WordPattern{"deepseek cjk", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", match_deepseek_cjk},
    WordPattern{"deepseek words",
                "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
                "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
                match_deepseek_words},
};

#undef LODE_CONTRACTIONS
#undef LODE_SPACES
#undef LODE_LEAD
#undef LODE_UPPER
#undef LODE_LOWER
#undef LODE_SYMBOLS

}  // namespace

std::span<const WordPattern> word_patterns() noexcept { return kPatterns; }

const WordPattern* find_word_pattern(std::string_view regex) noexcept {
  const auto found = std::find_if(kPatterns.begin(), kPatterns.end(),
                                  [&](const WordPattern& known) { return known.regex == regex; });
  return found == kPatterns.end() ? nullptr : &*found;
}

const WordPattern& gpt2_pattern() noexcept { return kPatterns.front(); }

}  // namespace lode::text
