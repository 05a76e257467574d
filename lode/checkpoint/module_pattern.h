#pragma once

#include <string>
#include <string_view>

#include "lode/base/result.h"
#include "lode/checkpoint/name_regex.h"

namespace lode::checkpoint {

/// One entry of an exclude or target list: a plain name, a name with `*`, or `re:` and a pattern
/// that must match from the start of the name. Names are compared without the prefixes "model."
/// and "language_model.", which some writers leave out.
class ModulePattern {
 public:
  /// With `covers_children` a plain or starred name also stands for all modules inside it.
  ///
  /// Errors: kUnsupported naming a `re:` pattern that uses what NameRegex does not know.
  static Result<ModulePattern> parse(std::string_view entry, bool covers_children);

  bool matches(std::string_view module) const;

  /// As it was written.
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::string glob_;  // without prefixes; used unless regex_ is set
  bool is_regex_ = false;
  bool covers_children_ = false;
  NameRegex regex_;
};

/// The name without leading "model." and "language_model.".
std::string_view without_namespace(std::string_view module) noexcept;

/// Whether `text` is `pattern`, where each `*` stands for any run of characters. Time in
/// proportion to the product of the lengths at worst.
bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

}  // namespace lode::checkpoint
