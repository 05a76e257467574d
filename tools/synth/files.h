#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "tools/synth/plan.h"

namespace lode::synth {

/// A file that several threads write into, each its own bytes.
class OutputFile {
 public:
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Makes the file, `bytes` long, all holes.
  ///
  /// Errors: kIo, or kNoSpace, naming the file.
  static Result<OutputFile> make(const std::filesystem::path& path, std::uint64_t bytes);

  /// Errors: kIo, or kNoSpace, naming the file.
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  OutputFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::string path_;
};

/// The shards of a planned checkpoint: made, headers written, data still holes.
class Shards {
 public:
  /// Errors: as OutputFile::make.
  static Result<Shards> make(const std::filesystem::path& folder, const Recipe& recipe,
                             const Plan& plan);

  /// Errors: as OutputFile::write_at.
  Status write(const PlannedTensor& tensor, std::uint64_t offset,
               std::span<const std::byte> bytes) const;

 private:
  std::vector<OutputFile> files_;
  std::vector<std::uint64_t> data_offsets_;
};

/// "model.safetensors", or "model-00002-of-00003.safetensors".
std::string shard_name(std::uint64_t shard, std::uint64_t shards);

/// Errors: kIo or kNoSpace.
Status write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace lode::synth
