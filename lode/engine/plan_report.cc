#include "lode/engine/plan_report.h"

#include <algorithm>
#include <tuple>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/memory/buffer.h"

namespace lode::engine {
namespace {

using memory::StageUse;
using memory::Tag;

constexpr std::uint64_t kSmallMarginBytes = 64 * kMiB;

std::uint64_t peak_of(const StageUse& stage, Tag tag) { return of(stage.peak_bytes, tag); }

// The least of the budget and the machine's limits that the stage exceeds.
std::string first_limit(const RunPlan& plan, std::uint64_t bytes) {
  std::uint64_t least = plan.budget.limit_bytes;
  std::string name = plan.budget.source;
  const auto consider = [&](std::uint64_t limit, const std::string& of) {
    if (limit < least) std::tie(least, name) = std::tuple(limit, of);
  };
  consider(plan.machine.available_bytes, "MemAvailable");
  for (const memory::CgroupMemory& cgroup : plan.machine.cgroups) {
    // What the program itself is charged for there is in the plan already.
    const std::uint64_t others =
        cgroup.used_bytes - std::min(cgroup.used_bytes, plan.machine.own_bytes);
    consider(cgroup.limit_bytes - std::min(cgroup.limit_bytes, others), "cgroup " + cgroup.path);
  }
  return bytes > least ? name : "-";
}

// Reads past the page cache leave nothing in it. What goes through it is dropped behind: at one
// instant about as much as is under way.
std::uint64_t cache_bytes(const loader::LoadPlan& load) {
  return load.policy.io == io::IoKind::kBuffered ? load.ring_bytes() : 0;
}

// In the last stage scratch is what the run works in; before, it is the loader's.
PlanRow row_of(const RunPlan& plan, const StageUse& stage, bool last) {
  PlanRow row;
  row.stage = stage.name;
  const bool scan = &stage == plan.stages.data();
  row.adds = scan ? Mark::kBounded : Mark::kExact;
  row.page_table_bytes = peak_of(stage, Tag::kPageTables);
  row.cache_bytes = scan || last ? 0 : cache_bytes(plan.load);
  row.total_bytes = stage.peak_total_bytes;
  row.final_bytes = peak_of(stage, Tag::kWeights) + peak_of(stage, Tag::kKvCache) +
                    of(stage.held_bytes, Tag::kMetadata) +
                    (last ? peak_of(stage, Tag::kScratch) : 0);
  const std::uint64_t rest = row.final_bytes + row.page_table_bytes;
  row.transient_bytes = row.total_bytes - std::min(row.total_bytes, rest);
  row.headroom_bytes = static_cast<std::int64_t>(plan.budget.limit_bytes) -
                       static_cast<std::int64_t>(row.total_bytes);
  row.first_limit = first_limit(plan, row.total_bytes);
  return row;
}

// "layer 7" -> "7"; "" for other stages.
std::string layer_of(std::string_view stage) {
  constexpr std::string_view kLayer = "layer ";
  return std::string(stage.starts_with(kLayer) ? stage.substr(kLayer.size()) : "");
}

bool alike(const PlanRow& before, const PlanRow& a, const PlanRow& b) {
  return !layer_of(a.stage).empty() && !layer_of(b.stage).empty() &&
         a.first_limit == b.first_limit && a.transient_bytes == b.transient_bytes &&
         a.final_bytes - before.final_bytes == b.final_bytes - a.final_bytes &&
         a.page_table_bytes - before.page_table_bytes == b.page_table_bytes - a.page_table_bytes;
}

std::vector<PlanRow> rows_of(const RunPlan& plan) {
  std::vector<PlanRow> rows;
  std::string first_layer;  // of the row that is being gathered
  PlanRow before;           // the stage before the last one
  for (const StageUse& stage : plan.stages) {
    PlanRow row = row_of(plan, stage, &stage == &plan.stages.back());
    const bool more_of_it = !rows.empty() && alike(before, rows.back(), row);
    if (!rows.empty()) before = rows.back();
    if (more_of_it) {
      row.stage = fmt::format("layer {}-{}", first_layer, layer_of(stage.name));
      rows.back() = std::move(row);
    } else {
      first_layer = layer_of(stage.name);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<BreakPoint> breaks_of(const RunPlan& plan) {
  std::vector<BreakPoint> breaks;
  std::uint64_t most = 0;
  for (const StageUse& stage : plan.stages) {
    if (stage.peak_total_bytes <= most) continue;
    most = stage.peak_total_bytes;
    breaks.insert(breaks.begin(), {stage.name, most});
  }
  return breaks;
}

KvReport kv_of(const RunPlan& plan, const Source& source) {
  const families::ModelSpec& spec = source.spec;
  const std::uint64_t slot = std::uint64_t{2} * spec.num_kv_heads * spec.head_dim *
                             ops::bytes_per_number(plan.model.kv_format);
  const model::KvShape shape{.max_tokens = plan.context_tokens,
                             .chunk_tokens = plan.model.chunk_tokens,
                             .format = plan.model.kv_format};
  KvReport kv;
  for (const families::LayerSpec& layer : spec.layers) {
    if (layer.window_tokens == 0) {
      ++kv.full_layers;
      kv.bytes_per_token += slot;
    } else {
      ++kv.windowed_layers;
      kv.windowed_bytes += model::kv_slots(layer, shape) * slot;
    }
  }
  return kv;
}

void find_largest_block(const RunPlan& plan, PlanReport& report) {
  const auto consider = [&](std::uint64_t bytes, std::string what) {
    const std::uint64_t mapped = memory::mapped_bytes(bytes);
    if (mapped <= report.largest_block_bytes) return;
    report.largest_block_bytes = mapped;
    report.largest_block = std::move(what);
  };
  for (const loader::StagePlan& stage : plan.load.stages) {
    if (stage.bank) consider(stage.bank->bytes(), "experts of " + stage.name);
    consider(stage.slab_bytes, "weights of " + stage.name + " outside the experts");
  }
  consider(plan.load.ring_bytes(), "ring between disk and weights");
  consider(plan.kv_bytes, "keys and values");
}

}  // namespace

std::string_view name(Mark mark) noexcept { return mark == Mark::kExact ? "exact" : "bounded"; }

Result<PlanReport> report_of(const RunPlan& plan, const Source& source) {
  PlanReport report;
  report.rows = rows_of(plan);
  report.breaks = breaks_of(plan);
  report.kv = kv_of(plan, source);
  report.largest_context_tokens = largest_context(plan, source);
  find_largest_block(plan, report);
  report.prepared_bytes = plan.load.weight_bytes();
  LODE_TRY(report.advice, advice(plan, source));
  return report;
}

bool fits_barely(const RunPlan& plan) {
  if (!plan.fits()) return false;
  const std::uint64_t spare = plan.budget.limit_bytes - plan.peak_bytes();
  return spare < std::min(plan.budget.limit_bytes / 50, kSmallMarginBytes);
}

}  // namespace lode::engine
