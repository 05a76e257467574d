#include <algorithm>

#include "lode/base/fmt.h"
#include "lode/engine/run_plan.h"

namespace lode::engine {
namespace {

// Below these a change no longer pays.
constexpr std::uint32_t kSmallContext = 256;
constexpr std::uint32_t kSmallChunk = 32;

struct Change {
  std::string setting;
  Settings settings;
};

// Changes of everything but the context, each on top of `settings`.
template <class Add>
void change_settings(const RunPlan& plan, const Add& add) {
  if (plan.model.chunk_tokens > kSmallChunk) {
    const std::uint32_t chunk = std::max(kSmallChunk, plan.model.chunk_tokens / 4);
    add(fmt::format("--chunk {}", chunk), [chunk](Settings& s) { s.chunk_tokens = chunk; });
  }
  if (plan.model.kv_format == ops::KvFormat::kF32) {
    add("--kv-dtype f16", [](Settings& s) { s.kv_format = ops::KvFormat::kF16; });
  }
  if (!plan.is_prepared && plan.settings.load.dense == loader::DenseFormat::kAsStored) {
    add("--dense int8", [](Settings& s) { s.load.dense = loader::DenseFormat::kInt8; });
  }
  if (plan.threads > 1) {
    add("--threads 1", [](Settings& s) { s.threads = 1; });
  }
}

// The context that fits, where there is one that is not silly; else half of what was asked.
std::optional<Change> change_of_context(const RunPlan& plan, const Source& source) {
  const std::uint32_t largest = plan.fits() ? 0 : largest_context(plan, source);
  const std::uint32_t context = largest > 0 ? largest : plan.context_tokens / 2;
  if (context >= plan.context_tokens || (context < kSmallContext && largest == 0)) return {};
  Change change{fmt::format("--ctx {}", context), plan.settings};
  change.settings.context_auto = false;
  change.settings.context_tokens = context;
  return change;
}

std::vector<Change> changes_of(const RunPlan& plan, const Source& source) {
  std::vector<Change> changes;
  if (auto context = change_of_context(plan, source)) changes.push_back(*std::move(context));
  change_settings(plan, [&](std::string setting, auto alter) {
    changes.push_back({std::move(setting), plan.settings});
    alter(changes.back().settings);
  });
  return changes;
}

// All of them at once, with as much context as then fits but no more than is wanted.
Result<std::optional<Advice>> everything(const RunPlan& plan, const Source& source) {
  Settings settings = plan.settings;
  std::string text;
  change_settings(plan, [&](const std::string& setting, auto alter) {
    text += " " + setting;
    alter(settings);
  });
  settings.context_auto = true;
  LODE_TRY(RunPlan other, plan_run(source, settings, plan.machine));
  if (!other.fits()) return std::optional<Advice>{};
  settings.context_auto = false;
  settings.context_tokens = std::min(other.context_tokens, plan.context_tokens);
  LODE_TRY(other, plan_run(source, settings, plan.machine));
  const std::uint64_t peak = other.peak_bytes();
  return std::optional<Advice>{
      {fmt::format("--ctx {}{}", settings.context_tokens, text), peak, plan.peak_bytes() - peak}};
}

}  // namespace

Result<std::vector<Advice>> advice(const RunPlan& plan, const Source& source) {
  std::vector<Advice> found;
  bool one_fits = plan.fits();
  for (const Change& change : changes_of(plan, source)) {
    LODE_TRY(const RunPlan other, plan_run(source, change.settings, plan.machine));
    if (other.peak_bytes() >= plan.peak_bytes()) continue;
    one_fits = one_fits || other.peak_bytes() <= plan.budget.limit_bytes;
    found.push_back({change.setting, other.peak_bytes(), plan.peak_bytes() - other.peak_bytes()});
  }
  if (!one_fits) {
    LODE_TRY(std::optional<Advice> all, everything(plan, source));
    if (all) found.push_back(*std::move(all));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Advice& a, const Advice& b) { return a.saved_bytes > b.saved_bytes; });
  return found;
}

}  // namespace lode::engine
