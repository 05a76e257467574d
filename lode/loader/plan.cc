#include "lode/loader/plan.h"

#include <algorithm>

#include "lode/base/fmt.h"
#include "lode/loader/place.h"
#include "lode/memory/buffer.h"

namespace lode::loader {
namespace {

using memory::StageUse;
using memory::Tag;
using memory::TagBytes;

// Of a thread of the load: what it touches of its stack of 256 KiB (measured: 12 KiB) and what the
// kernel keeps for it.
constexpr std::uint64_t kStackBytes = 64 * kKiB;
constexpr std::uint64_t kLeastSlotBytes = 64 * kKiB;

// What make_buffer will add for one slab.
void add_buffer(TagBytes& held, Tag tag, std::uint64_t bytes) {
  const memory::BufferCost cost = memory::buffer_cost(bytes);
  of(held, tag) += cost.tag_bytes;
  of(held, Tag::kPageTables) += cost.page_table_bytes;
}

void add_slabs(TagBytes& held, const StagePlan& stage) {
  add_buffer(held, Tag::kWeights, stage.slab_bytes);
  if (stage.bank) add_buffer(held, Tag::kWeights, stage.bank->bytes());
}

void measure(StagePlan& stage) {
  TagBytes held{};
  add_slabs(held, stage);
  stage.mapped_bytes = of(held, Tag::kWeights);
  stage.page_table_bytes = of(held, Tag::kPageTables);
}

StageUse stage_use(std::string name, const TagBytes& held, const TagBytes& peak) {
  return {std::move(name), held, peak, memory::total(peak)};
}

io::SourceFile source_file(const checkpoint::Shard& shard) {
  return {shard.path,           shard.identity.device,   shard.identity.inode,
          shard.identity.bytes, shard.identity.mtime_ns, shard.identity.ctime_ns};
}

/// What the files have of one layer, and which of its experts are wanted.
struct LayerSources {
  const RoleSources& roles;
  const std::vector<ExpertSource>* experts = nullptr;
  const std::vector<std::uint32_t>* slots = nullptr;  // null: all
};

Result<StagePlan> plan_stage(const LayerSources& sources, DenseFormat dense, std::int32_t layer) {
  StagePlan stage;
  stage.layer = layer;
  stage.name = layer == StagePlan::kModel ? "model" : fmt::format("layer {}", layer);
  LODE_TRY_STATUS(place_dense(sources.roles, dense, stage));
  if (sources.experts != nullptr) {
    LODE_TRY_STATUS(place_experts(*sources.experts, sources.slots, stage));
  }
  measure(stage);
  return stage;
}

Status check_policy(const LoadPolicy& policy) {
  if (policy.workers > 0 && policy.readers > 0 && policy.num_slots > 0 &&
      policy.slot_bytes >= kLeastSlotBytes && policy.slot_bytes <= kGiB &&
      policy.slot_bytes % io::kBlockBytes == 0 && policy.num_slots <= 1024) {
    return {};
  }
  return Error{
      .code = Code::kUsage,
      .thing = "settings of the load",
      .wanted = "1 thread or more, 1 to 1024 slots of 64 KiB to 1 GiB in whole blocks of 4 KiB",
      .found = fmt::format("{} workers, {} readers, {} slots of {} bytes", policy.workers,
                           policy.readers, policy.num_slots, policy.slot_bytes)};
}

Status check_layers(const ExpertSlots& slots, std::size_t num_layers) {
  if (slots.empty() || slots.size() == num_layers) return {};
  return Error{.code = Code::kUsage,
               .thing = "slots of experts",
               .wanted = fmt::format("{} layers", num_layers),
               .found = fmt::format("{}", slots.size())};
}

// No more slots than the tensors fill: a ring that is never filled would be memory that is planned
// and not held.
std::uint32_t slots_for(const LoadPolicy& policy, std::uint64_t tensor_bytes) {
  const std::uint64_t filled =
      std::max<std::uint64_t>(ceil_div(tensor_bytes, policy.slot_bytes), 2);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(policy.num_slots, filled));
}

// Panels can be cut until they fit; a row of a row-major matrix is read whole.
Status check_slots(const LoadPlan& plan) {
  for (const StagePlan& stage : plan.stages) {
    for (const TensorPlace& place : stage.places) {
      if (place.meta.layout != tensor::Layout::kRowMajor || place.meta.shape.rank() != 2) continue;
      const std::uint64_t row_bytes = place.meta.shape[1] * sizeof(float);
      if (row_bytes + 2 * io::kBlockBytes <= plan.policy.slot_bytes) continue;
      return Error{
          .code = Code::kUsage,
          .thing = "slots of the ring",
          .wanted = fmt::format("{} bytes for a row of {}", row_bytes, families::name(place.role)),
          .found = fmt::format("{} bytes", plan.policy.slot_bytes)};
    }
  }
  return {};
}

template <class Member>
std::uint64_t sum(const std::vector<StagePlan>& stages, Member member) {
  std::uint64_t bytes = 0;
  for (const StagePlan& stage : stages) bytes += stage.*member;
  return bytes;
}

}  // namespace

