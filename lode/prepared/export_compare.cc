#include "lode/prepared/export_compare.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/execute.h"
#include "lode/memory/buffer.h"
#include "lode/prepared/export_folder.h"
#include "lode/prepared/export_layout.h"

namespace lode::prepared {
namespace {

using checkpoint::InputFile;

// The files of an export, against what is made anew.
class Comparison final : public EntrySink {
 public:
  Comparison(const Input& input, const ExportLayout& layout) : EntrySink(input, layout) {}

  /// Looks at sizes and headers.
  /// Errors: kCheckFailed; kOverBudget; kIo.
  Status open(const std::filesystem::path& folder, memory::Ledger& ledger) {
    LODE_TRY(piece_, memory::make_buffer(ledger, memory::Tag::kStaging, kExportPieceBytes,
                                         "a piece of a file that is compared"));
    for (std::size_t i = 0; i < layout_.headers.size(); ++i) {
      const std::filesystem::path path = folder / export_file_name(i, layout_.headers.size());
      auto file = InputFile::open(path);
      if (!file) return other(path, "a file of this export", to_string(file.error()));
      const std::uint64_t bytes = file->identity().bytes;
      if (bytes != layout_.file_bytes[i]) {
        return other(path, fmt::format("{} bytes", layout_.file_bytes[i]),
                     fmt::format("{}", bytes));
      }
      std::string header(layout_.headers[i].size(), ' ');
      LODE_TRY_STATUS(file->read_into(0, std::as_writable_bytes(std::span(header))));
      if (header != layout_.headers[i]) {
        return other(path, "the tensors that this source makes", "a header of others");
      }
      files_.push_back(*std::move(file));
    }
    return {};
  }

  Status take(const ExportEntry& entry, std::uint64_t offset_bytes,
              std::span<const std::byte> bytes) override {
    for (std::size_t at = 0; at < bytes.size(); at += kExportPieceBytes) {
      const auto made = bytes.subspan(at, std::min(bytes.size() - at, kExportPieceBytes));
      const auto stored = piece_.mutate().first(made.size());
      LODE_TRY_STATUS(
          files_[entry.file_idx].read_into(entry.file_offset_bytes + offset_bytes + at, stored));
      const auto [here, there] = std::ranges::mismatch(made, stored);
      if (here == made.end()) continue;
      const auto first = static_cast<std::uint64_t>(here - made.begin());
      return differs(entry, offset_bytes + at + first, *here, *there);
    }
    return {};
  }

 private:
  static Error other(const std::filesystem::path& path, std::string wanted, std::string found) {
    return Error{.code = Code::kCheckFailed,
                 .thing = path.string(),
                 .wanted = std::move(wanted),
                 .found = std::move(found)};
  }

  // Which expert of the model, and where in the extents.
  std::string place_of(const ExportEntry& entry, std::uint64_t offset_bytes) const {
    const auto format = formats::format_by_safetensors_name(entry.dtype);
    std::uint64_t element = offset_bytes * 8 / (format ? formats::info(*format).bits : 8);
    std::vector<std::uint64_t> place(entry.shape.size());
    for (std::size_t axis = place.size(); axis-- > 0;) {
      place[axis] = element % entry.shape[axis];
      element /= entry.shape[axis];
    }
    const bool of_experts = entry.source == nullptr && !place.empty();
    const std::string expert =
        of_experts ? fmt::format(" of expert {}", input_.engine->banks.front().experts[place[0]])
                   : "";
    return fmt::format("{}{}, at [{}]", entry.name, expert, fmt::join(place, ", "));
  }

  Error differs(const ExportEntry& entry, std::uint64_t offset_bytes, std::byte made,
                std::byte stored) const {
    return Error{
        .code = Code::kCheckFailed,
        .thing = place_of(entry, offset_bytes),
        .wanted = fmt::format("{:#04x}, as made from the source", std::to_integer<int>(made)),
        .found = fmt::format("{:#04x}", std::to_integer<int>(stored)),
        .where = fmt::format("{} at byte {}", files_[entry.file_idx].path(),
                             entry.file_offset_bytes + offset_bytes)};
  }

  std::vector<InputFile> files_;
  memory::Buffer piece_;
};

}  // namespace

Result<std::uint64_t> compare_export(const std::filesystem::path& folder, const Input& input,
                                     memory::Ledger& ledger, loader::Progress* progress) {
  LODE_CHECK(input.engine != nullptr, "an export is for an engine");
  const ExportLayout layout = lay_out_export(input);
  Comparison comparison(input, layout);
  LODE_TRY_STATUS(comparison.open(folder, ledger));
  LODE_TRY(const auto engine, loader::make_engine(input.plan));
  LODE_TRY_STATUS(loader::stream_engine(*input.engine, input.binding,
                                        {ledger, *engine, comparison, progress, {}, nullptr}));
  LODE_TRY_STATUS(copy_rest({layout, ledger, *engine, progress}, comparison));
  std::uint64_t bytes = 0;
  for (const std::uint64_t file : layout.file_bytes) bytes += file;
  return bytes;
}

}  // namespace lode::prepared
