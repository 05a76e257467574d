#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/result.h"
#include "lode/loader/engine_plan.h"
#include "lode/loader/plan.h"

namespace lode::prepared {

// A prepared checkpoint is a folder:
//
//   manifest.json       written last: without it there is no checkpoint (manifest.h)
//   index.bin           what lies where, and the sum of every chunk: this file
//   weights-00000.bin   sections one after another, each on a multiple of 2 MiB, never cut
//   config.json, tokenizer.json, ...   as they were
//   journal.bin         only while `lode prepare` is at work (journal.h)
//
// A section is one slab of the loader, byte for byte: of each stage the dense slab, then the bank
// of its experts (records of one shape on multiples of 4 KiB). So the order of the files is the
// order of loading, and a file can be read or mapped as it is.
// Source: spec loading_memory 6.4; docs/prepared.md draws every record.

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint64_t kChunkBytes = 2 * kMiB;  // under one sum
inline constexpr std::uint64_t kSectionAlignment = 2 * kMiB;
inline constexpr std::uint64_t kSectionUnit = 4 * kKiB;       // sections are whole pages
inline constexpr std::uint64_t kMostFileBytes = 32 * kGiB;    // unless one section has more
inline constexpr std::uint64_t kMostIndexBytes = 512 * kMiB;  // more is no index

/// What a section holds. Numbers are those of the file.
enum class SectionKind : std::uint32_t {
  kDense = 1,       // a stage's tensors outside the routed experts
  kBank = 2,        // a layer's experts, as Lode runs them
  kEngineBank = 3,  // a layer's experts as tensors of a GPU engine (loader/engine_plan.h)
};

/// One slab in a data file.
struct Section {
  SectionKind kind{};
  std::uint32_t stage_idx = 0;
  std::uint32_t file_idx = 0;
  std::uint64_t file_offset_bytes = 0;
  std::uint64_t bytes = 0;        // the slab's, up to whole pages
  std::uint64_t first_chunk = 0;  // of Index::chunk_crcs; the section's last chunk may be short

  std::uint64_t num_chunks() const noexcept { return ceil_div(bytes, kChunkBytes); }
  friend bool operator==(const Section&, const Section&) = default;
};

/// Where each slab goes: in the order of loading, filling one file after another. With banks of a
/// GPU engine the dense slabs come first, and those banks stand for the stages' own.
std::vector<Section> lay_out(std::span<const loader::StagePlan> stages,
                             std::span<const loader::EngineBankPlan> engine_banks = {});

/// Bytes of each data file, to the end of its last section.
std::vector<std::uint64_t> file_bytes(std::span<const Section> sections);

/// "weights-00000.bin".
std::string data_file_name(std::size_t file_idx);

/// All that a start needs to know but names and texts.
struct Index {
  std::vector<loader::StagePlan> stages;  // as the loader planned them
  std::vector<Section> sections;          // lay_out(stages)
  std::vector<std::uint32_t> chunk_crcs;  // CRC-32C of each chunk of each section
  // For a GPU engine: what its experts are prepared for. The stages' banks are then what they
  // become where Lode runs them, one section's bytes after another.
  loader::EngineChoice choice;
  std::vector<loader::EngineBankPlan> engine_banks;

  std::uint64_t num_chunks() const noexcept;
};

/// An index without sums, ready to take them.
Index make_index(std::vector<loader::StagePlan> stages);
/// The same for a GPU engine. The stages' banks are replaced by what the engine's banks are where
/// Lode runs them.
/// Errors: kUnsupported where panels do not hold what an engine's tensors hold.
Result<Index> make_index(std::vector<loader::StagePlan> stages, const loader::EngineChoice& choice,
                         std::vector<loader::EngineBankPlan> engine_banks);

/// The bytes of index.bin: always the same for the same index.
std::vector<std::byte> encode(const Index& index);

/// Reads index.bin, trusting nothing: sums, extents, overlaps, and that every size is the one that
/// shape and layout make.
///
/// Errors: kLayoutMismatch for another version of the format, or words that this version does not
///         know; kInvalidSource naming stage and tensor for whatever does not add up.
/// Memory: the index.
Result<Index> decode(std::span<const std::byte> bytes);

}  // namespace lode::prepared
