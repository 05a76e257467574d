#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/name_regex.h"

namespace lode::checkpoint {

/// What a plain or starred entry stands for besides modules of that very name.
enum class Cover : std::uint8_t {
  kExact,     // nothing
  kChildren,  // all modules inside it
  kAnywhere,  // these, and wherever its parts occur in a row ("gate" in "layers.0.mlp.gate")
};

/// The modules that an exclude or target list names. An entry is a plain name, a name with `*`, or
/// `re:` and a pattern that must match from the start of the name. Names are compared without the
/// prefixes "model." and "language_model.", which some writers leave out.
class ModuleSet {
 public:
  ModuleSet() = default;
  explicit ModuleSet(Cover cover) : cover_(cover) {}

  /// Errors: kUnsupported naming a `re:` entry that uses what NameRegex does not know, and an
  /// entry with `re:` or `*` beyond the 200th; kInvalidSource naming a `re:` entry of bad syntax.
  /// The set stays as it was.
  Status add(std::string_view entry);

  bool matches(std::string_view module) const;
  bool empty() const noexcept { return names_.empty() && globs_.empty() && regexes_.empty(); }

 private:
  bool matches_name(std::string_view bare) const;
  bool matches_glob(std::string_view bare) const;
  bool matches_regex(std::string_view module) const;

  Cover cover_ = Cover::kExact;
  std::set<std::string, std::less<>> names_;  // plain ones; there may be thousands
  std::vector<std::string> globs_;
  std::vector<NameRegex> regexes_;
};

/// The name without leading "model." and "language_model.".
std::string_view without_namespace(std::string_view module) noexcept;

/// Whether `text` is `pattern`, where each `*` stands for any run of characters. Time in
/// proportion to the product of the lengths at worst.
bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

}  // namespace lode::checkpoint
