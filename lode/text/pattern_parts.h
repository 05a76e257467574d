#pragma once

#include <cstddef>
#include <string_view>

#include "lode/text/unicode_classes.h"

namespace lode::text {

// The parts that the known patterns are made of. Each takes a position and gives the end of its
// match, or the position itself where it does not match.

/// [classes]+
std::size_t match_run(std::string_view text, std::size_t at, CharClass classes) noexcept;
/// [classes]{1,most}
std::size_t match_up_to(std::string_view text, std::size_t at, CharClass classes,
                        std::size_t most) noexcept;
/// [^classes]+
std::size_t match_run_outside(std::string_view text, std::size_t at, CharClass classes) noexcept;
/// [\r\n]*, or [\r\n/]* with `slash`
std::size_t skip_line_ends(std::string_view text, std::size_t at, bool slash) noexcept;
/// 's 't 're 've 'm 'll 'd; with `any_case` also in capitals and with the long s U+017F
std::size_t match_contraction(std::string_view text, std::size_t at, bool any_case) noexcept;
/// \s*[\r\n]+|\s+(?!\S)|\s+
std::size_t match_spaces(std::string_view text, std::size_t at) noexcept;
/// \s+(?!\S)|\s+
std::size_t match_spaces_in_line(std::string_view text, std::size_t at) noexcept;
/// True for what [^\r\n\p{L}\p{N}] and its like let stand before a word: no CR, LF or `excluded`.
bool may_lead(const ClassedChar& character, CharClass excluded) noexcept;

}  // namespace lode::text
