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

std::vector<Change> changes_of(const RunPlan& plan, const Source& source) {
  const Settings& settings = plan.settings;
  std::vector<Change> changes;
  const auto change = [&](std::string setting, auto alter) {
    Settings other = settings;
    alter(other);
    changes.push_back({std::move(setting), other});
  };
  // The context that fits, where there is one that is not silly; else half of what was asked.
  const std::uint32_t largest = plan.fits() ? 0 : largest_context(plan, source);
  const std::uint32_t context = largest > 0 ? largest : plan.context_tokens / 2;
  if (context >= kSmallContext || largest > 0) {
    change(fmt::format("--ctx {}", context), [&](Settings& s) { s.context_tokens = context; });
  }
  if (plan.model.chunk_tokens > kSmallChunk) {
    const std::uint32_t chunk = std::max(kSmallChunk, plan.model.chunk_tokens / 4);
    change(fmt::format("--chunk {}", chunk), [&](Settings& s) { s.chunk_tokens = chunk; });
  }
  if (plan.model.kv_format == ops::KvFormat::kF32) {
    change("--kv-dtype f16", [](Settings& s) { s.kv_format = ops::KvFormat::kF16; });
  }
  if (settings.load.dense == loader::DenseFormat::kAsStored) {
    change("--dense int8", [](Settings& s) { s.load.dense = loader::DenseFormat::kInt8; });
  }
  if (plan.threads > 1) {
    change("--threads 1", [](Settings& s) { s.threads = 1; });
  }
  return changes;
}

}  // namespace

Result<std::vector<Advice>> advice(const RunPlan& plan, const Source& source) {
  std::vector<Advice> found;
  for (const Change& change : changes_of(plan, source)) {
    LODE_TRY(const RunPlan other, plan_run(source, change.settings, plan.machine));
    if (other.peak_bytes() >= plan.peak_bytes()) continue;
    found.push_back({change.setting, other.peak_bytes(), plan.peak_bytes() - other.peak_bytes()});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Advice& a, const Advice& b) { return a.saved_bytes > b.saved_bytes; });
  return found;
}

}  // namespace lode::engine
