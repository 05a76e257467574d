#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lode/base/result.h"
#include "lode/loader/plan.h"
#include "lode/prepared/format.h"
#include "lode/prepared/wire.h"

namespace lode::prepared {

// The records of index.bin, one kind after another. All counts and offsets are little-endian; the
// bytes that a record does not use are zero. Roles and number formats stand there by name.
//
//   stage    i32 layer (-1: model) | u32 places | u32 banks | u64 slab bytes | u64 used bytes
//   place    role [32] | meta | u64 offset in the slab | u64 bytes
//   bank     encoding of gate/up | of down | u64 hidden | u64 intermediate | u64 experts
//            | u64 record bytes | u32 has biases
//   section  u32 kind | u32 stage | u32 file | u64 offset in the file | u64 bytes | u64 first chunk
//   encoding element [12] | scale [12] | u32 block rows | u32 block k | u8 has scale
//            | u8 tensor scale (0 none, 1 multiplier, 2 divisor) | u16 zero
//   meta     encoding | u32 layout (0 row-major, 1 panels, 2 gate-up panels) | u32 rank
//            | u64 extents [4]
// Source: docs/prepared.md.

inline constexpr std::size_t kStageBytes = 64;
inline constexpr std::size_t kPlaceBytes = 128;
inline constexpr std::size_t kBankBytes = 128;
inline constexpr std::size_t kSectionBytes = 64;

void put_stage(const loader::StagePlan& stage, RecordWriter& out);
void put_place(const loader::TensorPlace& place, RecordWriter& out);
void put_bank(const loader::BankPlan& bank, RecordWriter& out);
void put_section(const Section& section, RecordWriter& out);

void put_encoding(const formats::Encoding& encoding, RecordWriter& out);
/// Errors: kLayoutMismatch.
Result<formats::Encoding> read_encoding(RecordReader& in);
inline constexpr std::size_t kFormatField = 12;
/// Errors: kLayoutMismatch.
Result<formats::Format> read_format(RecordReader& in);

/// What all stages together have, according to the header.
struct StageCounts {
  std::uint64_t places = 0;
  std::uint64_t banks = 0;
};

/// The stage records; `places` of each and, where it has one, an empty `bank` to be filled.
/// Errors: kInvalidSource.
Result<std::vector<loader::StagePlan>> read_stages(RecordReader& in, std::uint32_t num_stages,
                                                   const StageCounts& counts);
/// Errors: kInvalidSource, kLayoutMismatch.
Status read_places(RecordReader& in, loader::StagePlan& stage);
/// Errors: kInvalidSource, kLayoutMismatch.
Status read_bank(RecordReader& in, loader::StagePlan& stage);
Section read_section(RecordReader& in);

/// Checks the places of a stage, and fills in what follows from the rest.
/// Errors: kInvalidSource.
Status reckon_stage(loader::StagePlan& stage);
/// The same, and that it says of itself how many bytes are in use.
/// Errors: kInvalidSource.
Status finish_stage(loader::StagePlan& stage);

/// Words that this version does not know.
Error unknown(std::string_view what, std::string_view found);

Error damaged(std::string thing, std::string wanted, std::string found);

}  // namespace lode::prepared
