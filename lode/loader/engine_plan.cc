#include "lode/loader/engine_plan.h"

#include <algorithm>
#include <bit>
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

// Decides how a layer's experts are read for its tensors, and what that takes.
class ReadingPlanner {
 public:
  ReadingPlanner(const std::vector<ExpertSource>& experts, EngineBankPlan& bank,
                 const ExpertScratch& scratch)
      : experts_(experts), bank_(bank), refiner_(bank.preparer->refiner()), scratch_(scratch) {}

  void decide() {
    bank_.windows.resize(bank_.tensors().size());
    take_whole(kScaleNeeds, 0);
    if (refiner_ != nullptr && refiner_->wants_measure()) decide_measure();
    for (std::size_t idx = 0; idx < bank_.tensors().size(); ++idx) decide_tensor(idx);
  }

  // Experts need not lie alike in their files: the largest counts.
  std::uint64_t slot_bytes(const targets::Needs& needs,
                           const targets::SourceWindow& window = {}) const {
    std::uint64_t largest = 0;
    for (const std::uint32_t idx : bank_.experts) {
      largest = std::max(largest, ExpertReader::slot_bytes(experts_[idx], needs, window));
    }
    return largest;
  }

  std::uint64_t largest_slot_bytes = 0;  // of whole experts
  std::uint64_t window_bytes = 0;
  std::uint64_t refined_bytes = 0;

 private:
  // Of one window, or of the largest of several.
  struct Cost {
    std::uint64_t slot_bytes = 0;
    std::uint64_t refined_bytes = 0;

    void add(const Cost& other) {
      slot_bytes = std::max(slot_bytes, other.slot_bytes);
      refined_bytes = std::max(refined_bytes, other.refined_bytes);
    }
  };

  void take_whole(const targets::Needs& needs, std::uint64_t of_refined) {
    largest_slot_bytes = std::max(largest_slot_bytes, slot_bytes(needs));
    refined_bytes = std::max(refined_bytes, of_refined);
  }
  // One window after another, or while one is worked on the next comes in.
  void take_windows(const Cost& cost, std::uint64_t num_slots) {
    window_bytes = std::max(window_bytes, num_slots * align_up(cost.slot_bytes, io::kBlockBytes));
    refined_bytes = std::max(refined_bytes, cost.refined_bytes);
  }
  std::uint64_t refined(std::size_t idx, const targets::SourceWindow& window) const {
    return refiner_ == nullptr ? 0 : refiner_->bytes(idx, window);
  }

  void decide_measure() {
    if (slot_bytes(kCodeNeeds) <= scratch_.whole_bytes) return take_whole(kCodeNeeds, 0);
    const std::uint64_t most_bytes = scratch_.window_bytes / 2;
    bank_.measured_rows =
        std::min(rows_at_once(kGateUpNeeds, most_bytes), rows_at_once(kDownNeeds, most_bytes));
    for (const targets::Needs& needs : {kGateUpNeeds, kDownNeeds}) {
      take_windows({slot_bytes(needs, first_rows(bank_.measured_rows)), 0}, 2);
    }
  }

  void decide_tensor(std::size_t idx) {
    const targets::EngineTensor& tensor = bank_.tensors()[idx];
    const std::uint64_t of_refined = refined(idx, {});
    const bool has_codes = tensor.needs.gate_up || tensor.needs.down;
    if (!has_codes || slot_bytes(tensor.needs) + of_refined <= scratch_.whole_bytes) {
      return take_whole(tensor.needs, of_refined);
    }
    decide_units(idx);
    const targets::SourceWindow window = first_window(idx);
    if (refiner_ == nullptr || !refiner_->wants_scales_first(idx, window)) return;
    TensorWindows& windows = bank_.windows[idx];
    const std::uint64_t half = scratch_.window_bytes / 2;
    const std::uint64_t of_window = refined(idx, window);
    windows.scale_rows = rows_at_once(tensor.needs, half - std::min(half, of_window));
    take_windows({slot_bytes(tensor.needs, first_rows(windows.scale_rows)), of_window}, 2);
  }

