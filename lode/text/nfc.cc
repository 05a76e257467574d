#include "lode/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "lode/text/unicode_classes.h"

namespace lode::text {
namespace {

// The one pair that utf8proc's Unicode 15 composes and Unicode 9 does not know.
constexpr char32_t kLateComposite = 0x11938;

struct Mark {
  NfcChar character;
  int combining_class;
};

int combining_class(char32_t code_point) noexcept {
  if ((class_of(code_point) & kReorders) == 0) return 0;  // marks younger than Unicode 9 too
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point))->combining_class;
}

bool is_hangul_part(char32_t code_point) noexcept {
  return (code_point >= 0x1100 && code_point <= 0x11FF) ||
         (code_point >= 0xAC00 && code_point <= 0xD7A3);
}

// The full canonical decomposition of one character, as changes: the first replaces it.
void append_decomposition(char32_t code_point, std::vector<NfcChar>& out) {
  if (code_point == kLateComposite) {
    out.push_back({code_point, 0});
    return;
  }
  std::array<utf8proc_int32_t, 32> parts{};  // canonical decompositions have at most 4
  int bound_class = 0;
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code_point), parts.data(), std::ssize(parts),
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &bound_class);
  if (count < 1 || count > std::ssize(parts)) {
    out.push_back({code_point, 0});
    return;
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    out.push_back({static_cast<char32_t>(parts[static_cast<std::size_t>(i)]), i == 0 ? 0 : 1});
  }
}

// Decomposed, and each run of marks in the order of their combining classes.
std::vector<Mark> decompose(const std::vector<char32_t>& input) {
  std::vector<NfcChar> parts;
  for (const char32_t code_point : input) append_decomposition(code_point, parts);
  std::vector<Mark> marks;
  marks.reserve(parts.size());
  for (const NfcChar& part : parts) marks.push_back({part, combining_class(part.code_point)});
  auto run = marks.begin();
  const auto sort_run = [&](auto end) {
    std::stable_sort(run, end, [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
  };
  for (auto it = marks.begin(); it != marks.end(); ++it) {
    if (it->combining_class != 0) continue;
    sort_run(it);
    run = it + 1;
  }
  sort_run(marks.end());
  return marks;
}

std::optional<char32_t> compose(char32_t first, char32_t second) noexcept {
  std::array<utf8proc_int32_t, 2> pair = {static_cast<utf8proc_int32_t>(first),
                                          static_cast<utf8proc_int32_t>(second)};
  const auto length = utf8proc_normalize_utf32(
      pair.data(), 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  const auto composed = static_cast<char32_t>(pair[0]);
  if (length != 1 || composed == kLateComposite) return std::nullopt;
  return composed;
}

// Joins marks to the starter before them, one starter at a time.
class Composer {
 public:
  explicit Composer(std::vector<NfcChar>& out) : out_(out) {}

  void take(const Mark& mark) {
    if (!starter_) {
      begin(mark);
    } else if (!join(mark)) {
      keep(mark);
    }
  }

  void flush() {
    if (starter_) out_.push_back(*starter_);
    out_.insert(out_.end(), waiting_.begin(), waiting_.end());
    starter_.reset();
    waiting_.clear();
    last_class_.reset();
  }

 private:
  void begin(const Mark& mark) {
    if (mark.combining_class == 0) {
      starter_ = mark.character;
    } else {
      out_.push_back(mark.character);
    }
  }
  bool join(const Mark& mark) {
    if (last_class_ && *last_class_ >= mark.combining_class) return false;  // blocked
    const auto composed = compose(starter_->code_point, mark.character.code_point);
    if (!composed) return false;
    starter_ = NfcChar{*composed, starter_->change + mark.character.change - 1};
    return true;
  }
  void keep(const Mark& mark) {
    if (mark.combining_class == 0) {
      flush();
      starter_ = mark.character;
    } else {
      waiting_.push_back(mark.character);
      last_class_ = mark.combining_class;
    }
  }

  std::vector<NfcChar>& out_;
  std::optional<NfcChar> starter_;
  std::vector<NfcChar> waiting_;  // marks after the starter that did not join it
  std::optional<int> last_class_;
};

}  // namespace

bool is_nfc_inert(char32_t code_point) noexcept {
  if (is_hangul_part(code_point)) return false;
  constexpr std::uint16_t kNone = 0xFFFF;
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
  return property->combining_class == 0 && property->comb_index == kNone &&
         property->decomp_seqindex == kNone;
}

void append_nfc(const std::vector<char32_t>& input, std::vector<NfcChar>& out) {
  Composer composer(out);
  for (const Mark& mark : decompose(input)) composer.take(mark);
  composer.flush();
}

}  // namespace lode::text
