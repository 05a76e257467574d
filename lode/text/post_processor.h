#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/json/json.h"

namespace lode::text {

/// The `post_processor` of a tokenizer.json: the tokens that go before and after a text.
struct PostProcessor {
  std::vector<std::int32_t> prefix;
  std::vector<std::int32_t> suffix;

  /// Reads null, ByteLevel (which adds nothing), TemplateProcessing and Sequence of these.
  /// Errors: kUnsupported naming the path for any other type; kInvalidSource for a template that
  /// names an unknown token or has not exactly one place for the text.
  static Result<PostProcessor> from_json(const json::Value& value, const std::string& path);
};

}  // namespace lode::text
