#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/json/json.h"

namespace lode::checkpoint {

/// A key and its other spellings, best first. A dot walks into an object: "rope_scaling.factor".
using Keys = std::initializer_list<std::string_view>;

/// A Hugging Face config.json. Every getter looks for its keys in order, each first inside
/// `text_config` (where a multimodal wrapper keeps the language model's numbers), then at the top
/// level; null counts as absent. What was asked for is remembered, so that the keys nobody asked
/// for can be listed.
class HfConfig {
 public:
  /// Errors: kInvalidSource for text that is no JSON object.
  static Result<HfConfig> parse(std::string_view text);

  /// Reads `folder`/config.json.
  ///
  /// Errors: kInvalidSource where it is missing, too large (16 MiB) or no JSON object; kIo.
  static Result<HfConfig> read(const std::filesystem::path& folder);

  /// The value of the first key that is there, or null.
  const json::Value* find(Keys keys) const;
  bool has(Keys keys) const { return find(keys) != nullptr; }

  /// The value; the fallback where none of the keys is there. Without a fallback the key must be
  /// there. A whole number counts as a float; 1.0 does not count as an int.
  ///
  /// Errors: kInvalidSource naming the JSON path for a value of another kind, and the keys where
  /// a value must be there and is not.
  Result<std::int64_t> get_int(Keys keys) const;
  Result<std::int64_t> get_int(Keys keys, std::int64_t fallback) const;
  Result<double> get_float(Keys keys) const;
  Result<double> get_float(Keys keys, double fallback) const;
  Result<bool> get_bool(Keys keys, bool fallback) const;
  Result<std::string> get_string(Keys keys) const;
  Result<std::string> get_string(Keys keys, std::string_view fallback) const;

  /// As above, but a number > 0 that fits 32 bits: an extent.
  ///
  /// Errors: as get_int.
  Result<std::uint32_t> get_extent(Keys keys) const;
  Result<std::uint32_t> get_extent(Keys keys, std::uint32_t fallback) const;

  /// A list; a single value counts as a list of one; empty where no key is there.
  ///
  /// Errors: kInvalidSource naming the JSON path of an item of another kind.
  Result<std::vector<std::int64_t>> get_ints(Keys keys) const;
  Result<std::vector<double>> get_floats(Keys keys) const;
  Result<std::vector<std::string>> get_strings(Keys keys) const;

  /// The outer model_type and architectures[0]; "" where absent or of another kind.
  std::string model_type() const;
  std::string architecture() const;
  /// model_type of the language model: inside text_config if there is one.
  std::string text_model_type() const;

  /// Paths of the keys that no getter has asked for, in the order of the file.
  std::vector<std::string> unread_keys() const;

  const json::Value& root() const noexcept { return root_; }

 private:
  explicit HfConfig(json::Value root) : root_(std::move(root)) {}

  struct Found {
    const json::Value* value = nullptr;
    std::string path;
  };
  Found look_up(Keys keys) const;
  template <class T, class Take>
  Result<std::vector<T>> get_list(Keys keys, std::string_view wanted, Take take) const;

  json::Value root_;
  mutable std::set<std::string, std::less<>> read_;  // paths without "text_config."
};

}  // namespace lode::checkpoint
