#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lode/text/tokenizer.h"

namespace lode::text {

/// Bytes in, whole characters out. A character goes out as soon as it is complete; what can become
/// none any more is U+FFFD, one for each maximal ill-formed part.
class Utf8Stream {
 public:
  /// The text that `bytes` completes.
  std::string push(std::string_view bytes);
  /// What is left at the end: U+FFFD if a character was unfinished.
  std::string flush();

 private:
  std::string pending_;  // the beginning of a character, at most 3 bytes
};

/// Token ids in, whole characters out.
class StreamDecoder {
 public:
  /// Borrows `tokenizer`, which must outlive this. Ids that are none add nothing.
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  std::string push(std::int32_t id);
  std::string flush() { return bytes_.flush(); }

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  Utf8Stream bytes_;
};

}  // namespace lode::text
