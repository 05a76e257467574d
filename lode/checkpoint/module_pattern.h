#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lode/base/result.h"
#include "lode/checkpoint/name_regex.h"

namespace lode::checkpoint {

/// What a plain or starred entry stands for besides modules of that very name.
enum class Cover : std::uint8_t {
  kExact,     // nothing
  kChildren,  // all modules inside it
  kAnywhere,  // these, and wherever its parts occur in a row ("gate" in "layers.0.mlp.gate")
};

/// One entry of an exclude or target list: a plain name, a name with `*`, or `re:` and a pattern
/// that must match from the start of the name. Names are compared without the prefixes "model."
/// and "language_model.", which some writers leave out.
class ModulePattern {
 public:
  /// Errors: kUnsupported naming a `re:` pattern that uses what NameRegex does not know.
  static Result<ModulePattern> parse(std::string_view entry, Cover cover);

  bool matches(std::string_view module) const;

  /// As it was written.
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::string glob_;  // without prefixes; used unless regex_ is set
  bool is_regex_ = false;
  Cover cover_ = Cover::kExact;
  NameRegex regex_;
};

/// The name without leading "model." and "language_model.".
std::string_view without_namespace(std::string_view module) noexcept;

/// Whether `text` is `pattern`, where each `*` stands for any run of characters. Time in
/// proportion to the product of the lengths at worst.
bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

}  // namespace lode::checkpoint
