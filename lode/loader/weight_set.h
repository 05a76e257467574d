#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/families/model_spec.h"
#include "lode/families/roles.h"
#include "lode/layout/expert_record.h"
#include "lode/memory/buffer.h"
#include "lode/tensor/tensor.h"

namespace lode::loader {

/// The experts of one layer: records of one shape, one after another.
struct ExpertBank {
  layout::ExpertRecord record;
  std::uint64_t num_experts = 0;
  std::span<const std::byte> bytes;

  layout::ExpertViews expert(std::uint64_t expert_id) const {
    return layout::expert_views(
        record, bytes.subspan(expert_id * record.record_bytes, record.record_bytes));
  }
};

/// All weights of a model in their final places: the one owner. Made by `execute`, sealed by it,
/// but for the banks of experts where they are to be moved (LoadPolicy::movable_experts).
///
/// Forms of the roles: matrices that multiply are in panels (kPanels; a dense MLP's gate and up as
/// one kGateUpPanels tensor under kMlpGate, shape [2, I, H]); the router, norms, biases and sinks
/// are row-major f32; the embedding is row-major as stored, or the panels of the head where tied.
class WeightSet {
 public:
  /// The weight of a role, or an empty view where the model has none.
  tensor::TensorView model_weight(families::Role role) const { return model_[index(role)]; }
  tensor::TensorView layer_weight(std::uint32_t layer, families::Role role) const {
    return layers_[layer][index(role)];
  }
  const ExpertBank& experts(std::uint32_t layer) const { return banks_[layer]; }
  /// The records of that bank, for whoever moves experts. Empty where the layer has none, where
  /// experts are not to be moved, and where the bank is a part of a mapped file.
  std::span<std::byte> writable_experts(std::uint32_t layer) noexcept {
    const std::size_t slab = bank_slabs_[layer];
    if (slab == kNoSlab || slabs_[slab].sealed()) return {};
    return slabs_[slab].mutate();
  }

  /// Bytes of all slabs as mapped: the W of the contract, page tables not counted.
  std::uint64_t weight_bytes() const noexcept { return weight_bytes_; }
  /// Of these, what holds no weight: panel rows and lines, record and page padding.
  std::uint64_t padding_bytes() const noexcept { return padding_bytes_; }

 private:
  friend class WeightSetBuilder;
  using RoleViews = std::array<tensor::TensorView, families::kNumRoles>;
  static constexpr std::size_t kNoSlab = ~std::size_t{0};
  static std::size_t index(families::Role role) { return static_cast<std::size_t>(role); }

  std::vector<memory::Buffer> slabs_;
  RoleViews model_;
  std::vector<RoleViews> layers_;
  std::vector<ExpertBank> banks_;
  std::vector<std::size_t> bank_slabs_;  // [layers], into slabs_
  std::uint64_t weight_bytes_ = 0;
  std::uint64_t padding_bytes_ = 0;
};

}  // namespace lode::loader
