#include "lode/text/sourced_text.h"

#include "lode/text/utf8.h"

namespace lode::text {

std::vector<ByteRange> own_sources(std::string_view text, std::size_t base) {
  std::vector<ByteRange> sources;
  sources.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_step(text, at).length;
    sources.insert(sources.end(), length, ByteRange{base + at, base + at + length});
    at += length;
  }
  return sources;
}

}  // namespace lode::text