std::string_view name(DenseFormat dense) noexcept {
  return dense == DenseFormat::kInt8 ? "int8" : "as-stored";
}

std::uint64_t LoadPlan::weight_bytes() const { return sum(stages, &StagePlan::mapped_bytes); }

std::uint64_t LoadPlan::padding_bytes() const {
  return weight_bytes() - sum(stages, &StagePlan::used_bytes);
}

std::uint64_t LoadPlan::page_table_bytes() const {
  return sum(stages, &StagePlan::page_table_bytes);
}

std::uint64_t LoadPlan::ring_bytes() const { return policy.num_slots * policy.slot_bytes; }

std::uint64_t LoadPlan::stack_bytes() const {
  return (std::uint64_t{policy.workers} + policy.readers) * kStackBytes;
}

std::uint64_t LoadPlan::peak_bytes() const {
  std::uint64_t peak = 0;
  for (const StageUse& stage : expected_stages()) peak = std::max(peak, stage.peak_total_bytes);
  return peak;
}

std::vector<StageUse> LoadPlan::expected_stages(const TagBytes& held_before) const {
  std::vector<StageUse> uses;
  TagBytes held = held_before;
  for (const StagePlan& stage : stages) {
    if (&stage == &stages.front()) {
      add_buffer(held, Tag::kStaging, ring_bytes());
      of(held, Tag::kScratch) += stack_bytes();
    }
    add_slabs(held, stage);
    uses.push_back(stage_use(stage.name, held, held));  // nothing is given back within a stage
  }
  const TagBytes peak = held;
  const memory::BufferCost ring = memory::buffer_cost(ring_bytes());
  of(held, Tag::kStaging) -= ring.tag_bytes;
  of(held, Tag::kPageTables) -= ring.page_table_bytes;
  of(held, Tag::kScratch) -= stack_bytes();
  uses.push_back(stage_use("seal", held, peak));
  return uses;
}

Status LoadPlan::check_fits(const memory::Ledger& ledger) const {
  const std::uint64_t need = peak_bytes();
  const std::uint64_t have = ledger.limit_bytes() - ledger.held_bytes();
  if (need <= have) return {};
  const auto largest = std::max_element(
      stages.begin(), stages.end(),
      [](const StagePlan& a, const StagePlan& b) { return a.mapped_bytes < b.mapped_bytes; });
  return Error{
      .code = Code::kOverBudget,
      .thing = "loading the weights",
      .wanted = fmt::format("{} bytes ({} of them weights; the largest stage is {} with {})", need,
                            weight_bytes(), largest->name, largest->mapped_bytes),
      .found = fmt::format("{} of {} bytes free", have, ledger.limit_bytes()),
      .hint = fmt::format("a budget of {} bytes fits", need + ledger.held_bytes())};
}

Result<LoadPlan> plan_load(const Binding& binding, const families::ModelSpec& spec,
                           const checkpoint::TensorIndex& index, const LoadPolicy& policy,
                           const ExpertSlots& slots) {
  LODE_TRY_STATUS(check_policy(policy));
  LODE_TRY_STATUS(check_layers(slots, binding.layers.size()));
  LODE_CHECK(
      binding.layers.size() == spec.num_layers && binding.experts.size() == binding.layers.size(),
      "a binding has the layers of its spec");
  LoadPlan plan;
  plan.policy = policy;
  plan.policy.num_slots = slots_for(policy, index.tensor_bytes());
  for (const checkpoint::Shard& shard : index.shards()) plan.sources.push_back(source_file(shard));
  const bool threads = policy.io == io::IoKind::kAuto || policy.io == io::IoKind::kBuffered;
  if (threads && io::on_network(plan.sources)) {
    plan.policy.readers = std::max(policy.readers, io::kNetworkThreads);
  }
  LODE_TRY(StagePlan model, plan_stage({binding.model}, policy.dense, StagePlan::kModel));
  plan.stages.push_back(std::move(model));
  for (std::size_t layer = 0; layer < binding.layers.size(); ++layer) {
    const LayerSources sources{binding.layers[layer], &binding.experts[layer],
                               slots.empty() ? nullptr : &slots[layer]};
    LODE_TRY(StagePlan stage, plan_stage(sources, policy.dense, static_cast<std::int32_t>(layer)));
    plan.stages.push_back(std::move(stage));
  }
  LODE_TRY_STATUS(check_slots(plan));
  return plan;
}

Status keep_experts(LoadPlan& plan, const ExpertSlots& slots) {
  LODE_TRY_STATUS(check_layers(slots, plan.stages.size() - 1));  // the first stage is the model's
  if (slots.empty()) return {};
  for (StagePlan& stage : plan.stages) {
    if (!stage.bank) continue;
    LODE_TRY_STATUS(keep_slots(slots[static_cast<std::size_t>(stage.layer)], stage));
    measure(stage);
  }
  return {};
}

}  // namespace lode::loader
