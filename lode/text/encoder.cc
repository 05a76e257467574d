// The way of one text through the parts of a Tokenizer.
#include <algorithm>
#include <utility>

#include "lode/text/tokenizer_parts.h"
#include "lode/text/utf8.h"
#include "lode/text/word_cache.h"

namespace lode::text {
namespace {

constexpr std::size_t kMostWordBytes = std::size_t{1} << 29;  // positions in a word have 32 bits

// How many code points begin before each byte, and before the end.
std::vector<std::size_t> count_code_points(std::string_view text) {
  std::vector<std::size_t> counts;
  counts.reserve(text.size() + 1);
  std::size_t count = 0;
  for (const char byte : text) {
    counts.push_back(count);
    if (!is_utf8_continuation(byte)) ++count;
  }
  counts.push_back(count);
  return counts;
}

// A range that ends inside no character, in code points.
TextOffset to_code_points(ByteRange range, const std::vector<std::size_t>& before) noexcept {
  return {before[range.begin], before[range.end]};
}

class Encoder {
 public:
  Encoder(const Vocabulary& vocabulary, const Bpe& bpe, bool track)
      : vocabulary_(vocabulary), bpe_(bpe), track_(track) {}

  void add_token(std::int32_t id, ByteRange source) {
    ids_.push_back(id);
    if (track_) sources_.push_back(source);
  }

  void add_word(const SourcedText& piece, ByteRange word) {
    while (word.end - word.begin > kMostWordBytes) {
      add_short_word(piece, {word.begin, word.begin + kMostWordBytes});
      word.begin += kMostWordBytes;
    }
    add_short_word(piece, word);
  }

  Encoding take(std::string_view text) && {
    Encoding out{std::move(ids_), {}};
    if (!track_) return out;
    const auto before = count_code_points(text);
    out.offsets.reserve(sources_.size());
    for (const ByteRange source : sources_) out.offsets.push_back(to_code_points(source, before));
    return out;
  }

 private:
  void add_short_word(const SourcedText& piece, ByteRange word) {
    const auto bytes = std::string_view(piece.text).substr(word.begin, word.end - word.begin);
    std::span<const WordToken> tokens = cache_.find(bytes);
    if (tokens.empty()) {
      tokens_.clear();
      bpe_.append_tokens(vocabulary_, bytes, tokens_);
      cache_.keep(bytes, tokens_);
      tokens = tokens_;
    }
    for (const WordToken& token : tokens) {
      ids_.push_back(vocabulary_.id(token.index));
      if (track_) sources_.push_back(source_of(piece, word.begin, token));
    }
  }
  static ByteRange source_of(const SourcedText& piece, std::size_t base, const WordToken& token) {
    return {piece.sources[base + token.begin].begin, piece.sources[base + token.end - 1].end};
  }

  const Vocabulary& vocabulary_;
  const Bpe& bpe_;
  bool track_;
  WordCache cache_;
  std::vector<WordToken> tokens_;
  std::vector<std::int32_t> ids_;
  std::vector<ByteRange> sources_;
};

SourcedText slice(const SourcedText& piece, ByteRange range) {
  SourcedText part{piece.text.substr(range.begin, range.end - range.begin), {}};
  if (piece.sources.empty()) return part;
  const auto from = piece.sources.begin();
  part.sources.assign(from + static_cast<std::ptrdiff_t>(range.begin),
                      from + static_cast<std::ptrdiff_t>(range.end));
  return part;
}

}  // namespace

Encoding Tokenizer::Parts::encode(std::string_view utf8, const EncodeOptions& options,
                                  bool track) const {
  const bool well_formed = is_well_formed_utf8(utf8);
  const std::string repaired = well_formed ? std::string() : lossy_utf8(utf8);
  const std::string_view text = well_formed ? utf8 : std::string_view(repaired);

  Encoder encoder(vocabulary, bpe, track);
  if (options.add_special_tokens) {
    for (const std::int32_t id : post_processor.prefix) encoder.add_token(id, {});
  }
  const bool plain = !options.parse_special;
  for (const TextPart& raw : raw_tokens.split(text, plain)) {
    if (raw.added_id >= 0) {
      encoder.add_token(raw.added_id, raw.range);
      continue;
    }
    const auto inside = text.substr(raw.range.begin, raw.range.end - raw.range.begin);
    const SourcedText piece = normalizer.apply(inside, track, raw.range.begin);
    for (const TextPart& part : normalized_tokens.split(piece.text, plain)) {
      if (part.added_id >= 0) {
        const ByteRange range = part.range;
        encoder.add_token(part.added_id, track ? ByteRange{piece.sources[range.begin].begin,
                                                           piece.sources[range.end - 1].end}
                                               : ByteRange{});
        continue;
      }
      SourcedText words = slice(piece, part.range);
      for (const ByteRange word : pre_tokenizer.split(words)) encoder.add_word(words, word);
    }
  }
  if (options.add_special_tokens) {
    for (const std::int32_t id : post_processor.suffix) encoder.add_token(id, {});
  }
  return std::move(encoder).take(text);
}

}  // namespace lode::text
