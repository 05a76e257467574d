#include "lode/checkpoint/module_pattern.h"

#include <fmt/format.h>

namespace lode::checkpoint {
namespace {

constexpr std::string_view kRegexMark = "re:";

}  // namespace

std::string_view without_namespace(std::string_view module) noexcept {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"model.", "language_model."}) {
      if (module.starts_with(prefix)) {
        module.remove_prefix(prefix.size());
        again = true;
      }
    }
  }
  return module;
}

bool glob_matches(std::string_view pattern, std::string_view text) noexcept {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = pattern.npos;  // the last one met; it may take one character more
  std::size_t taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<ModulePattern> ModulePattern::parse(std::string_view entry, Cover cover) {
  ModulePattern pattern;
  pattern.text_ = entry;
  pattern.cover_ = cover;
  if (entry.starts_with(kRegexMark)) {
    pattern.is_regex_ = true;
    LODE_TRY(pattern.regex_, NameRegex::compile(entry.substr(kRegexMark.size())));
  } else {
    pattern.glob_ = without_namespace(entry);
  }
  return pattern;
}

bool ModulePattern::matches(std::string_view module) const {
  const std::string_view bare = without_namespace(module);
  if (is_regex_) {
    return regex_.matches_start(module) || regex_.matches_start(bare) ||
           regex_.matches_start(fmt::format("model.{}", bare)) ||
           regex_.matches_start(fmt::format("model.language_model.{}", bare));
  }
  if (glob_matches(glob_, bare)) return true;
  if (cover_ == Cover::kExact || glob_.empty()) return false;
  if (glob_matches(glob_ + ".*", bare)) return true;
  return cover_ == Cover::kAnywhere &&
         (glob_matches("*." + glob_, bare) || glob_matches("*." + glob_ + ".*", bare));
}

}  // namespace lode::checkpoint
