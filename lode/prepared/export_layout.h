#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/result.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/io/read_engine.h"
#include "lode/loader/progress.h"
#include "lode/loader/stream.h"
#include "lode/memory/ledger.h"
#include "lode/prepared/prepare.h"

// Which tensors an export has, and where each of them lies in its files.

namespace lode::prepared {

inline constexpr std::uint64_t kExportPieceBytes = 2 * kMiB;  // of a tensor that is copied

/// A tensor of the export.
struct ExportEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;
  std::size_t file_idx = 0;
  std::uint64_t file_offset_bytes = 0;  // filled in by `place`
  // Of a tensor that is copied:
  const checkpoint::TensorRecord* source = nullptr;
};

/// Every tensor with its place; those of banks in the order of the banks, then those copied in the
/// order of the source's files.
struct ExportLayout {
  std::vector<ExportEntry> entries;
  std::vector<std::size_t> first_of_bank;  // positions in `entries`
  std::size_t first_copied = 0;
  std::vector<std::string> headers;  // of the files, with their eight bytes of length
  std::vector<std::uint64_t> file_bytes;
};

/// Follows from the input alone.
ExportLayout lay_out_export(const Input& input);

/// What the index of the export says.
std::string index_text(const ExportLayout& layout);

/// Takes the bytes of the export tensor by tensor; of one tensor from its beginning to its end.
class EntrySink : public loader::ChunkSink {
 public:
  EntrySink(const Input& input, const ExportLayout& layout) : input_(input), layout_(layout) {}

  /// Errors: those of whoever takes them.
  virtual Status take(const ExportEntry& entry, std::uint64_t offset_bytes,
                      std::span<const std::byte> bytes) = 0;
  /// What of the run belongs to each tensor; what lies between them belongs to none.
  Status put(const loader::ChunkRun& run) final;

 protected:
  const Input& input_;
  const ExportLayout& layout_;
};

/// Where tensors that are copied come from.
struct ExportCopy {
  const ExportLayout& layout;
  memory::Ledger& ledger;
  io::ReadEngine& engine;
  loader::Progress* progress = nullptr;
};
/// Gives all tensors that no expert is made of to `sink`, as the source has them.
///
/// Memory: kExportPieceBytes, charged to staging in a stage "copy".
/// Errors: kOverBudget, kInterrupted; those of reading and of `sink`.
Status copy_rest(const ExportCopy& copy, EntrySink& sink);
inline constexpr std::string_view kCopyStage = "copy";

}  // namespace lode::prepared
