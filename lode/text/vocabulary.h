#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"

namespace lode::text {

/// The tokens of a byte-level tokenizer: each has an id and the bytes it stands for. Inside the
/// room a token is its index, its place in the order of ids, so that holes between ids cost
/// nothing.
class Vocabulary {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  /// Gathers tokens in any order.
  class Builder {
   public:
    /// `content` as it stands in the file: spelled in the byte alphabet, or plain text if it has
    /// any character outside it. `from_vocab` tokens can come out of the model.
    void add(std::string_view content, std::int32_t id, bool from_vocab);
    /// Errors: kInvalidSource if two different contents share an id, or one content has two ids.
    Result<Vocabulary> build() &&;

    std::size_t size() const noexcept { return entries_.size(); }
    std::uint64_t held_bytes() const noexcept {
      return bytes_.capacity() + entries_.capacity() * sizeof(Entry);
    }

   private:
    friend class Vocabulary;
    struct Entry {
      std::int32_t id;
      std::uint32_t begin;
      std::uint32_t length;
      std::uint8_t flags;
    };
    std::string bytes_;
    std::vector<Entry> entries_;
  };

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(ids_.size()); }
  std::int32_t id(std::uint32_t index) const noexcept { return ids_[index]; }
  std::int32_t largest_id() const noexcept { return ids_.empty() ? -1 : ids_.back(); }

  /// The token with this id, or kNone.
  std::uint32_t index_of(std::int32_t id) const noexcept;
  /// The token that the file writes as `content`, or kNone.
  std::uint32_t find_content(std::string_view content) const;
  /// The token of the model that spells exactly these bytes, or kNone.
  std::uint32_t find_bytes(std::string_view bytes) const noexcept;

  std::string_view bytes(std::uint32_t index) const noexcept;
  /// As the file writes it.
  std::string content(std::uint32_t index) const;

  std::uint64_t held_bytes() const noexcept;

 private:
  static constexpr std::uint8_t kPlain = 1;      // its own text: not spelled in the alphabet
  static constexpr std::uint8_t kFromVocab = 2;  // an entry of the model

  std::uint32_t find(std::string_view bytes, std::uint8_t plain) const noexcept;
  Status fill(Builder&& builder);
  Status index_all();

  std::string bytes_;
  std::vector<std::uint32_t> begins_;  // one more than there are tokens
  std::vector<std::int32_t> ids_;      // rising
  std::vector<std::uint8_t> flags_;
  std::vector<std::uint32_t> slots_;  // open addressing by bytes: index + 1, or 0
};

}  // namespace lode::text
