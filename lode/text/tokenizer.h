#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/json/json.h"

namespace lode::text {

struct TokenizerFile;

struct EncodeOptions {
  bool add_special_tokens = false;  // what the post-processor of the file puts around a text
  bool parse_special = true;        // false: the text of a special token is only text
};

/// Where a token lies in the text: a half-open range of code points.
struct TextOffset {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const TextOffset&, const TextOffset&) = default;
};

struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<TextOffset> offsets;  // one per id; {0, 0} for what add_special_tokens added
};

/// A byte-level BPE tokenizer as its tokenizer.json describes it: ids equal to the reference's.
/// All const functions may be called from many threads at once.
class Tokenizer {
 public:
  /// Memory: held_bytes() afterwards; while it reads, about as much again as the text.
  /// Errors: kUnsupported naming the JSON path for anything that Lode cannot follow exactly;
  /// kInvalidSource for a damaged file, or one whose parts contradict each other.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json);
  /// The same from pieces: the text is never in memory as a whole.
  /// Errors: as above, and those of the source.
  static Result<Tokenizer> from_json(json::Source& source);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// The ids of `utf8`; what is ill-formed in it is read as U+FFFD. With parse_special = false
  /// special tokens in the text are not recognised: use it for what users write. (Added tokens that
  /// are not special still are, as in the reference.)
  std::vector<std::int32_t> encode(std::string_view utf8, const EncodeOptions& options) const;

  /// As `encode`, and where each token lies, in code points of the text before any normalisation.
  Encoding encode_with_offsets(std::string_view utf8, const EncodeOptions& options) const;

  /// The text of `ids`; ids that are none are skipped, bytes that are no character become U+FFFD.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  /// The bytes of one token, for streaming; nothing where the id is none. The bytes stay valid as
  /// long as the tokenizer.
  std::optional<std::string_view> id_to_bytes(std::int32_t id) const noexcept;

  /// The id of a token by its text as tokenizer.json writes it.
  std::optional<std::int32_t> token_to_id(std::string_view token) const;

  bool is_special(std::int32_t id) const noexcept;

  /// One more than the largest id.
  std::size_t vocab_size() const noexcept;

  /// Bytes of memory that this tokenizer holds.
  std::uint64_t held_bytes() const noexcept;

  /// At least what was held beside held_bytes() and the text while this tokenizer was made.
  std::uint64_t making_bytes() const noexcept;

 private:
  struct Parts;
  static Result<Tokenizer> from_file(TokenizerFile file);
  explicit Tokenizer(std::unique_ptr<const Parts> parts) noexcept;
  std::unique_ptr<const Parts> parts_;
};

/// At least the held_bytes() of any tokenizer that a file of this size can make; for the ledger
/// before the file is read.
std::uint64_t tokenizer_bytes_bound(std::uint64_t json_file_bytes) noexcept;

}  // namespace lode::text
