#pragma once

#include <array>
#include <cstdint>

#include "lode/base/bytes.h"
#include "lode/parallel/thread_pool.h"
#include "lode/tensor/tensor.h"

namespace lode::layout {

//   one expert of w13 [2N, k]       byte                     becomes
//   gate g0 g1 ... g(N-1)           [0, H)                   up   u0 u1 ... u(N-1)
//   up   u0 u1 ... u(N-1)           [H, 2H)                  gate g0 g1 ... g(N-1)
//
//   byte b of an expert goes to (b + H) mod 2H, where H is N times the bytes of a row.
//
// Padding: none; halves that are padded are padded already.
// Source: weight_layouts 2.1; tests/golden/weight_layouts, reorder_w1w3_to_w3w1. The engines do it
// through a second tensor of up to 64 MiB, here two cache lines meet in registers.

/// Where a byte of an expert goes.
constexpr std::uint64_t half_swapped(std::uint64_t byte, std::uint64_t half_bytes) noexcept {
  return byte < half_bytes ? byte + half_bytes : byte - half_bytes;
}

/// Gate and up of the experts of a layer: what must move together. Scale and bias may be empty.
///
/// Shapes: weight [E, 2N, k], scale [E, 2M, columns], bias [E, 2N].
struct GateUpTensors {
  tensor::Tensor weight;
  tensor::Tensor scale;
  tensor::Tensor bias;
};

/// What `run` will do, checked. Made only by `plan_half_swap`.
struct HalfSwap {
  std::uint64_t num_experts = 0;
  std::array<std::uint64_t, 3> half_bytes{};  // of weight, scale and bias; 0 for none
  std::uint64_t chunk_bytes = 0;              // of each half, that one thread takes at a time
};

inline constexpr std::uint64_t kSwapChunkBytes = 256 * kKiB;
inline constexpr std::uint64_t kMaxSwapChunkBytes = 64 * kMiB;

/// Checks that gate and up can change places where they lie.
///
/// Shapes: as GateUpTensors; formats of whole bytes a row.
/// Memory: none, nor does `run` need any.
/// Errors: kInvalidSource for a weight that is missing or not [E, 2N, k], a scale or bias of other
///         experts or an odd number of rows, bytes that rows do not divide; kUsage for a chunk of
///         no bytes or of more than 64 MiB.
Result<HalfSwap> plan_half_swap(const GateUpTensors& tensors,
                                std::uint64_t chunk_bytes = kSwapChunkBytes);

/// Carries out `swap` on the tensors that it was made for, and hands them back. Cannot fail; the
/// same bytes for any chunk and any number of threads.
///
/// Shapes: as GateUpTensors.
GateUpTensors run(const HalfSwap& swap, GateUpTensors&& tensors,
                  parallel::ThreadPool* pool = nullptr) noexcept;

/// Bytes that the engines hold beside the tensors for the same step: chunks of rows of all experts.
constexpr std::uint64_t engine_half_swap_bytes(std::uint64_t half_rows,
                                               std::uint64_t row_bytes_of_all) noexcept {
  if (row_bytes_of_all == 0) return 0;
  const std::uint64_t fitting = kMaxSwapChunkBytes / row_bytes_of_all;
  const std::uint64_t rows = fitting < half_rows ? fitting : half_rows;
  return (rows == 0 ? 1 : rows) * row_bytes_of_all;
}

}  // namespace lode::layout
