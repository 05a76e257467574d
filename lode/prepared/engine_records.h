#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lode/base/result.h"
#include "lode/loader/engine_plan.h"
#include "lode/prepared/format.h"
#include "lode/prepared/wire.h"

namespace lode::prepared {

// The records of index.bin that a checkpoint for a GPU engine has beside those of
// index_records.h, behind its sections:
//
//   choice       target [32] | flashinfer [16] | online [16] | u8 FP8 activations
//                | u32 ranks | u32 rank | zeros
//                | u32 number in the model of each prepared expert, where not all are
//   engine bank  u64 layer | u64 hidden | u64 intermediate | u64 experts | encoding | scale format
//                [12] | bias format [12] | model format [12] | u8 gated | u8 rows in turn
//                | u8 bias | u8 input scales | u64 bytes | u8 scales are exponents | zeros
//
// Which tensors a bank has, and where, follows from choice and shape: targets/ says it.
// Source: docs/prepared.md.

inline constexpr std::size_t kChoiceBytes = 128;
inline constexpr std::size_t kEngineBankBytes = 192;

void put_choice(const loader::EngineChoice& choice, RecordWriter& out);
/// Errors: kLayoutMismatch for a target that this version does not know.
Result<loader::EngineChoice> read_choice(RecordReader& in, std::uint32_t num_experts);

void put_engine_bank(const loader::EngineBankPlan& bank, RecordWriter& out);
/// The banks of `index`, which has stages and choice.
/// Errors: kInvalidSource, kLayoutMismatch; kUnsupported from the target.
Result<std::vector<loader::EngineBankPlan>> read_engine_banks(RecordReader& in,
                                                              std::uint32_t num_banks,
                                                              const Index& index);

/// What the experts of a bank are where Lode runs them: panels of the numbers that the engine's
/// tensors hold.
/// Errors: kUnsupported where panels do not hold them.
Result<loader::BankPlan> restored_bank(const loader::EngineBankPlan& bank);

}  // namespace lode::prepared
