#include "lode/text/stream_decoder.h"

#include <utility>

#include "lode/text/utf8.h"

namespace lode::text {
namespace {

// The reference waits for the third byte of an encoded surrogate before it calls all three
// ill-formed; the text is the same, it only comes later.
bool is_surrogate_start(std::string_view tail) noexcept {
  return tail.size() == 2 && tail[0] == '\xED' && tail[1] >= '\xA0' && tail[1] <= '\xBF';
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Step step = utf8_step(pending_, at);
    if (step.unfinished || is_surrogate_start(std::string_view(pending_).substr(at))) break;
    append_utf8(step.code_point, out);
    at += step.length;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::flush() { return lossy_utf8(std::exchange(pending_, {})); }

std::string StreamDecoder::push(std::int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  const auto bytes = tokenizer_->id_to_bytes(id);
  return bytes ? bytes_.push(*bytes) : std::string();
}

}  // namespace lode::text
