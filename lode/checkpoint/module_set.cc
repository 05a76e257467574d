#include "lode/checkpoint/module_set.h"

#include <algorithm>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/checkpoint/tensor_record.h"

namespace lode::checkpoint {
namespace {

constexpr std::string_view kRegexMark = "re:";
constexpr std::size_t kMaxPatterns = 200;

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

Status ModuleSet::add(std::string_view entry) {
  const bool is_regex = entry.starts_with(kRegexMark);
  if (!is_regex && entry.find('*') == entry.npos) {
    names_.emplace(without_namespace(entry));
    return {};
  }
  if (globs_.size() + regexes_.size() >= kMaxPatterns) {
    return Error{.code = Code::kUnsupported,
                 .thing = fmt::format("pattern {}", printable(entry)),
                 .wanted = fmt::format("at most {} patterns in a list", kMaxPatterns),
                 .found = "more"};
  }
  if (is_regex) {
    LODE_TRY(NameRegex regex, NameRegex::compile(entry.substr(kRegexMark.size())));
    regexes_.push_back(std::move(regex));
  } else {
    globs_.emplace_back(without_namespace(entry));
  }
  return {};
}

bool ModuleSet::matches(std::string_view module) const {
  const std::string_view bare = without_namespace(module);
  return matches_name(bare) || matches_glob(bare) || matches_regex(module);
}

// The name itself, a parent of it, or any of its parts in a row: looked up, not compared with all.
bool ModuleSet::matches_name(std::string_view bare) const {
  if (names_.empty()) return false;
  for (std::string_view tail = bare;;) {
    for (std::string_view run = tail;;) {
      if (names_.contains(run)) return true;
      const auto dot = run.rfind('.');
      if (cover_ == Cover::kExact || dot == run.npos) break;
      run = run.substr(0, dot);
    }
    const auto dot = tail.find('.');
    if (cover_ != Cover::kAnywhere || dot == tail.npos) return false;
    tail.remove_prefix(dot + 1);
  }
}

bool ModuleSet::matches_glob(std::string_view bare) const {
  return std::ranges::any_of(globs_, [&](const std::string& glob) {
    if (glob_matches(glob, bare)) return true;
    if (cover_ == Cover::kExact) return false;
    if (glob_matches(glob + ".*", bare)) return true;
    return cover_ == Cover::kAnywhere &&
           (glob_matches("*." + glob, bare) || glob_matches("*." + glob + ".*", bare));
  });
}

bool ModuleSet::matches_regex(std::string_view module) const {
  if (regexes_.empty()) return false;
  const std::string_view bare = without_namespace(module);
  const std::string full = fmt::format("model.{}", bare);
  const std::string nested = fmt::format("model.language_model.{}", bare);
  return std::ranges::any_of(regexes_, [&](const NameRegex& regex) {
    return regex.matches_start(module) || regex.matches_start(bare) || regex.matches_start(full) ||
           regex.matches_start(nested);
  });
}

}  // namespace lode::checkpoint
