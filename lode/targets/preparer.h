#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/result.h"
#include "lode/formats/format.h"
#include "lode/targets/experts.h"
#include "lode/targets/losses.h"
#include "lode/tensor/shape.h"

namespace lode::targets {

/// Which parts of an expert a tensor is made of.
struct Needs {
  bool gate_up = false;
  bool down = false;
  bool gate_up_scales = false;
  bool down_scales = false;
  bool gate_up_bias = false;
  bool down_bias = false;
};

/// One tensor of a layer as an engine holds it after its own preparation.
///
/// It is [E, ...]: expert e's part begins at e * expert_bytes, and is made in units of unit_bytes,
/// each by itself: a row, a row of tiles, or all of it.
struct EngineTensor {
  std::string name;         // "w13_weight": the engine's own
  formats::Format dtype{};  // the container that the engine declares
  tensor::Shape shape;
  std::uint64_t expert_bytes = 0;
  std::uint64_t unit_bytes = 0;     // divides expert_bytes
  std::uint64_t padding_bytes = 0;  // of one expert: what holds nothing of the checkpoint
  Needs needs;

  std::uint64_t units() const noexcept { return unit_bytes == 0 ? 0 : expert_bytes / unit_bytes; }
  std::uint64_t bytes(std::uint64_t num_experts) const noexcept {
    return num_experts * expert_bytes;
  }
};

/// One of the three matrices of an expert; the only one of two in a layer that is not gated is
/// kGate.
enum class Matrix : std::uint8_t { kGate, kUp, kDown };

/// The bytes of one expert's part of each tensor of `Preparer::tensors`, in their order.
using PreparedExpert = std::vector<std::span<const std::byte>>;

class Refiner;

/// Units [first_unit, first_unit + out.size() / unit_bytes) of one expert's part of a tensor.
struct MakeRequest {
  std::size_t tensor_idx = 0;
  std::uint64_t expert_idx = 0;  // of this rank
  std::uint64_t first_unit = 0;
  const ExpertSource& source;
  const LayerScalars& scalars;
  std::span<float> kept{};  // of this expert: Preparer::kept_numbers
};

/// Makes the tensors of one layer for one target. Made once a layer; says everything that can fail
/// when it is made.
class Preparer {
 public:
  virtual ~Preparer() = default;

  virtual const std::vector<EngineTensor>& tensors() const noexcept = 0;
  /// Whether LayerScalars must have the largest block scales.
  virtual bool wants_largest_block_scales() const noexcept { return false; }
  /// Whether the kernels quantise activations by scales that the checkpoint prescribes:
  /// LayerScalars must have those of every expert.
  virtual bool wants_input_scales() const noexcept { return false; }

  /// What is done to an expert before `make` reads it; null: nothing, it reads the source. Tensors
  /// need what the refiner does, then.
  virtual const Refiner* refiner() const noexcept { return nullptr; }

  /// Which codes of an expert units [first_unit, first_unit + num_units) are made of, so that one
  /// need not have all of them in memory to make some. Scales and biases are there as a whole.
  virtual SourceWindow window_of(std::size_t /*tensor_idx*/, std::uint64_t /*first_unit*/,
                                 std::uint64_t /*num_units*/) const noexcept {
    return {};
  }

  /// How many numbers are kept of an expert between two of its tensors: what making `kept_from` of
  /// a tensor writes, making that tensor reads, instead of its source once more.
  virtual std::uint64_t kept_numbers() const noexcept { return 0; }
  virtual std::optional<std::size_t> kept_from(std::size_t /*tensor_idx*/) const noexcept {
    return std::nullopt;
  }

  /// Reads only what the tensor needs, and of the codes those of `window_of`; writes every byte of
  /// `out`, padding included. The same bytes whichever way the units are dealt out.
  ///
  /// Shapes: out [n * unit_bytes], kept [kept_numbers()].
  /// Memory: none but the stack.
  virtual void make(const MakeRequest& request, std::span<std::byte> out) const noexcept = 0;

  /// Whether a tensor may hold less than the checkpoint has: whether `count_losses` may count.
  virtual bool may_lose(std::size_t /*tensor_idx*/) const noexcept { return false; }
  /// Adds what the engine's own layout loses of one expert in one tensor.
  virtual void count_losses(const LossRequest& /*request*/, LossCounts& /*losses*/) const {}

  /// What the prepared numbers are, read as a checkpoint again: what `restore_*` give.
  virtual formats::Encoding restored_encoding() const noexcept = 0;
  /// Row `row` of a matrix as codes of the restored encoding, by the layout's function.
  ///
  /// Shapes: out [row bytes of k], padding of k left away.
  virtual void restore_codes(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                             std::span<std::byte> out) const noexcept = 0;
  /// Row of blocks `row` of the block scales of a matrix, in the scale format of the restored
  /// encoding.
  ///
  /// Shapes: out [scale_columns * bytes of a scale].
  virtual void restore_scales(Matrix matrix, std::uint64_t row, const PreparedExpert& expert,
                              std::span<std::byte> out) const noexcept = 0;
  /// The scale of the whole matrix, as a multiplier; 1 where the encoding has none.
  virtual float restore_scale(Matrix matrix, const PreparedExpert& expert) const noexcept = 0;
  /// Number `row` of a matrix's bias; 0 where there is none.
  virtual float restore_bias(Matrix matrix, std::uint64_t row,
                             const PreparedExpert& expert) const noexcept = 0;
};

}  // namespace lode::targets
