#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lode/families/roles.h"
#include "lode/layout/panels.h"
#include "lode/loader/binding.h"

namespace lode::loader {

enum class OperationKind : std::uint8_t {
  kCodes,        // codes of a tile to their panels
  kScales,       // its block scales
  kRequantise,   // both, to int8
  kMatrixScale,  // one f32
  kRowMajor,     // rows to f32, or as they are
  kVector,       // numbers to f32
};

/// Some bytes of a file: `count` runs of `bytes`, `stride_bytes` apart.
struct Extent {
  std::uint32_t shard = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;
  std::uint64_t count = 1;
  std::uint64_t stride_bytes = 0;

  std::uint64_t total_bytes() const noexcept { return bytes * count; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// Source bytes of an operation: where they are in the file, and in the slot once read. In the slot
/// the runs of an extent lie one behind the other.
struct SlotData {
  Extent extent;
  std::uint64_t begin_bytes = 0;  // where in the extent this operation's bytes begin
  std::uint64_t slot_offset_bytes = 0;
  std::uint64_t outer_stride_bytes = 0;  // between rows (rows first) or units of k, in the slot
};

/// Which slab of its stage a tensor is in.
enum class Slab : std::uint8_t { kDense, kBank };

/// Where a tensor is made, and what it is called if its source is at fault.
struct Target {
  families::Role role{};
  std::int32_t expert = -1;
  Slab slab = Slab::kDense;
  std::uint64_t offset_bytes = 0;  // in the slab
  std::uint64_t bytes = 0;
};

/// One step from a slot to the final place. Steps write disjoint bytes and may run in any order.
struct Operation {
  OperationKind kind = OperationKind::kCodes;
  Target target;
  const MatrixSource* matrix = nullptr;
  const VectorSource* vector = nullptr;
  std::optional<layout::PanelLayout> panels;
  tensor::Meta meta;       // of the tensor that is made
  layout::PanelTile tile;  // rows of a kRowMajor, numbers of a kVector: row_begin, row_end
  SlotData codes;          // or numbers
  SlotData scales;
  std::uint64_t finished_bytes = 0;  // of the slab, final when this is done
};

/// What is read at once: into one slot of the ring.
struct SlotRead {
  Extent extent;
  std::uint64_t slot_offset_bytes = 0;
};
/// A range of one slab that is final, padding included, when all loads of its number are done. The
/// windows of a slab follow on each other from its first byte to its last.
struct Window {
  std::uint64_t number = 0;  // within the stream
  Slab slab = Slab::kDense;
  std::uint64_t begin_bytes = 0;
  std::uint64_t end_bytes = 0;

  std::uint64_t bytes() const noexcept { return end_bytes - begin_bytes; }
  friend bool operator==(const Window&, const Window&) = default;
};

struct SlotLoad {
  std::vector<SlotRead> reads;
  std::vector<Operation> operations;
  Window window;
  bool closes_window = false;  // the last load of it
};

}  // namespace lode::loader
