#include "lode/base/result.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace lode {
namespace {

constexpr std::array kCodes = {
    CodeInfo{Code::kOther, "other", 1, 500, "LodeError", "any other error"},
    CodeInfo{Code::kUsage, "usage", 2, 400, "ValueError", "wrong flags or arguments"},
    CodeInfo{Code::kOverBudget, "over_budget", 3, 507, "OverBudget", "does not fit the budget"},
    CodeInfo{Code::kInvalidSource, "invalid_source", 4, 422, "InvalidSource",
             "the checkpoint is damaged or contradicts itself"},
    CodeInfo{Code::kSourceChanged, "source_changed", 5, 409, "SourceChanged",
             "a file changed while it was read"},
    CodeInfo{Code::kIo, "io", 6, 500, "OSError", "reading or writing failed"},
    CodeInfo{Code::kNoSpace, "no_space", 7, 507, "NoSpace", "the disk is full"},
    CodeInfo{Code::kLayoutMismatch, "layout_mismatch", 8, 409, "LayoutMismatch",
             "prepared for another target or version"},
    CodeInfo{Code::kBudgetViolated, "budget_violated", 9, 500, "BudgetViolated",
             "more was held than reserved: a bug of lode"},
    CodeInfo{Code::kPressure, "pressure", 10, 503, "PressureStop",
             "stopped because the machine ran short of memory"},
    CodeInfo{Code::kUnsupported, "unsupported", 11, 501, "Unsupported",
             "unknown family, format, target or hardware"},
    CodeInfo{Code::kCheckFailed, "check_failed", 12, 500, "CheckFailed", "a check found faults"},
    CodeInfo{Code::kPeerLost, "peer_lost", 13, 503, "PeerLost", "another rank was lost"},
    CodeInfo{Code::kInterrupted, "interrupted", 130, 499, "KeyboardInterrupt", "interrupted"},
};

// Parts of a message quote files that may be hostile. A terminal takes control characters for
// orders, and a text of any length for a line.
std::string in_one_line(std::string_view part) {
  constexpr std::size_t kMaxBytes = 2000;
  const bool cut = part.size() > kMaxBytes;
  std::size_t keep = cut ? kMaxBytes : part.size();
  // Not within a character of UTF-8.
  while (cut && keep > 0 && (static_cast<unsigned char>(part[keep]) & 0xC0) == 0x80) --keep;
  std::string text(part.substr(0, keep));
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return cut ? text + "..." : text;
}

}  // namespace

void check_failed(const char* condition, const char* message, const char* file, int line) noexcept {
  std::fprintf(stderr, "lode: broken promise at %s:%d: %s (%s)\n", file, line, message, condition);
  std::abort();
}

std::span<const CodeInfo> code_table() noexcept { return kCodes; }

const CodeInfo& info(Code code) noexcept { return kCodes[static_cast<std::size_t>(code)]; }

std::string to_string(const Error& error) {
  std::string text = in_one_line(error.thing);
  if (!error.wanted.empty()) text += ": want " + in_one_line(error.wanted);
  if (!error.found.empty()) {
    text += (error.wanted.empty() ? ": " : ", found ") + in_one_line(error.found);
  }
  if (!error.where.empty()) text += " (" + in_one_line(error.where) + ")";
  if (!error.hint.empty()) text += "; " + in_one_line(error.hint);
  return text;
}

Error at(std::string_view place, Error error) {
  error.where = error.where.empty() ? std::string(place) : std::string(place) + ", " + error.where;
  return error;
}

}  // namespace lode
