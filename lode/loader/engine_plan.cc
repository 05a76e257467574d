#include "lode/loader/engine_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/expert_reader.h"
#include "lode/targets/refiner.h"

namespace lode::loader {
namespace {

// Reading ahead may cost so much more than one expert as it is stored.
constexpr std::uint64_t kMoreThanAnExpert = 4 * kMiB;

Status check_experts(const std::vector<std::uint32_t>& experts, std::size_t num_experts) {
  for (const std::uint32_t expert : experts) {
    if (expert < num_experts) continue;
    return Error{.code = Code::kUsage,
                 .thing = "--experts",
                 .wanted = fmt::format("numbers below {}", num_experts),
                 .found = fmt::format("{}", expert)};
  }
  return {};
}

std::vector<std::uint32_t> all_experts(std::size_t num_experts) {
  std::vector<std::uint32_t> experts(num_experts);
  std::iota(experts.begin(), experts.end(), 0U);
  return experts;
}

// Of a layer: the largest slot, and what its experts have as they are stored.
struct Slots {
  std::uint64_t largest_bytes = 0;
  std::uint64_t expert_bytes = 0;
};

// Experts need not lie alike in their files: the largest counts.
Slots slots_of(const std::vector<ExpertSource>& experts, const EngineBankPlan& bank) {
  constexpr targets::Needs kEverything{true, true, true, true, true, true};
  const targets::Refiner* const refiner = bank.preparer->refiner();
  const bool measured = refiner != nullptr && refiner->wants_measure();
  Slots slots;
  for (const std::uint32_t idx : bank.experts) {
    const auto bytes = [&](const targets::Needs& needs) {
      return ExpertReader::slot_bytes(experts[idx], needs);
    };
    std::uint64_t& largest = slots.largest_bytes;
    largest = std::max(largest, bytes(kScaleNeeds));
    if (measured) largest = std::max(largest, bytes(kCodeNeeds));
    for (const targets::EngineTensor& tensor : bank.tensors()) {
      largest = std::max(largest, bytes(tensor.needs));
    }
    slots.expert_bytes = std::max(slots.expert_bytes, bytes(kEverything));
  }
  return slots;
}

}  // namespace

Result<EngineBankPlan> plan_engine_bank(const targets::ExpertsShape& shape,
                                        const EngineChoice& choice,
                                        std::vector<std::uint32_t> experts) {
  EngineBankPlan bank;
  bank.shape = shape;
  bank.shape.num_experts = experts.size();
  bank.experts = std::move(experts);
  LODE_TRY(bank.preparer, targets::make_preparer(choice.target, bank.shape, choice.options));
  for (const targets::EngineTensor& tensor : bank.tensors()) {
    bank.offsets_bytes.push_back(bank.bytes);
    const std::uint64_t bytes = tensor.bytes(bank.shape.num_experts);
    bank.bytes = align_up(bank.bytes + bytes, EngineBankPlan::kAlignment);
    bank.padding_bytes += bank.bytes - bank.offsets_bytes.back() - bytes +
                          tensor.padding_bytes * bank.shape.num_experts;
  }
  return bank;
}

std::uint64_t EnginePlan::bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const EngineBankPlan& bank : banks) bytes += bank.bytes;
  return bytes;
}

std::uint64_t EnginePlan::padding_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const EngineBankPlan& bank : banks) bytes += bank.padding_bytes;
  return bytes;
}

std::uint64_t EnginePlan::staging_bytes() const noexcept {
  return num_slots * slot_bytes + refined_bytes + engine_output_bytes(*this);
}

Result<EnginePlan> plan_engine(const Binding& binding, const EngineChoice& choice,
                               std::uint32_t threads) {
  EnginePlan plan;
  plan.threads = threads;
  // What one expert of the model has all must have: whoever reads them says which has not.
  const bool input_scales = std::ranges::any_of(binding.experts, have_input_scales);
  std::uint64_t expert_bytes = 0;
  for (std::size_t layer = 0; layer < binding.experts.size(); ++layer) {
    const std::vector<ExpertSource>& experts = binding.experts[layer];
    if (experts.empty()) continue;
    const std::string place = fmt::format("layer {}", layer);
    auto shape = experts_shape(experts);
    if (!shape) return at(place, std::move(shape).error());
    shape->input_scales = input_scales;
    LODE_TRY_STATUS(check_experts(choice.experts, experts.size()));
    auto bank = plan_engine_bank(
        *shape, choice, choice.experts.empty() ? all_experts(experts.size()) : choice.experts);
    if (!bank) return at(place, std::move(bank).error());
    bank->layer = layer;
    const Slots slots = slots_of(experts, *bank);
    plan.slot_bytes = std::max(plan.slot_bytes, align_up(slots.largest_bytes, io::kBlockBytes));
    expert_bytes = std::max(expert_bytes, slots.expert_bytes);
    if (const targets::Refiner* const refiner = bank->preparer->refiner()) {
      plan.refined_bytes = std::max(plan.refined_bytes, refiner->bytes());
    }
    for (const targets::EngineTensor& tensor : bank->tensors()) {
      plan.unit_bytes = std::max(plan.unit_bytes, tensor.unit_bytes);
    }
    plan.banks.push_back(*std::move(bank));
  }
  if (plan.banks.empty()) {
    return Error{.code = Code::kUnsupported,
                 .thing = "this model",
                 .wanted = fmt::format("experts for target {}", targets::name(choice.target)),
                 .found = "none in any layer"};
  }
  if (2 * plan.slot_bytes <= expert_bytes + kMoreThanAnExpert) plan.num_slots = 2;
  return plan;
}

}  // namespace lode::loader
