#include "lode/engine/run_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/engine/balancer.h"
#include "lode/engine/sampler.h"
#include "lode/memory/buffer.h"
#include "lode/moe/expert_places.h"
#include "lode/parallel/hardware_threads.h"

namespace lode::engine {
namespace {

using memory::StageUse;
using memory::Tag;
using memory::TagBytes;

constexpr std::uint32_t kDefaultContext = 4096;
constexpr std::uint32_t kSmallContext = 256;  // planned where none fits
constexpr const char* kWorkStage = "work";

// A stage in which reservations are only added.
class Growth {
 public:
  Growth(std::string name, const TagBytes& before)
      : use_{.name = std::move(name), .held_bytes = before} {}
  void reserve(Tag tag, std::uint64_t bytes) { of(use_.held_bytes, tag) += bytes; }
  void buffer(Tag tag, std::uint64_t bytes) {
    const memory::BufferCost cost = memory::buffer_cost(bytes);
    reserve(tag, cost.tag_bytes);
    reserve(Tag::kPageTables, cost.page_table_bytes);
  }
  StageUse done() {
    use_.peak_bytes = use_.held_bytes;
    use_.peak_total_bytes = memory::total(use_.held_bytes);
    return std::move(use_);
  }

 private:
  StageUse use_;
};

model::KvShape kv_shape(const RunPlan& plan) {
  return {.max_tokens = plan.context_tokens,
          .chunk_tokens = plan.model.chunk_tokens,
          .format = plan.model.kv_format};
}

// Nothing where all ranks map the experts, as nothing is moved then.
std::uint64_t largest_record(const RunPlan& plan) {
  std::uint64_t bytes = 0;
  for (const loader::StagePlan& stage : plan.load.stages) {
    if (stage.bank) bytes = std::max<std::uint64_t>(bytes, stage.bank->record.record_bytes);
  }
  return plan.maps_weights() ? 0 : bytes;
}

// Tables stay; what moving takes comes and goes.
StageUse with_balancing(StageUse work, const eplb::BalancingCost& cost) {
  for (auto* const bytes : {&work.held_bytes, &work.peak_bytes}) {
    of(*bytes, Tag::kMetadata) += cost.table_bytes;
    of(*bytes, Tag::kPageTables) += cost.table_page_bytes;
  }
  of(work.peak_bytes, Tag::kStaging) += cost.moving_bytes;
  of(work.peak_bytes, Tag::kPageTables) += cost.moving_page_bytes;
  work.peak_total_bytes = memory::total(work.peak_bytes);
  return work;
}

// The bytes after the load: keys and values, activations, logits, what a sampler keeps, and what
// balancing takes.
StageUse work_stage(const RunPlan& plan, const Source& source, const TagBytes& before) {
  Growth work(kWorkStage, before);
  const std::uint64_t vocab = source.spec.vocab;
  work.buffer(Tag::kScratch,
              model::scratch_bytes(source.spec, model::scratch_shape(plan.model, plan.threads)));
  work.buffer(Tag::kKvCache, model::kv_cache_bytes(source.spec, kv_shape(plan)));
  work.buffer(Tag::kScratch, plan.logits_rows * vocab * sizeof(float));
  work.reserve(Tag::kScratch, vocab * kSamplerBytesPerToken);
  return with_balancing(work.done(), plan.balancing);
}

void plan_stages(RunPlan& plan, const Source& source) {
  Growth scan("scan", TagBytes{});
  scan.reserve(Tag::kMetadata, plan.metadata_bytes);
  plan.stages = {scan.done()};
  of(plan.stages[0].peak_bytes, Tag::kMetadata) += plan.reading_bytes;
  plan.stages[0].peak_total_bytes += plan.reading_bytes;
  for (StageUse& stage : plan.load.expected_stages(plan.stages.back().held_bytes)) {
    plan.stages.push_back(std::move(stage));
  }
  const TagBytes loaded = plan.stages.back().held_bytes;
  const std::optional<BalanceSettings>& balance = plan.settings.ranks.balance;
  if (balance && !plan.maps.empty())
    plan.balancing = balancing_cost(plan.maps, largest_record(plan), *balance);
  plan.stages.push_back(work_stage(plan, source, loaded));
  const TagBytes& held = plan.stages.back().held_bytes;
  const auto grown = [&](Tag tag) {
    const auto i = static_cast<std::size_t>(tag);
    return held[i] - loaded[i];
  };
  plan.kv_bytes = grown(Tag::kKvCache);
  plan.scratch_bytes = grown(Tag::kScratch);
}

Result<std::uint32_t> context_of(const Source& source, const Settings& settings) {
  const std::uint32_t most = source.spec.max_positions;
  if (settings.context_auto) return 1U;  // until it is known what fits
  if (settings.context_tokens == 0) return std::min(most, kDefaultContext);
  if (settings.context_tokens <= most) return settings.context_tokens;
  return Error{.code = Code::kUsage,
               .thing = "--ctx",
               .wanted = fmt::format("at most {} tokens, the model's limit", most),
               .found = fmt::format("{}", settings.context_tokens)};
}

model::ModelOptions model_options(const RunPlan& plan, std::uint32_t context_tokens) {
  const Settings& settings = plan.settings;
  const bool exact = settings.mode == ops::Mode::kExact;
  const auto default_kv = exact ? ops::KvFormat::kF32 : ops::KvFormat::kF16;
  return {.mode = settings.mode,
          .kv_format = settings.kv_format.value_or(default_kv),
          .chunk_tokens = std::clamp(settings.chunk_tokens, 1U, context_tokens),
          .num_ranks = settings.ranks.ranks,
          .rank_slots =
              plan.maps.empty() ? 0 : static_cast<std::uint32_t>(plan.maps[0].slots_per_rank())};
}

// A prepared checkpoint holds what it was prepared with; a setting that contradicts it is refused.
Status check_dense(const prepared::Checkpoint& checkpoint, const Settings& settings) {
  const std::string_view wanted = name(settings.load.dense);
  if (!settings.dense_is_named || checkpoint.manifest.dense == wanted) return {};
  return Error{
      .code = Code::kLayoutMismatch,
      .thing = "--dense",
      .wanted = fmt::format("{}, as this checkpoint was prepared", checkpoint.manifest.dense),
      .found = std::string(wanted),
      .where = checkpoint.folder.string(),
      .hint = fmt::format("prepare another one: lode prepare DIR OUT --dense {}", wanted)};
}

// All ranks map the same file and each uses its experts: nothing is copied; or each has its own
// made from what a GPU engine holds. Read into memory, each would hold all of them.
Status check_ranks(const Settings& settings) {
  if (settings.ranks.ranks == 1 || settings.start.start != prepared::Start::kRead) return {};
  return Error{.code = Code::kUnsupported,
               .thing = "several ranks of a prepared checkpoint",
               .wanted = "--start map",
               .found = fmt::format("--start {}", prepared::name(settings.start.start)),
               .hint = "run the folder that it was prepared from"};
}

Result<loader::LoadPlan> load_plan_of(const Source& source, const RunPlan& made) {
  const Settings& settings = made.settings;
  if (!source.prepared) {
    loader::LoadPolicy policy = settings.load;
    policy.movable_experts = settings.ranks.balance.has_value() && !made.maps.empty();
    return loader::plan_load(source.binding, source.spec, source.index, policy,
                             slots_of(made.maps, settings.ranks.rank));
  }
  LODE_TRY_STATUS(check_ranks(settings));
  LODE_TRY_STATUS(check_dense(*source.prepared, settings));
  loader::LoadPlan plan = prepared::load_plan(*source.prepared, settings.start);
  if (settings.start.start == prepared::Start::kRestore) {
    LODE_TRY_STATUS(loader::keep_experts(plan, slots_of(made.maps, settings.ranks.rank)));
    plan.policy.movable_experts = settings.ranks.balance.has_value() && !made.maps.empty();
  }
  plan.policy.io = settings.load.io;
  const bool int8 = source.prepared->manifest.dense == name(loader::DenseFormat::kInt8);
  plan.policy.dense = int8 ? loader::DenseFormat::kInt8 : loader::DenseFormat::kAsStored;
  return plan;
}

std::uint64_t program_bytes(const RunPlan& plan) {
  const bool sums =
      plan.is_prepared && plan.settings.start.verification != prepared::Verification::kNone;
  const RankSettings& ranks = plan.settings.ranks;
  const bool shared = ranks.one_process && ranks.rank != ranks.first_here;
  const std::uint64_t mpi = ranks.ranks > 1 && !ranks.one_process ? kMpiBytes : 0;
  return (shared ? 0 : kProgramBytes) + mpi + plan.threads * kThreadBytes + (sums ? kSumsBytes : 0);
}

Status check_step(const RunPlan& plan) {
  const std::optional<BalanceSettings>& balance = plan.settings.ranks.balance;
  const std::uint64_t record_bytes = largest_record(plan);
  if (!balance || plan.maps.empty() || balance->step_bytes >= record_bytes) return {};
  return Error{.code = Code::kUsage,
               .thing = "bytes of a step of moving experts",
               .wanted = fmt::format("at least the {} bytes of an expert", record_bytes),
               .found = fmt::format("{}", balance->step_bytes),
               .where = "--balance-step, --step"};
}

void take_largest_context(RunPlan& plan, const Source& source) {
  const std::uint32_t largest = largest_context(plan, source);
  plan.no_context_fits = largest == 0;
  plan.context_tokens =
      plan.no_context_fits ? std::min(source.spec.max_positions, kSmallContext) : largest;
  plan.model = model_options(plan, plan.context_tokens);
}

// Of the stage with the peak, the tag that takes most.
std::string largest_consumer(const RunPlan& plan) {
  const StageUse& peak = *std::max_element(
      plan.stages.begin(), plan.stages.end(),
      [](const StageUse& a, const StageUse& b) { return a.peak_total_bytes < b.peak_total_bytes; });
  const auto most = std::max_element(peak.peak_bytes.begin(), peak.peak_bytes.end());
  const auto tag = static_cast<Tag>(most - peak.peak_bytes.begin());
  return fmt::format("{} {} in stage \"{}\"", memory::name(tag), human_bytes(*most), peak.name);
}

// Every setting that makes the run fit: changes as `advice` sorts them, then a larger budget.
std::string settings_that_fit(const RunPlan& plan, const Source& source) {
  std::vector<std::string> fitting;
  if (const auto changes = advice(plan, source)) {
    for (const Advice& change : *changes) {
      if (change.peak_bytes > plan.budget.limit_bytes) continue;
      fitting.push_back(
          fmt::format("{} fits (saves {})", change.setting, human_bytes(change.saved_bytes)));
    }
  }
  const std::uint64_t peak = plan.peak_bytes() + plan.other_ranks_bytes;
  if (memory::decide_budget(plan.machine, peak).limit_bytes >= peak) {
    fitting.push_back(fmt::format("--memory {} fits", peak));
  }
  if (!fitting.empty()) return fmt::format("{}", fmt::join(fitting, "; "));
  return "no setting of --memory or --ctx fits into what this machine has available";
}

std::uint32_t default_threads(const RankSettings& ranks) {
  const auto threads = static_cast<std::uint32_t>(parallel::hardware_threads());
  return std::max(1U, threads / ranks.ranks_here);
}

Result<RunPlan> plan_one_rank(const Source& source, const Settings& settings,
                              const memory::MachineMemory& machine) {
  RunPlan plan;
  plan.settings = settings;
  plan.machine = machine;
  plan.budget = memory::decide_budget(machine, settings.memory_bytes);
  LODE_TRY(plan.context_tokens, context_of(source, settings));
  plan.threads = settings.threads != 0 ? settings.threads : default_threads(settings.ranks);
  plan.logits_rows = std::max(settings.logits_rows, 1U);
  LODE_TRY(plan.maps, expert_maps(source.spec, settings.ranks));
  plan.model = model_options(plan, plan.context_tokens);
  if (source.prepared) {
    prepared::Start& start = plan.settings.start.start;
    if (settings.start_is_named) {
      LODE_TRY_STATUS(prepared::check_start(*source.prepared, start));
    }
    start = prepared::possible_start(*source.prepared, start);
  }
  LODE_TRY(plan.load, load_plan_of(source, plan));
  plan.is_prepared = source.prepared.has_value();
  plan.program_bytes = program_bytes(plan);
  plan.metadata_bytes = metadata_bytes(source) + plan.program_bytes + table_bytes(plan.maps);
  plan.reading_bytes = reading_bytes(source);
  LODE_TRY_STATUS(check_step(plan));
  if (settings.context_auto) take_largest_context(plan, source);
  plan_stages(plan, source);
  return plan;
}

// What the other ranks of this machine need. Those that hold as many experts need the same, so one
// plan does for all of them.
Result<std::uint64_t> peaks_of_others(const RunPlan& own, const Source& source) {
  std::map<std::pair<std::size_t, bool>, std::uint64_t> peaks;  // by slots, and by the program's
  std::uint64_t bytes = 0;
  const RankSettings& ranks = own.settings.ranks;
  for (std::uint32_t i = 0; i < ranks.ranks_here; ++i) {
    const std::uint32_t rank = ranks.first_here + i;
    if (rank == ranks.rank) continue;
    const std::size_t slots = moe::experts_of_rank(own.maps[0], rank).size();
    auto [peak, is_new] = peaks.try_emplace({slots, i == 0}, 0);
    if (is_new) {
      Settings settings = own.settings;
      settings.ranks.rank = rank;
      LODE_TRY(const RunPlan other, plan_one_rank(source, settings, own.machine));
      peak->second = other.peak_bytes();
    }
    bytes += peak->second;
  }
  return bytes;
}

Status check_auto(const Settings& settings) {
  if (!settings.context_auto || settings.ranks.ranks == 1) return {};
  return Error{.code = Code::kUsage,
               .thing = "--ctx",
               .wanted = "a number of tokens, with several ranks",
               .found = "auto"};
}

}  // namespace

std::uint64_t RunPlan::peak_bytes() const {
  std::uint64_t peak = 0;
  for (const StageUse& stage : stages) peak = std::max(peak, stage.peak_total_bytes);
  return peak;
}

std::uint64_t RunPlan::load_peak_bytes() const {
  std::uint64_t peak = 0;
  for (const StageUse& stage : stages) {
    if (stage.name != kWorkStage) peak = std::max(peak, stage.peak_total_bytes);
  }
  return peak;
}

Result<RunPlan> plan_run(const Source& source, const Settings& settings,
                         const memory::MachineMemory& machine) {
  LODE_TRY_STATUS(check_auto(settings));
  LODE_TRY(RunPlan plan, plan_one_rank(source, settings, machine));
  if (plan.maps.empty()) return plan;
  LODE_TRY(plan.other_ranks_bytes, peaks_of_others(plan, source));
  memory::Budget& budget = plan.budget;
  budget.limit_bytes -= std::min(plan.other_ranks_bytes, budget.limit_bytes);
  budget.source +=
      fmt::format(", less {} of the other ranks here", human_bytes(plan.other_ranks_bytes));
  return plan;
}

std::uint32_t largest_context(const RunPlan& plan, const Source& source) {
  const auto fits = [&](std::uint32_t context) {
    RunPlan other = plan;
    other.context_tokens = context;
    other.model = model_options(plan, context);
    plan_stages(other, source);
    return other.fits();
  };
  std::uint32_t low = 0;
  std::uint32_t high = source.spec.max_positions;
  while (low < high) {
    const std::uint32_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

const StageUse* first_over(const RunPlan& plan) {
  const auto over = std::find_if(
      plan.stages.begin(), plan.stages.end(),
      [&](const StageUse& stage) { return stage.peak_total_bytes > plan.budget.limit_bytes; });
  return over == plan.stages.end() ? nullptr : &*over;
}

Status check_fits(const RunPlan& plan, const Source& source) {
  if (plan.fits()) return {};
  return Error{.code = Code::kOverBudget,
               .thing = plan.no_context_fits
                            ? fmt::format("this run, of which no context fits, with {} tokens",
                                          plan.context_tokens)
                            : "this run",
               .wanted = fmt::format("{} bytes ({}), most for {}", plan.peak_bytes(),
                                     human_bytes(plan.peak_bytes()), largest_consumer(plan)),
               .found = fmt::format("{} bytes ({}) from {}", plan.budget.limit_bytes,
                                    human_bytes(plan.budget.limit_bytes), plan.budget.source),
               .hint = settings_that_fit(plan, source)};
}

}  // namespace lode::engine
