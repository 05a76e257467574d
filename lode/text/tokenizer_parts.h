#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lode/text/added_tokens.h"
#include "lode/text/bpe.h"
#include "lode/text/normalizer.h"
#include "lode/text/post_processor.h"
#include "lode/text/pre_tokenizer.h"
#include "lode/text/tokenizer.h"
#include "lode/text/vocabulary.h"

namespace lode::text {

// What a tokenizer.json becomes; private to tokenizer.cc and encoder.cc.
struct Tokenizer::Parts {
  Vocabulary vocabulary;
  Bpe bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  AddedTokenFinder raw_tokens;            // looked for in the text as it comes
  AddedTokenFinder normalized_tokens;     // looked for after the normaliser
  std::vector<std::int32_t> special_ids;  // rising
  std::uint64_t making_bytes = 0;

  Encoding encode(std::string_view utf8, const EncodeOptions& options, bool track) const;
};

}  // namespace lode::text
