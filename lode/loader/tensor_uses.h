#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lode/checkpoint/tensor_index.h"
#include "lode/formats/format.h"
#include "lode/loader/binding.h"

namespace lode::loader {

/// What a tensor's numbers are for.
enum class NumberUse : std::uint8_t {
  kUnknown,  // bound to no role
  kNumbers,  // weights and vectors
  kBlockScales,
  kMatrixScales,
  kInputScales,  // of activations
};

struct TensorUseKind {
  NumberUse use = NumberUse::kUnknown;
  formats::Format format{};  // of the numbers, whatever the container's dtype says
};

/// What the tensors of a checkpoint are for, by the places that a binding names.
class TensorUses {
 public:
  TensorUses(const Binding& binding, const checkpoint::TensorIndex& index);

  /// Positions of TensorIndex::tensors() in the order of files and offsets.
  const std::vector<std::uint32_t>& in_file_order() const noexcept { return order_; }
  const TensorUseKind& of(std::uint32_t position) const noexcept { return uses_[position]; }

  /// The tensor that holds a byte of a shard.
  std::optional<std::uint32_t> at(std::uint32_t shard, std::uint64_t offset_bytes) const;

 private:
  void mark(std::uint32_t shard, std::uint64_t offset_bytes, TensorUseKind kind);
  void mark(const MatrixSource& matrix);
  void mark(const VectorSource& vector);
  void mark(const RoleSources& sources);
  void mark(const ExpertSource& expert);

  const checkpoint::TensorIndex& index_;
  std::vector<std::uint32_t> order_;
  std::vector<TensorUseKind> uses_;
};

}  // namespace lode::loader
