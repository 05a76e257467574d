#pragma once

#include <cstdint>
#include <optional>

#include "lode/kernels/panel.h"
#include "lode/tensor/tensor.h"

namespace lode::layout {

/// Bytes of a matrix [rows, k] in panels: whole panels, then one line of matrix scales where the
/// encoding has a second-level scale (f32; [0] of the matrix, or [0] gate and [1] up).
/// Nothing where panels do not hold the encoding.
/// Source: kernels/panel.h.
std::optional<std::uint64_t> panels_bytes(const formats::Encoding& encoding, std::uint64_t rows,
                                          std::uint64_t k);

// One expert as one contiguous record, so that a single read brings it:
//
//   | gate panel 0 | up panel 0 | gate panel 1 | up panel 1 | ... | gate/up matrix scales |
//   | down panel 0 | down panel 1 | ...                           | down matrix scales    |
//   | gate bias f32 [I] | up bias f32 [I] | down bias f32 [H] |   each up to whole lines
//
// Without a gate: the panels of the first matrix alone, its bias in the place of gate's, no up.
// Padded with zeros to a multiple of 4 KiB, where the next record begins.
// Source: spec cpu_performance 5.1, loading_memory 6.4.

inline constexpr std::uint64_t kRecordAlignment = 4096;

/// What the experts of one layer are made of; gives the place of everything in a record.
struct ExpertRecord {
  std::uint64_t hidden = 0;
  std::uint64_t intermediate = 0;
  formats::Encoding gate_up{};
  formats::Encoding down{};
  bool bias = false;
  bool gated = true;  // else the MLP's first matrix stands alone where gate and up are

  // Places within the record, in bytes, filled in by make_expert_record.
  std::uint64_t gate_up_bytes = 0;  // panels and matrix scales
  std::uint64_t down_offset_bytes = 0;
  std::uint64_t down_bytes = 0;
  std::uint64_t gate_bias_offset_bytes = 0;
  std::uint64_t up_bias_offset_bytes = 0;
  std::uint64_t down_bias_offset_bytes = 0;
  std::uint64_t record_bytes = 0;
  std::uint64_t padding_bytes = 0;  // of record_bytes, what holds no weight, scale or bias

  friend bool operator==(const ExpertRecord&, const ExpertRecord&) = default;
};

/// Places everything. Nothing where panels do not hold one of the encodings.
std::optional<ExpertRecord> make_expert_record(std::uint64_t hidden, std::uint64_t intermediate,
                                               const formats::Encoding& gate_up,
                                               const formats::Encoding& down, bool bias,
                                               bool gated = true);

/// Views of one record. `record` holds record_bytes. gate_up has shape [2, I, H] (kGateUpPanels),
/// or [I, H] (kPanels) without a gate; down [H, I] (kPanels), biases [I], [I], [H] in f32, empty
/// where there are none.
struct ExpertViews {
  tensor::TensorView gate_up;
  tensor::TensorView down;
  tensor::TensorView gate_bias;
  tensor::TensorView up_bias;
  tensor::TensorView down_bias;
};
ExpertViews expert_views(const ExpertRecord& shape, std::span<const std::byte> record);

}  // namespace lode::layout
