#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/system_calls.h"
#include "lode/prepared/output_file.h"
#include "lode/prepared/prepare.h"

namespace lode::prepared {

// The folder of an export, at every instant one of:
//
//   nothing     empty, or not there
//   begun       lode-export.json, which says what is exported; some of its files, which bear
//               ".part" behind their names until all are whole; no index
//   finished    lode-export.json, all files under their names, and the index, which came last
//
// What was begun is removed and begun again by whoever exports the same: only files that an export
// names, and only beside lode-export.json.

inline constexpr std::string_view kExportFile = "lode-export.json";
inline constexpr std::string_view kExportIndexFile = "model.safetensors.index.json";

/// "model-00002-of-00005.safetensors": of file 1 of 5.
std::string export_file_name(std::size_t idx, std::size_t count);

/// What is exported, and for whom, as lode-export.json has it: exports of the same text are the
/// same.
/// Errors: those of stamp_sources.
Result<std::string> describe_export(const Input& input);

/// What an export says of itself.
struct ExportDescription {
  loader::EngineChoice choice;  // experts are empty where there are all
  std::string family;
  std::uint64_t num_experts = 0;       // of a layer of the model
  std::vector<std::uint32_t> experts;  // of each layer, by their numbers in the model
  struct Source {
    std::string name;
    std::uint64_t bytes = 0;
    std::string header_sha256;
  };
  std::vector<Source> sources;  // the files of the checkpoint that it was made of
};

/// Whether the folder is an export, finished or not.
bool is_export(const std::filesystem::path& folder);
/// Errors: kInvalidSource naming what lode-export.json lacks; kLayoutMismatch for one of another
///         version or of a target that this one does not know; kIo.
Result<ExportDescription> read_export(const std::filesystem::path& folder);
/// In what files of a checkpoint are not those that an export was made of: a sentence, empty where
/// names, sizes and headers are the same. The same weights in other files are told, too.
/// Errors: those of stamp_sources.
Result<std::string> tell_other_source(const ExportDescription& said,
                                      const checkpoint::TensorIndex& index);
/// For whom a checkpoint is wanted.
/// Errors: kUsage for an export, saying what it is and what to do.
Status check_not_export(const std::filesystem::path& folder);

/// What a folder has when its export is finished.
struct ExportContent {
  std::string description;
  std::string index;
  std::vector<std::uint64_t> file_bytes;
};

/// The folder as it is before anything is written to it.
struct ExportState {
  bool is_finished = false;
  std::uint64_t leftover_disk_bytes = 0;  // of an earlier export that is begun again
};

/// Looks at a folder; writes nothing.
/// Errors: kUsage where it holds what is not of an export, or an export of something else and not
///         `force`; kIo.
Result<ExportState> look_at_export(io::SystemCalls& calls, const std::filesystem::path& out,
                                   const ExportContent& content, bool force);

/// Takes the folder to write to, as it was when it was looked at: what an earlier export left is
/// gone then. Nobody else can take it while the file is open.
/// Errors: those of look_at_export; kIo where another export is at work there, or has been since;
///         kNoSpace.
Result<OutputFile> take_export(io::SystemCalls& calls, const std::filesystem::path& out,
                               const ExportContent& content, bool force);

/// Removes what an export that failed has made, and lode-export.json where nothing else is left.
/// What cannot be removed stays: the next export removes it.
void drop_export(io::SystemCalls& calls, const std::filesystem::path& out);

}  // namespace lode::prepared
