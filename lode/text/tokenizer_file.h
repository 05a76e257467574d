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
};

/// Memory: about the size of the two tables, and the names of the vocabulary as hashes.
/// Errors: kInvalidSource for bad JSON or a bad entry, kUnsupported where the two tables have the
/// form of another model.
Result<TokenizerFile> read_tokenizer_file(std::string_view tokenizer_json);

}  // namespace lode::text
