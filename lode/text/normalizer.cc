#include "lode/text/normalizer.h"

#include <vector>

#include "lode/text/json_fields.h"
#include "lode/text/nfc.h"
#include "lode/text/utf8.h"

namespace lode::text {
namespace {

// Below this nothing composes with what stands before it, and nothing alone changes.
constexpr char32_t kFirstCombining = 0x300;

bool closes_segment(char32_t code_point) noexcept {
  return code_point < kFirstCombining || is_nfc_inert(code_point);
}

// Writes normalised characters and, when asked, where they come from.
class NfcWriter {
 public:
  NfcWriter(std::string_view source, bool track, std::size_t base)
      : source_(source), track_(track), base_(base) {}

  // Turns the waiting characters into their normal form.
  void close_segment() {
    if (segment_.size() == 1 && closes_segment(segment_.front())) {
      put({segment_.front(), 0});
    } else {
      composed_.clear();
      append_nfc(segment_, composed_);
      for (const NfcChar& character : composed_) put(character);
    }
    segment_.clear();
  }
  void wait(char32_t code_point) { segment_.push_back(code_point); }

  SourcedText take() && {
    close_segment();
    return std::move(out_);
  }

 private:
  void put(NfcChar character) {
    const std::size_t before = out_.text.size();
    append_utf8(character.code_point, out_.text);
    ByteRange from = previous_;
    for (std::int32_t i = character.change; i <= 0; ++i) {
      skip_source();
      if (i == character.change) from = previous_;
    }
    if (track_) out_.sources.insert(out_.sources.end(), out_.text.size() - before, from);
  }
  void skip_source() {
    const std::size_t length = utf8_step(source_, at_).length;
    previous_ = {base_ + at_, base_ + at_ + length};
    at_ += length;
  }

  std::string_view source_;
  bool track_;
  std::size_t base_;
  std::size_t at_ = 0;
  ByteRange previous_;  // the source character before at_
  SourcedText out_;
  std::vector<char32_t> segment_;
  std::vector<NfcChar> composed_;
};

}  // namespace

Result<Normalizer> Normalizer::from_json(const json::Value& value, const std::string& path) {
  Normalizer result;
  if (value.is_null()) return result;
  LODE_TRY(const std::string* type, string_field(value, "type", path));
  if (*type == "NFC") {
    result.nfc_ = true;
    return result;
  }
  if (*type != "Sequence") return unsupported(path + ".type", "NFC or Sequence", *type);
  LODE_TRY(const json::Array* parts, array_field(value, "normalizers", path));
  for (std::size_t i = 0; i < parts->size(); ++i) {
    LODE_TRY(const Normalizer part,
             from_json((*parts)[i], path + ".normalizers[" + std::to_string(i) + "]"));
    result.nfc_ = result.nfc_ || part.nfc_;  // NFC twice is NFC once
  }
  return result;
}

bool Normalizer::may_change(std::string_view text) const noexcept {
  if (!nfc_) return false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (!closes_segment(step.code_point)) return true;
    at += step.length;
  }
  return false;
}

SourcedText Normalizer::apply(std::string_view text, bool track, std::size_t base) const {
  if (!may_change(text)) {
    return {std::string(text), track ? own_sources(text, base) : std::vector<ByteRange>{}};
  }
  NfcWriter writer(text, track, base);
  bool waiting = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    if (waiting && closes_segment(step.code_point)) writer.close_segment();
    writer.wait(step.code_point);
    waiting = true;
    at += step.length;
  }
  return std::move(writer).take();
}

}  // namespace lode::text
