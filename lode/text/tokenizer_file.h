#pragma once

#include <string_view>

#include "lode/base/result.h"
#include "lode/json/json.h"
#include "lode/text/bpe.h"
#include "lode/text/vocabulary.h"

namespace lode::text {

/// A tokenizer.json taken apart: the two large tables as compact lists, the small rest as a tree.
struct TokenizerFile {
  Vocabulary::Builder vocabulary;  // the entries of model.vocab
  MergeList merges;                // model.merges, in either of its two forms
  json::Value rest;                // the file without these two

  std::uint64_t held_bytes() const noexcept;  // of the two tables
};

/// Memory: about the size of the two tables, and the names of the vocabulary as hashes.
/// Errors: kInvalidSource for bad JSON or a bad entry, kUnsupported where the two tables have the
/// form of another model.
Result<TokenizerFile> read_tokenizer_file(std::string_view tokenizer_json);
/// The same from pieces: the text is never in memory as a whole.
/// Errors: as above, and those of the source.
Result<TokenizerFile> read_tokenizer_file(json::Source& source);

}  // namespace lode::text
