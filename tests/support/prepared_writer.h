#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "lode/io/checksum.h"
#include "lode/loader/plan.h"
#include "lode/loader/weight_set.h"
#include "lode/prepared/format.h"
#include "lode/prepared/manifest.h"

// For tests of the reader: a prepared checkpoint made of weights that are in memory, by the
// encoders of the format alone. What `lode prepare` writes is another matter.

namespace lode::testing_support {

using Bytes = std::vector<std::byte>;

inline void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(static_cast<const void*>(bytes.data())),
             static_cast<std::streamsize>(bytes.size()));
}

inline Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  Bytes bytes(text.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// The dense slab of a stage: its tensors where the plan puts them, zeros between.
inline Bytes dense_slab(const loader::WeightSet& weights, const loader::StagePlan& stage) {
  Bytes slab(stage.slab_bytes);
  for (const loader::TensorPlace& place : stage.places) {
    const bool model = stage.layer == loader::StagePlan::kModel;
    const auto view =
        model ? weights.model_weight(place.role)
              : weights.layer_weight(static_cast<std::uint32_t>(stage.layer), place.role);
    std::memcpy(slab.data() + place.offset_bytes, view.data(), view.bytes().size());
  }
  return slab;
}

inline std::span<const std::byte> bank_slab(const loader::WeightSet& weights,
                                            const loader::StagePlan& stage) {
  if (!stage.bank) return {};
  return weights.experts(static_cast<std::uint32_t>(stage.layer)).bytes;
}

struct PreparedNames {
  std::string family = "synthetic";
  std::string dense = "as-stored";
  std::vector<std::filesystem::path> companions;  // copied into the folder
};

/// Writes manifest.json and index.bin, with the sums of what the data files hold now.
inline void write_head(const std::filesystem::path& folder, prepared::Index index,
                       const PreparedNames& names) {
  prepared::Manifest manifest;
  manifest.format_version = prepared::kFormatVersion;
  manifest.target = "cpu";
  manifest.layout = prepared::cpu_layout();
  manifest.dense = names.dense;
  manifest.family = names.family;
  for (const loader::StagePlan& stage : index.stages) manifest.weight_bytes += stage.mapped_bytes;
  for (const std::filesystem::path& from : names.companions) {
    const std::filesystem::path to = folder / from.filename();
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
    const Bytes bytes = read_bytes(to);
    manifest.companions.push_back({from.filename().string(), bytes.size(), io::sha256(bytes)});
  }
  manifest.data_file_bytes = prepared::file_bytes(index.sections);
  const Bytes encoded = prepared::encode(index);
  manifest.index_bytes = encoded.size();
  manifest.root_sha256 = io::sha256(encoded);
  write_bytes(folder / prepared::kIndexFile, encoded);
  const std::string text = prepared::encode(manifest);
  write_bytes(folder / prepared::kManifestFile, std::as_bytes(std::span(text)));
}

/// Writes all of a prepared checkpoint. Small ones: a data file is put together in memory.
inline void write_prepared(const std::filesystem::path& folder, const loader::LoadPlan& plan,
                           const loader::WeightSet& weights, const PreparedNames& names = {}) {
  prepared::Index index = prepared::make_index(plan.stages);
  const std::vector<std::uint64_t> sizes = prepared::file_bytes(index.sections);
  std::vector<Bytes> files(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) files[i].resize(sizes[i]);
  index.chunk_crcs.assign(index.num_chunks(), 0);
  for (const prepared::Section& section : index.sections) {
    const loader::StagePlan& stage = index.stages[section.stage_idx];
    const Bytes dense = dense_slab(weights, stage);
    const std::span<const std::byte> slab = section.kind == prepared::SectionKind::kDense
                                                ? std::span<const std::byte>(dense)
                                                : bank_slab(weights, stage);
    const std::span<std::byte> place =
        std::span(files[section.file_idx]).subspan(section.file_offset_bytes, section.bytes);
    std::memcpy(place.data(), slab.data(), slab.size());
    for (std::uint64_t i = 0; i < section.num_chunks(); ++i) {
      const std::uint64_t at = i * prepared::kChunkBytes;
      index.chunk_crcs[section.first_chunk + i] =
          io::crc32c(place.subspan(at, std::min(prepared::kChunkBytes, section.bytes - at)));
    }
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    write_bytes(folder / prepared::data_file_name(i), files[i]);
  }
  write_head(folder, std::move(index), names);
}

}  // namespace lode::testing_support
