#include "lode/loader/weight_set_builder.h"

#include <algorithm>

#include "lode/base/fmt.h"

namespace lode::loader {

WeightSetBuilder::WeightSetBuilder(const LoadPlan& plan)
    : movable_experts_(plan.policy.movable_experts) {
  const std::size_t num_layers = plan.stages.size() - 1;  // the first stage is the model's
  weights_.layers_.resize(num_layers);
  weights_.banks_.resize(num_layers);
  weights_.bank_slabs_.resize(num_layers, WeightSet::kNoSlab);
  weights_.slabs_.reserve(2 * plan.stages.size());
  weights_.weight_bytes_ = plan.weight_bytes();
  weights_.padding_bytes_ = plan.padding_bytes();
}

Result<std::span<std::byte>> WeightSetBuilder::make_slab(memory::Ledger& ledger,
                                                         std::uint64_t bytes,
                                                         const std::string& what) {
  LODE_TRY(memory::Buffer slab, memory::make_buffer(ledger, memory::Tag::kWeights, bytes, what));
  weights_.slabs_.push_back(std::move(slab));
  return weights_.slabs_.back().mutate();
}

void WeightSetBuilder::make_views(const StagePlan& stage, std::span<const std::byte> dense,
                                  std::span<const std::byte> bank) {
  const bool model = stage.layer == StagePlan::kModel;
  auto& views = model ? weights_.model_ : weights_.layers_[static_cast<std::size_t>(stage.layer)];
  for (const TensorPlace& place : stage.places) {
    views[WeightSet::index(place.role)] = {dense.subspan(place.offset_bytes, place.bytes),
                                           place.meta};
  }
  if (!stage.bank) return;
  weights_.banks_[static_cast<std::size_t>(stage.layer)] = {stage.bank->record,
                                                            stage.bank->num_experts, bank};
}

Result<WeightSetBuilder::Slabs> WeightSetBuilder::make_slabs(memory::Ledger& ledger,
                                                             const StagePlan& stage) {
  Slabs slabs;
  LODE_TRY(slabs.dense, make_slab(ledger, stage.slab_bytes, stage.name));
  if (stage.bank) {
    LODE_TRY(slabs.bank,
             make_slab(ledger, stage.bank->bytes(), fmt::format("experts of {}", stage.name)));
    keep_bank(stage);
  }
  make_views(stage, slabs.dense, slabs.bank);
  return slabs;
}

void WeightSetBuilder::take_slabs(const StagePlan& stage, memory::Buffer dense,
                                  memory::Buffer bank) {
  LODE_CHECK(dense.bytes().size() == stage.slab_bytes &&
                 bank.bytes().size() == (stage.bank ? stage.bank->bytes() : 0),
             "slabs are as large as their stage says");
  make_views(stage, dense.bytes(), bank.bytes());
  weights_.slabs_.push_back(std::move(dense));
  if (!stage.bank) return;
  weights_.slabs_.push_back(std::move(bank));
  keep_bank(stage);
}

// The slab that was made last is the bank of the stage's layer.
void WeightSetBuilder::keep_bank(const StagePlan& stage) {
  weights_.bank_slabs_[static_cast<std::size_t>(stage.layer)] = weights_.slabs_.size() - 1;
}

Result<WeightSet> WeightSetBuilder::finish() && {
  for (std::size_t slab = 0; slab < weights_.slabs_.size(); ++slab) {
    if (movable_experts_ && std::ranges::count(weights_.bank_slabs_, slab) != 0) continue;
    LODE_TRY_STATUS(weights_.slabs_[slab].seal());
  }
  return std::move(weights_);
}

}  // namespace lode::loader
