#include "lode/loader/weight_set_builder.h"

#include "lode/base/fmt.h"

namespace lode::loader {

WeightSetBuilder::WeightSetBuilder(const LoadPlan& plan) {
  const std::size_t num_layers = plan.stages.size() - 1;  // the first stage is the model's
  weights_.layers_.resize(num_layers);
  weights_.banks_.resize(num_layers);
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
  if (stage.bank) weights_.slabs_.push_back(std::move(bank));
}

Result<WeightSet> WeightSetBuilder::finish() && {
  for (memory::Buffer& slab : weights_.slabs_) LODE_TRY_STATUS(slab.seal());
  return std::move(weights_);
}

}  // namespace lode::loader
