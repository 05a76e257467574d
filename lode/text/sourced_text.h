#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lode::text {

/// A half-open range of bytes.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// A piece of text on its way through the pipeline and, when somebody asked for offsets, where each
/// of its bytes comes from: the bytes of the original text that the character was made of.
struct SourcedText {
  std::string text;
  std::vector<ByteRange> sources;  // one per byte of `text`, or empty: not asked for
};

/// The text as it is, each character its own source; `base` is where it begins in the original.
std::vector<ByteRange> own_sources(std::string_view text, std::size_t base);

}  // namespace lode::text
