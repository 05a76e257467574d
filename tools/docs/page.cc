#include "tools/docs/page.h"

#include <algorithm>

#include "lode/base/fmt.h"
#include "tools/docs/tables.h"

namespace lode::docs {
namespace {

constexpr std::string_view kMark = "<!-- lode-docs: ";
constexpr std::string_view kClose = " -->\n";
constexpr std::string_view kEnd = "<!-- lode-docs end -->";

Error fault(std::string_view thing, std::string_view wanted, std::string_view found) {
  return Error{.code = Code::kInvalidSource,
               .thing = std::string(thing),
               .wanted = std::string(wanted),
               .found = std::string(found)};
}

Result<std::string> printed(std::string_view name) {
  const auto entry = std::ranges::find(prints(), name, &Print::name);
  if (entry != prints().end()) return entry->text();
  std::string known;
  for (const Print& one : prints())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
  return fault("mark lode-docs", known, name);
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

Result<std::string> filled(std::string_view page) {
  std::string out;
  for (;;) {
    const std::size_t mark = page.find(kMark);
    if (mark == page.npos) break;
    const std::size_t name = mark + kMark.size();
    const std::size_t close = page.find(kClose, name);
    const std::size_t end = page.find(kEnd, name);
    if (close == page.npos || end == page.npos || end < close) {
      return fault("mark lode-docs", kEnd, "none before the next mark or the end of the page");
    }
    const std::string_view what = page.substr(name, close - name);
    if (page.substr(close, end - close).find(kMark) != page.npos) {
      return fault(what, kEnd, "another mark first");
    }
    LODE_TRY(const std::string text, printed(what));
    out += page.substr(0, close + kClose.size());
    out += '\n' + text + '\n';
    out += kEnd;
    page.remove_prefix(end + kEnd.size());
  }
  out += page;
  return out;
}

std::string first_difference(std::string_view is, std::string_view should_be) {
  for (std::size_t line = 1; !is.empty() || !should_be.empty(); ++line) {
    const std::string_view here = take_line(is);
    const std::string_view there = take_line(should_be);
    if (here != there) return fmt::format("line {}: \"{}\", should be \"{}\"", line, here, there);
  }
  return {};
}

}  // namespace lode::docs
