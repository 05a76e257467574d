#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/text/vocabulary.h"

namespace lode::text {

/// The merges of a tokenizer.json in the order of the file, as they come: pairs of contents.
class MergeList {
 public:
  void add(std::string_view left, std::string_view right);
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(ends_.size() / 2); }
  std::string_view left(std::uint32_t rank) const noexcept { return part(2 * std::size_t{rank}); }
  std::uint64_t held_bytes() const noexcept {
    return text_.capacity() + ends_.capacity() * sizeof(std::uint32_t);
  }
  std::string_view right(std::uint32_t rank) const noexcept {
    return part(2 * std::size_t{rank} + 1);
  }

 private:
  std::string_view part(std::size_t i) const noexcept;
  std::string text_;
  std::vector<std::uint32_t> ends_;
};

struct BpeOptions {
  bool ignore_merges = false;  // a word that is in the vocabulary is one token, merges or not
  bool fuse_unknown = false;   // neighbouring bytes without a token become one unknown token
  std::uint32_t unknown = Vocabulary::kNone;  // else bytes without a token are left out
};

/// A token of a word and the bytes of the word that it covers.
struct WordToken {
  std::uint32_t index;  // in the Vocabulary
  std::uint32_t begin;
  std::uint32_t end;
};

/// Byte pair encoding: the pair of lowest rank is merged first, the leftmost of equals, until none
/// is left.
class Bpe {
 public:
  /// Errors: kInvalidSource naming the merge whose parts or whole the vocabulary lacks.
  static Result<Bpe> make(const Vocabulary& vocabulary, const MergeList& merges,
                          const BpeOptions& options);

  /// Appends the tokens of `word`, which must be shorter than 1 GiB.
  /// Memory: while it works, some 40 bytes for each byte of the word.
  void append_tokens(const Vocabulary& vocabulary, std::string_view word,
                     std::vector<WordToken>& out) const;

  std::uint64_t held_bytes() const noexcept;
  /// Of the list that `make` sorts, for so many merges.
  static std::uint64_t making_bytes(std::uint64_t num_merges) noexcept;

 private:
  struct Merge {
    std::uint32_t right;
    std::uint32_t rank;
    std::uint32_t result;
  };
  friend class WordMerger;

  const Merge* find(std::uint32_t left, std::uint32_t right) const noexcept;

  BpeOptions options_;
  std::array<std::uint32_t, 256> byte_tokens_{};
  std::vector<std::uint32_t> begins_;  // where the merges of each left token begin
  std::vector<Merge> merges_;          // by left token, then by right token
};

}  // namespace lode::text
