#include "lode/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace lode::text {
namespace {

std::vector<std::size_t> borders(std::string_view text) {
  std::vector<std::size_t> border(text.size() + 1, 0);
  std::size_t length = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = border[length];
    if (text[i] == text[length]) ++length;
    border[i + 1] = length;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : include_stop_(include_stop) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    auto border = borders(stop);
    needles_.push_back({std::move(stop), std::move(border)});
  }
}

void StopMatcher::advance(Needle& needle, char byte) const noexcept {
  while (needle.matched > 0 && needle.text[needle.matched] != byte) {
    needle.matched = needle.fallback[needle.matched];
  }
  if (needle.text[needle.matched] == byte) ++needle.matched;
}

std::size_t StopMatcher::longest_complete() const noexcept {
  std::size_t best = kNone;
  for (std::size_t i = 0; i < needles_.size(); ++i) {
    const std::size_t length = needles_[i].text.size();
    if (needles_[i].matched < length) continue;
    if (best == kNone || length > needles_[best].text.size()) best = i;
  }
  return best;
}

std::string StopMatcher::stop_at(std::size_t needle) {
  stopped_by_ = needle;
  std::string out = std::exchange(waiting_, {});
  if (!include_stop_) out.resize(out.size() - needles_[needle].text.size());
  return out;
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  for (const char byte : text) {
    waiting_.push_back(byte);
    for (Needle& needle : needles_) advance(needle, byte);
    const std::size_t found = longest_complete();
    if (found != kNone) return stop_at(found);
  }
  std::size_t held = 0;
  for (const Needle& needle : needles_) held = std::max(held, needle.matched);
  std::string out = waiting_.substr(0, waiting_.size() - held);
  waiting_.erase(0, out.size());
  return out;
}

std::string StopMatcher::flush() { return stopped() ? std::string() : std::exchange(waiting_, {}); }

std::string_view StopMatcher::stopped_by() const noexcept {
  return stopped() ? std::string_view(needles_[stopped_by_].text) : std::string_view();
}

}  // namespace lode::text
