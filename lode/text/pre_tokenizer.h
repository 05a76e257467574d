#pragma once

#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/json/json.h"
#include "lode/text/sourced_text.h"
#include "lode/text/word_pattern.h"

namespace lode::text {

/// The `pre_tokenizer` of a byte-level tokenizer.json: cuts a text into the words that the model
/// then cuts into tokens. Each stage cuts what the stage before it left.
class PreTokenizer {
 public:
  /// Reads Split (by a known pattern), Digits and ByteLevel, alone or in a Sequence; ByteLevel must
  /// be the last, since it turns characters into bytes. `path` is the JSON path of `value`.
  /// Errors: kUnsupported naming the path for any other type, behaviour or pattern (which it
  /// quotes); kInvalidSource for a damaged value.
  static Result<PreTokenizer> from_json(const json::Value& value, const std::string& path);

  /// The words of `piece`, in order. May put a space before words (`add_prefix_space`).
  std::vector<ByteRange> split(SourcedText& piece) const;

 private:
  enum class Gaps { kKept, kDropped };  // what becomes of text between the matches
  struct Stage {
    std::size_t (*match)(std::string_view text, std::size_t position);
    Gaps gaps = Gaps::kKept;
  };

  Status add(const json::Value& value, const std::string& path);
  Status add_split(const json::Value& value, const std::string& path);
  Status add_byte_level(const json::Value& value, const std::string& path);

  std::vector<Stage> stages_;
  bool byte_level_ = false;
  bool prefix_space_ = false;
  bool last_is_regex_ = false;  // ByteLevel's own pattern, which sees the prefix space
};

}  // namespace lode::text