  // Windows of rows come while others are worked on; of columns larger ones come less often, which
  // is worth more: all lines pass through for each.
  void decide_units(std::size_t idx) {
    const targets::EngineTensor& tensor = bank_.tensors()[idx];
    const targets::SourceWindow of_one = bank_.preparer->window_of(idx, 0, 1);
    if (of_one.is_all()) return;
    const std::uint64_t slots = of_one.k == Range{} ? 2 : 1;
    const auto spent = [&](const Cost& cost) {
      return slots * cost.slot_bytes + cost.refined_bytes;
    };
    std::uint64_t units = tensor.units();
    Cost cost = cost_of(idx, units);
    while (units > 1 && spent(cost) > scratch_.window_bytes) {
      const auto part =
          static_cast<double>(scratch_.window_bytes) / static_cast<double>(spent(cost));
      const auto fewer = static_cast<std::uint64_t>(static_cast<double>(units) * part);
      units = rounded(std::clamp<std::uint64_t>(fewer, 1, units - 1));
      cost = cost_of(idx, units);
    }
    bank_.windows[idx].units = units;
    take_windows(cost, slots);
  }
  // To numbers that whole blocks of a scheme, and whole blocks of rows of a shuffle, go into.
  static std::uint64_t rounded(std::uint64_t units) {
    const std::uint64_t step = std::bit_floor(units) / 4;
    return step <= 1 ? units : units / step * step;
  }

  Cost cost_of(std::size_t idx, std::uint64_t units) const {
    const targets::EngineTensor& tensor = bank_.tensors()[idx];
    Cost cost;
    for (std::uint64_t first = 0; first < tensor.units(); first += units) {
      const auto window =
          bank_.preparer->window_of(idx, first, std::min(units, tensor.units() - first));
      cost.add({slot_bytes(tensor.needs, window), refined(idx, window)});
    }
    return cost;
  }
  targets::SourceWindow first_window(std::size_t idx) const {
    const std::uint64_t units = bank_.windows[idx].units;
    if (units == 0) return {};
    return bank_.preparer->window_of(idx, 0, units);
  }

  static targets::SourceWindow first_rows(std::uint64_t rows) {
    return {.rows = {Range{0, rows}, Range{0, rows}}};
  }
  // Whole strips of the refiner.
  std::uint64_t rows_at_once(const targets::Needs& needs, std::uint64_t most_bytes) const {
    const std::uint64_t step = refiner_->window_rows();
    std::uint64_t rows = align_up(std::max(bank_.shape.intermediate, bank_.shape.hidden), step);
    while (rows > step && slot_bytes(needs, first_rows(rows)) > most_bytes) {
      rows = align_up(rows / 2, step);
    }
    return rows;
  }

  const std::vector<ExpertSource>& experts_;
  EngineBankPlan& bank_;
  const targets::Refiner* refiner_;
  const ExpertScratch& scratch_;
};

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
  return slots_bytes() + refined_bytes + kept_bytes() + engine_output_bytes(*this);
}

Result<EnginePlan> plan_engine(const Binding& binding, const EngineChoice& choice,
                               std::uint32_t threads, const ExpertScratch& scratch) {
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
    ReadingPlanner reading(experts, *bank, scratch);
    reading.decide();
    plan.slot_bytes =
        std::max(plan.slot_bytes, align_up(reading.largest_slot_bytes, io::kBlockBytes));
    plan.window_bytes = std::max(plan.window_bytes, reading.window_bytes);
    plan.refined_bytes = std::max(plan.refined_bytes, reading.refined_bytes);
    plan.kept_numbers =
        std::max(plan.kept_numbers, bank->experts.size() * bank->preparer->kept_numbers());
    constexpr targets::Needs kEverything{true, true, true, true, true, true};
    expert_bytes = std::max(expert_bytes, reading.slot_bytes(kEverything));
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
  const bool two_fit = 2 * plan.slot_bytes <= expert_bytes + kMoreThanAnExpert;
  if (two_fit && plan.window_bytes == 0) plan.num_slots = 2;
  return plan;
}

}  // namespace lode::loader
