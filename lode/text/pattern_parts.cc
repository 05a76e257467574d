#include "lode/text/pattern_parts.h"

namespace lode::text {
namespace {

bool is_line_end(char32_t code_point) noexcept { return code_point == '\r' || code_point == '\n'; }

char lower_letter(char32_t code_point, bool any_case) noexcept {
  if (code_point >= 'a' && code_point <= 'z') return static_cast<char>(code_point);
  if (!any_case) return 0;
  if (code_point >= 'A' && code_point <= 'Z') return static_cast<char>(code_point - 'A' + 'a');
  constexpr char32_t kLongS = 0x17F;
  return code_point == kLongS ? 's' : char{0};
}

}  // namespace

std::size_t match_run(std::string_view text, std::size_t at, CharClass classes) noexcept {
  for (ClassedChar c = char_at(text, at); c.is(classes); c = char_at(text, at)) at += c.length;
  return at;
}

std::size_t match_up_to(std::string_view text, std::size_t at, CharClass classes,
                        std::size_t most) noexcept {
  for (std::size_t i = 0; i < most; ++i) {
    const ClassedChar c = char_at(text, at);
    if (!c.is(classes)) break;
    at += c.length;
  }
  return at;
}

std::size_t match_run_outside(std::string_view text, std::size_t at, CharClass classes) noexcept {
  while (at < text.size()) {
    const ClassedChar c = char_at(text, at);
    if (c.is(classes)) break;
    at += c.length;
  }
  return at;
}

std::size_t skip_line_ends(std::string_view text, std::size_t at, bool slash) noexcept {
  while (at < text.size() && (text[at] == '\r' || text[at] == '\n' || (slash && text[at] == '/'))) {
    ++at;
  }
  return at;
}

std::size_t match_contraction(std::string_view text, std::size_t at, bool any_case) noexcept {
  if (at >= text.size() || text[at] != '\'') return at;
  const ClassedChar first = char_at(text, at + 1);
  const ClassedChar second = char_at(text, at + 1 + first.length);
  const std::size_t one = at + 1 + first.length;
  const char letter = lower_letter(first.code_point, any_case);
  const char next = lower_letter(second.code_point, any_case);
  switch (letter) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return one;
    case 'r':
    case 'v':
      return next == 'e' ? one + second.length : at;
    case 'l':
      return next == 'l' ? one + second.length : at;
    default:
      return at;
  }
}

std::size_t match_spaces_in_line(std::string_view text, std::size_t at) noexcept {
  const std::size_t end = match_run(text, at, kSpace);
  if (end == at || end == text.size()) return end;
  // Something else follows: the last space is left to it, unless it is the only one.
  const std::size_t shorter = end - char_before(text, end).length;
  return shorter > at ? shorter : end;
}

std::size_t match_spaces(std::string_view text, std::size_t at) noexcept {
  std::size_t after_line_end = at;
  std::size_t end = at;
  for (ClassedChar c = char_at(text, at); c.is(kSpace); c = char_at(text, end)) {
    end += c.length;
    if (is_line_end(c.code_point)) after_line_end = end;
  }
  return after_line_end > at ? after_line_end : match_spaces_in_line(text, at);
}

bool may_lead(const ClassedChar& character, CharClass excluded) noexcept {
  return character.length > 0 && !is_line_end(character.code_point) && !character.is(excluded);
}

}  // namespace lode::text
