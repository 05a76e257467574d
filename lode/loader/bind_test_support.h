#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lode/checkpoint/hf_config.h"
#include "lode/checkpoint/quant_config.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/families/family.h"
#include "lode/formats/dequantise.h"
#include "lode/loader/binding.h"

// For tests only: what bind() needs of a folder, and the numbers behind what it returns.

namespace lode::loader {

/// All that is known about a checkpoint before binding.
struct OpenedFolder {
  checkpoint::HfConfig config;
  checkpoint::QuantConfig quant;
  checkpoint::TensorIndex index;
  const families::Family* family;
  families::ModelSpec spec;

  /// Errors: as loader::bind.
  Result<Binding> bind() const { return loader::bind(index, *family, spec, quant); }
};

/// Errors: as of what it calls.
inline Result<OpenedFolder> open_folder(const std::filesystem::path& folder) {
  LODE_TRY(checkpoint::HfConfig config, checkpoint::HfConfig::read(folder));
  LODE_TRY(checkpoint::QuantConfig quant, checkpoint::read_quant_config(folder, config));
  LODE_TRY(checkpoint::TensorIndex index, checkpoint::open_index(folder));
  LODE_TRY(const families::Family* const family, families::find_family(config));
  LODE_TRY(families::ModelSpec spec, family->read_spec(config));
  return OpenedFolder{std::move(config), std::move(quant), std::move(index), family,
                      std::move(spec)};
}

/// Errors: as open_folder and bind.
inline Result<Binding> bind_folder(const std::filesystem::path& folder) {
  LODE_TRY(const OpenedFolder opened, open_folder(folder));
  return opened.bind();
}

/// Reads what a Binding points to, the slow and obvious way: one number after another.
class BoundNumbers {
 public:
  explicit BoundNumbers(const checkpoint::TensorIndex& index);

  /// The matrix in f32, row-major.
  std::vector<float> matrix(const MatrixSource& source) const;
  std::vector<float> vector(const VectorSource& source) const;

 private:
  std::span<const std::byte> bytes(std::uint32_t shard, std::uint64_t offset,
                                   std::uint64_t count) const;
  // Bytes of column `unit` of row `row`.
  std::span<const std::byte> cell(const Region& region, std::uint64_t row, std::uint64_t unit,
                                  std::uint64_t width) const;
  std::vector<std::byte> codes_of(const MatrixSource& source) const;
  std::vector<std::byte> scales_of(const MatrixSource& source) const;

  std::vector<std::vector<std::byte>> shards_;
};

/// CRC32 as zlib has it, of the little-endian bytes; -0 counts as +0.
std::uint32_t crc32_of_f32(std::vector<float> numbers);
std::uint32_t crc32_of_bf16(const std::vector<float>& numbers);

}  // namespace lode::loader
