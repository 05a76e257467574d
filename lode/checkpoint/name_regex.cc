#include "lode/checkpoint/name_regex.h"

#include "lode/checkpoint/name_regex_parser.h"

namespace lode::checkpoint {

Result<NameRegex> NameRegex::compile(std::string_view pattern) {
  return NameRegexParser(pattern).run();
}

// Adds `state` and all that it leads to without a character. A loop, not recursion: patterns are
// hostile.
void NameRegex::follow(std::uint32_t state, std::size_t at, std::size_t length,
                       std::vector<std::uint32_t>& list, std::vector<bool>& seen) const {
  std::vector<std::uint32_t> open = {state};
  while (!open.empty()) {
    const std::uint32_t id = open.back();
    open.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    const State& here = states_[id];
    switch (here.kind) {
      case Kind::kSplit:
        open.push_back(here.next);
        open.push_back(here.other);
        break;
      case Kind::kStart:
        if (at == 0) open.push_back(here.next);
        break;
      case Kind::kEnd:
        if (at == length) open.push_back(here.next);
        break;
      default:
        list.push_back(id);
    }
  }
}

bool NameRegex::matches_start(std::string_view text) const {
  if (states_.empty()) return true;
  std::vector<std::uint32_t> now;
  std::vector<std::uint32_t> then;
  std::vector<bool> seen(states_.size(), false);
  follow(first_, 0, text.size(), now, seen);
  for (std::size_t at = 0;; ++at) {
    for (const std::uint32_t id : now) {
      if (states_[id].kind == Kind::kAccept) return true;
    }
    if (at == text.size() || now.empty()) return false;
    then.clear();
    seen.assign(states_.size(), false);
    for (const std::uint32_t id : now) {
      const State& here = states_[id];
      if (sets_[here.set][static_cast<unsigned char>(text[at])]) {
        follow(here.next, at + 1, text.size(), then, seen);
      }
    }
    now.swap(then);
  }
}

}  // namespace lode::checkpoint
