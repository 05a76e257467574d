#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lode/base/result.h"
#include "lode/json/json.h"
#include "lode/text/sourced_text.h"

namespace lode::text {

/// The `normalizer` of a tokenizer.json: nothing, or NFC as the reference does it. The reference's
/// NFC is that of Unicode 9: marks added later do not reorder, and one later pair does not compose.
class Normalizer {
 public:
  /// Reads null, NFC and Sequence of these. `path` is the JSON path of `value`, for messages.
  /// Errors: kUnsupported naming the path for any other type; kInvalidSource for a damaged value.
  static Result<Normalizer> from_json(const json::Value& value, const std::string& path);

  /// False where `apply` would surely give `text` back: callers then need no copy. Cheap.
  bool may_change(std::string_view text) const noexcept;

  /// The normalised text; with its sources when `track` is set, counted from `base`. A composed
  /// character has the source of the first character it was made of, as in the reference.
  SourcedText apply(std::string_view text, bool track, std::size_t base) const;

 private:
  bool nfc_ = false;
};

}  // namespace lode::text
