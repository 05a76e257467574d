#include "lode/base/check.h"
#include "lode/loader/slicing.h"

namespace lode::loader {
namespace {

using families::Role;

constexpr std::size_t kMatrixItems = 2;  // of an expert: gate with up, down
constexpr std::size_t kBiasItems = 3;

Item dense_item(const TensorPlace& place, const RoleSources& sources) {
  const auto role = static_cast<std::size_t>(place.role);
  Item item;
  item.target = {place.role, -1, Slab::kDense, place.offset_bytes, place.bytes};
  item.meta = place.meta;
  if (sources.vectors[role].present) {
    item.vector = &sources.vectors[role];
  } else {
    item.first = &sources.matrices[role];
  }
  if (place.meta.layout == tensor::Layout::kGateUpPanels) {
    item.second = &sources.matrices[static_cast<std::size_t>(Role::kMlpUp)];
  }
  return item;
}

void make_bias(Item& item, Role role, const VectorSource& source, std::uint64_t offset) {
  item.target.role = role;
  item.target.offset_bytes += offset;
  item.target.bytes = source.count * sizeof(float);
  item.meta = {formats::kPlainF32, tensor::Layout::kRowMajor, {source.count}};
  item.vector = &source;
}

Item expert_item(const BankPlan& bank, const std::vector<ExpertSource>& experts,
                 std::size_t record_idx, std::size_t part) {
  const layout::ExpertRecord& record = bank.record;
  const std::size_t expert = bank.expert_of(record_idx);
  const ExpertSource& source = experts[expert];
  Item item;
  item.target = {Role::kExpertGate, static_cast<std::int32_t>(expert), Slab::kBank,
                 record_idx * record.record_bytes, record.gate_up_bytes};
  switch (part) {
    case 0:
      item.meta = {
          record.gate_up, tensor::Layout::kGateUpPanels, {2, record.intermediate, record.hidden}};
      item.first = &source.gate;
      item.second = &source.up;
      break;
    case 1:
      item.target.role = Role::kExpertDown;
      item.target.offset_bytes += record.down_offset_bytes;
      item.target.bytes = record.down_bytes;
      item.meta = {record.down, tensor::Layout::kPanels, {record.hidden, record.intermediate}};
      item.first = &source.down;
      break;
    case 2:
      make_bias(item, Role::kExpertGateBias, source.gate_bias, record.gate_bias_offset_bytes);
      break;
    case 3:
      make_bias(item, Role::kExpertUpBias, source.up_bias, record.up_bias_offset_bytes);
      break;
    default:
      make_bias(item, Role::kExpertDownBias, source.down_bias, record.down_bias_offset_bytes);
  }
  return item;
}

std::size_t items_of_expert(const BankPlan& bank) noexcept {
  return kMatrixItems + (bank.record.bias ? kBiasItems : 0);
}

}  // namespace

std::size_t num_items(const StagePlan& stage) noexcept {
  return stage.places.size() +
         (stage.bank ? stage.bank->num_experts * items_of_expert(*stage.bank) : 0);
}

Item item_at(const StagePlan& stage, const Binding& binding, std::size_t item_idx) {
  const bool model = stage.layer == StagePlan::kModel;
  const auto layer = static_cast<std::size_t>(stage.layer);
  if (item_idx < stage.places.size()) {
    return dense_item(stage.places[item_idx], model ? binding.model : binding.layers[layer]);
  }
  LODE_CHECK(!model && stage.bank, "an item beyond the stage");
  const std::size_t in_bank = item_idx - stage.places.size();
  const std::size_t items = items_of_expert(*stage.bank);
  return expert_item(*stage.bank, binding.experts[layer], in_bank / items, in_bank % items);
}

}  // namespace lode::loader
