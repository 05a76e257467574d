#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/generation_config.h"
#include "lode/checkpoint/hf_config.h"
#include "lode/checkpoint/quant_config.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/families/family.h"
#include "lode/loader/binding.h"
#include "lode/prepared/checkpoint.h"
#include "lode/text/tokenizer.h"

namespace lode::engine {

/// A checkpoint folder, understood: what it holds, which family it is, where each weight lies. No
/// weight has been read.
struct Source {
  std::filesystem::path folder;
  checkpoint::TensorIndex index;
  checkpoint::HfConfig config;
  checkpoint::GenerationConfig generation;
  checkpoint::QuantConfig quant;
  const families::Family* family = nullptr;
  families::ModelSpec spec;
  loader::Binding binding;
  // A prepared checkpoint has this, and an index and a binding of nothing.
  std::optional<prepared::Checkpoint> prepared;
  std::optional<text::Tokenizer> tokenizer;  // after open_tokenizer, where the folder has one
};

/// The folder's own name: "DIR/" and "DIR" are one model.
std::string model_name(const Source& source);

/// Whether the folder has a tokenizer.json.
bool has_tokenizer(const std::filesystem::path& folder);

/// Errors: kInvalidSource where there is no such folder.
Status check_folder(const std::filesystem::path& folder);

/// Reads headers and configs of `folder`, and binds every tensor to its role. In a prepared
/// checkpoint, the index takes the place of both; `verification` says how much of it is trusted.
///
/// Errors: kInvalidSource, kUnsupported or kIo from the rooms that read them; kLayoutMismatch for a
///         checkpoint that was prepared for something else.
/// Memory: index and binding; see `metadata_bytes`.
Result<Source> open_source(const std::filesystem::path& folder,
                           prepared::Verification verification = prepared::Verification::kHeader);

/// A checkpoint as it was published, for a preparation, which may have to go on from weights that
/// it has given away in part: it looks for itself. Any other command is refused such a folder, as
/// zeros would pass for weights there.
///
/// Errors: as open_source; kUsage for a folder that has been prepared.
Result<Source> open_source_to_prepare(const std::filesystem::path& folder);

/// For what needs tensors as they were published: preparing, measuring a load.
/// Errors: kUsage where the source is a prepared checkpoint.
Status check_not_prepared(const Source& source);

/// Bytes of all tensors in the files, and the number of those files.
std::uint64_t source_bytes(const Source& source);
std::size_t num_source_files(const Source& source);

/// What a source and its tokenizer hold for as long as the model runs, in bytes: exact for index
/// and binding, and for a tokenizer that has been read; else text::tokenizer_bytes_bound.
std::uint64_t metadata_bytes(const Source& source);

/// At least what reading the tokenizer takes for a while beside what stays.
std::uint64_t reading_bytes(const Source& source);

/// Reads the folder's tokenizer.json into `source`, where there is one and it has not been read.
/// Errors: those of read_tokenizer.
Status open_tokenizer(Source& source);

/// The tokenizer that open_tokenizer has found.
/// Errors: kInvalidSource where the folder has no tokenizer.json.
Result<const text::Tokenizer*> tokenizer_of(const Source& source);

/// The tokens that end a text: generation_config's and config's.
/// Errors: kInvalidSource where config.json lists no ids.
Result<std::vector<std::int64_t>> end_ids_of(const Source& source);

/// tokenizer.json of the folder, read piece by piece.
/// Errors: kInvalidSource where there is none, kIo, those of text::Tokenizer::from_json.
Result<text::Tokenizer> read_tokenizer(const std::filesystem::path& folder);

}  // namespace lode::engine
