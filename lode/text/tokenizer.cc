#include "lode/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/text/json_fields.h"
#include "lode/text/tokenizer_file.h"
#include "lode/text/tokenizer_parts.h"
#include "lode/text/utf8.h"

namespace lode::text {
namespace {

// While a file is read: the names of its vocabulary as hashes, in a table that grows to twice its
// size; an added token as a tree of eight members; a piece of the text and the longest string.
constexpr std::uint64_t kNameBytes = 48;
constexpr std::uint64_t kAddedTokenTreeBytes = 2 * kKiB;
constexpr std::uint64_t kPieceBytes = 512 * kKiB;

std::uint64_t making_bytes_of(const TokenizerFile& file, std::uint64_t num_added) {
  // The names are gone before the merges are sorted. A list that grows is there twice for an
  // instant, the second time with half as much; no two grow at once.
  const std::uint64_t names = file.vocabulary.size() * kNameBytes;
  const std::uint64_t lists = file.held_bytes() / 2 * 3;
  return lists + std::max(names, Bpe::making_bytes(file.merges.size())) +
         num_added * kAddedTokenTreeBytes + kPieceBytes;
}

const json::Value& member_or_null(const json::Value& object, std::string_view name) {
  static const json::Value null;
  const json::Value* member = object.find(name);
  return member == nullptr ? null : *member;
}

// Only what Lode follows exactly may stand in a model.
Status check_model(const json::Value& model) {
  if (model.as_object() == nullptr) return invalid("model", "an object", std::string(model.kind()));
  const json::Value& type = member_or_null(model, "type");  // files of old have none
  if (!type.is_null() && type != json::Value("BPE")) {
    return unsupported("model.type", "BPE", json::dump(type));
  }
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json::Value& value = member_or_null(model, affix);
    if (!value.is_null() && value != json::Value("")) {
      return unsupported("model." + std::string(affix), "null", json::dump(value));
    }
  }
  LODE_TRY(const bool fallback, bool_field_or(model, "byte_fallback", false, "model"));
  if (fallback) return unsupported("model.byte_fallback", "false, in a byte-level model", "true");
  return {};
}

Result<BpeOptions> read_options(const json::Value& model, const Vocabulary& vocabulary) {
  BpeOptions options;
  LODE_TRY(options.ignore_merges, bool_field_or(model, "ignore_merges", false, "model"));
  LODE_TRY(options.fuse_unknown, bool_field_or(model, "fuse_unk", false, "model"));
  if (member_or_null(model, "unk_token").is_null()) return options;
  LODE_TRY(const std::string* unknown, string_field(model, "unk_token", "model"));
  options.unknown = vocabulary.find_content(*unknown);
  if (options.unknown == Vocabulary::kNone) {
    return invalid("model.unk_token", "a token of the vocabulary", *unknown);
  }
  return options;
}

Status check_decoder(const json::Value& decoder) {
  if (decoder.is_null()) return unsupported("decoder", "ByteLevel", "null");
  LODE_TRY(const std::string* type, string_field(decoder, "type", "decoder"));
  if (*type != "ByteLevel") return unsupported("decoder.type", "ByteLevel", *type);
  return {};
}

Status check_added_ids(const PostProcessor& post, const Vocabulary& vocabulary) {
  for (const auto* ids : {&post.prefix, &post.suffix}) {
    for (const std::int32_t id : *ids) {
      if (vocabulary.index_of(id) == Vocabulary::kNone) {
        return invalid("post_processor", "ids of the vocabulary", std::to_string(id));
      }
    }
  }
  return {};
}

std::vector<std::int32_t> special_ids_of(const std::vector<AddedToken>& tokens) {
  std::vector<std::int32_t> ids;
  for (const AddedToken& token : tokens) {
    if (token.special) ids.push_back(token.id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json) {
  LODE_TRY(TokenizerFile file, read_tokenizer_file(tokenizer_json));
  return from_file(std::move(file));
}

Result<Tokenizer> Tokenizer::from_json(json::Source& source) {
  LODE_TRY(TokenizerFile file, read_tokenizer_file(source));
  return from_file(std::move(file));
}

Result<Tokenizer> Tokenizer::from_file(TokenizerFile file) {
  const json::Value& root = file.rest;
  const json::Value& model = member_or_null(root, "model");
  LODE_TRY_STATUS(check_model(model));
  LODE_TRY_STATUS(check_decoder(member_or_null(root, "decoder")));
  LODE_TRY(Normalizer normalizer,
           Normalizer::from_json(member_or_null(root, "normalizer"), "normalizer"));
  LODE_TRY(PreTokenizer pre_tokenizer,
           PreTokenizer::from_json(member_or_null(root, "pre_tokenizer"), "pre_tokenizer"));
  LODE_TRY(PostProcessor post_processor,
           PostProcessor::from_json(member_or_null(root, "post_processor"), "post_processor"));
  LODE_TRY(const auto added, read_added_tokens(root.find("added_tokens")));
  const std::uint64_t making_bytes = making_bytes_of(file, added.size());
  for (const AddedToken& token : added) file.vocabulary.add(token.content, token.id, false);
  LODE_TRY(Vocabulary vocabulary, std::move(file.vocabulary).build());
  LODE_TRY_STATUS(check_added_ids(post_processor, vocabulary));
  LODE_TRY(const BpeOptions options, read_options(model, vocabulary));
  LODE_TRY(Bpe bpe, Bpe::make(vocabulary, file.merges, options));
  AddedTokenFinder raw(added, false, normalizer);
  AddedTokenFinder normalized(added, true, normalizer);
  return Tokenizer(std::make_unique<const Parts>(
      Parts{std::move(vocabulary), std::move(bpe), normalizer, std::move(pre_tokenizer),
            std::move(post_processor), std::move(raw), std::move(normalized), special_ids_of(added),
            making_bytes}));
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) noexcept : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view utf8,
                                            const EncodeOptions& options) const {
  return parts_->encode(utf8, options, false).ids;
}

Encoding Tokenizer::encode_with_offsets(std::string_view utf8, const EncodeOptions& options) const {
  return parts_->encode(utf8, options, true);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (skip_special && is_special(id)) continue;
    if (const auto token = id_to_bytes(id)) bytes += *token;
  }
  return is_well_formed_utf8(bytes) ? bytes : lossy_utf8(bytes);
}

std::optional<std::string_view> Tokenizer::id_to_bytes(std::int32_t id) const noexcept {
  const std::uint32_t index = parts_->vocabulary.index_of(id);
  if (index == Vocabulary::kNone) return std::nullopt;
  return parts_->vocabulary.bytes(index);
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const std::uint32_t index = parts_->vocabulary.find_content(token);
  if (index == Vocabulary::kNone) return std::nullopt;
  return parts_->vocabulary.id(index);
}

bool Tokenizer::is_special(std::int32_t id) const noexcept {
  return std::binary_search(parts_->special_ids.begin(), parts_->special_ids.end(), id);
}

std::size_t Tokenizer::vocab_size() const noexcept {
  return static_cast<std::size_t>(std::int64_t{parts_->vocabulary.largest_id()} + 1);
}

std::uint64_t Tokenizer::held_bytes() const noexcept {
  const PostProcessor& post = parts_->post_processor;
  const std::size_t ids =
      parts_->special_ids.capacity() + post.prefix.capacity() + post.suffix.capacity();
  return sizeof(Parts) + ids * sizeof(std::int32_t) + parts_->vocabulary.held_bytes() +
         parts_->bpe.held_bytes() + parts_->raw_tokens.held_bytes() +
         parts_->normalized_tokens.held_bytes();
}

std::uint64_t Tokenizer::making_bytes() const noexcept { return parts_->making_bytes; }

// What entries make, by the bytes that they take in the file:
//   A token `"abc":12345,`: slot <= 3 * 4, begin 4, id 4, flag 1, first merge 4, and its text, 25 +
//   n
//     of 9 + n: at most 2.4 each once texts of two bytes (some 11,000) and short ids are used up;
//     what those take beyond it is in the constant.
//   A merge `"a b",`: 12 of at least 5.
//   An added token: a needle of 72, its text, a token; of at least 100.
std::uint64_t tokenizer_bytes_bound(std::uint64_t json_file_bytes) noexcept {
  constexpr std::uint64_t kTables = 288 * kKiB;
  const auto fivefold = checked_mul(json_file_bytes, 5);
  return fivefold ? *fivefold / 2 + kTables : UINT64_MAX;
}

}  // namespace lode::text
