#include "lode/prepared/start.h"

#include <array>
#include <optional>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/loader/stage_guard.h"
#include "lode/memory/buffer.h"
#include "lode/prepared/chunk_check.h"
#include "lode/prepared/stage_maker.h"

namespace lode::prepared {
namespace {

using memory::Tag;

constexpr std::array<std::string_view, 3> kStartNames = {"map", "read", "restore"};

// What is held until the weights are sealed.
struct Transient {
  memory::Buffer buffers;
  memory::Reservation stacks;
};

struct Starter {
  StartParts parts;
  const StartPolicy& policy;

  Result<Transient> make_transient() const;
  Status look_at_chunks(Transient& transient) const;
  Result<loader::WeightSet> run(StageMaker& maker) const;
};

Result<Transient> Starter::make_transient() const {
  Transient transient;
  LODE_TRY(transient.buffers,
           memory::make_buffer(parts.ledger, Tag::kStaging, parts.plan.ring_bytes(),
                               "buffers of the threads that look at sums"));
  LODE_TRY(transient.stacks, parts.ledger.reserve(Tag::kScratch, parts.plan.stack_bytes(),
                                                  "stacks of the threads of the start"));
  return transient;
}

Status Starter::look_at_chunks(Transient& transient) const {
  if (parts.plan.ring_bytes() == 0 || policy.verification < Verification::kSampled) return {};
  const ChunkCheck check{.sampled = policy.verification == Verification::kSampled,
                         .keep_in_cache = true,
                         .threads = policy.threads};
  LODE_TRY(const ChunkReport report,
           check_chunks(parts.checkpoint, check, transient.buffers.mutate(), &parts.progress));
  parts.progress.finished_bytes.store(0, std::memory_order_relaxed);
  if (report.faults.empty()) return {};
  Error error = to_error(report.faults.front());
  const std::uint64_t more = report.num_bad_chunks - report.faults.front().num_chunks;
  if (more > 0) error.found += fmt::format(", and {} more chunks elsewhere", more);
  return error;
}

Result<loader::WeightSet> Starter::run(StageMaker& maker) const {
  const auto& [checkpoint, plan, ledger, progress] = parts;
  LODE_TRY_STATUS(plan.check_fits(ledger));
  const loader::StageGuard guard(ledger);
  progress.finished_bytes.store(0, std::memory_order_relaxed);
  progress.total_bytes.store(plan.weight_bytes(), std::memory_order_relaxed);
  std::optional<Transient> transient;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    ledger.begin_stage(plan.stages[i].name);
    progress.stage_idx.store(static_cast<std::uint32_t>(i), std::memory_order_relaxed);
    if (progress.cancel.load()) return Error{.code = Code::kInterrupted, .thing = "the start"};
    if (!transient) {
      LODE_TRY(transient, make_transient());
      LODE_TRY_STATUS(look_at_chunks(*transient));
      LODE_TRY_STATUS(maker.begin(transient->buffers.mutate()));
    }
    Status made = maker.make(i);
    if (!made) return at(plan.stages[i].name, std::move(made).error());
  }
  LODE_TRY_STATUS(maker.end());
  ledger.begin_stage("seal");
  progress.stage_idx.store(static_cast<std::uint32_t>(plan.stages.size()));
  progress.finished_bytes.store(plan.weight_bytes());
  transient.reset();
  return maker.weights();
}

std::unique_ptr<StageMaker> maker_of(const StartParts& parts, const StartPolicy& policy) {
  LODE_CHECK((policy.start == Start::kRestore) == !parts.checkpoint.index.engine_banks.empty(),
             "what is for a GPU engine is restored, and nothing else");
  switch (policy.start) {
    case Start::kMap:
      return make_mapper(parts);
    case Start::kRead:
      return make_reader(parts, policy.verification != Verification::kNone);
    case Start::kRestore:
      return make_restorer(parts);
  }
  return nullptr;
}

}  // namespace

std::string_view name(Start start) noexcept { return kStartNames[static_cast<std::size_t>(start)]; }

Result<Start> parse_start(std::string_view word) {
  if (word == kStartNames[0]) return Start::kMap;
  if (word == kStartNames[1]) return Start::kRead;
  if (word == kStartNames[2]) return Start::kRestore;
  return Error{.code = Code::kUsage,
               .thing = "--start",
               .wanted = fmt::format("{}", fmt::join(kStartNames, ", ")),
               .found = std::string(word)};
}

Start possible_start(const Checkpoint& checkpoint, Start usual) noexcept {
  return checkpoint.index.engine_banks.empty() ? usual : Start::kRestore;
}

Status check_start(const Checkpoint& checkpoint, Start named) {
  const bool is_engine = !checkpoint.index.engine_banks.empty();
  if (is_engine == (named == Start::kRestore)) return {};
  return Error{.code = Code::kUsage,
               .thing = fmt::format("--start {}", name(named)),
               .wanted = is_engine
                             ? "--start restore, or none: what a GPU engine's kernels read is "
                               "made into Lode's own form again"
                             : "--start map or read",
               .found = fmt::format("a checkpoint for target {}", checkpoint.manifest.target)};
}

loader::LoadPlan load_plan(const Checkpoint& checkpoint, const StartPolicy& policy) {
  loader::LoadPlan plan;
  plan.stages = checkpoint.index.stages;
  plan.sources = checkpoint.files;
  const bool check = policy.start != Start::kRead && policy.verification >= Verification::kSampled;
  const bool works = check || policy.start == Start::kRestore;
  plan.policy.readers = policy.start == Start::kMap ? 0 : policy.threads;
  plan.policy.workers = works ? policy.threads : 0;
  plan.policy.num_slots = works ? policy.threads : 0;
  plan.policy.slot_bytes = kCheckBufferBytes;
  if (policy.start == Start::kRestore) {
    const std::uint64_t share =
        ceil_div(restorer_bytes(checkpoint.index), std::uint64_t{policy.threads});
    plan.policy.slot_bytes =
        align_up(std::max(kCheckBufferBytes, share), std::uint64_t{io::kBlockBytes});
  }
  return plan;
}

Result<loader::WeightSet> start(const Checkpoint& checkpoint, const loader::LoadPlan& plan,
                                const StartPolicy& policy, memory::Ledger& ledger,
                                loader::Progress* progress) {
  loader::Progress unread;
  const StartParts parts{checkpoint, plan, ledger, progress != nullptr ? *progress : unread};
  return Starter{parts, policy}.run(*maker_of(parts, policy));
}

}  // namespace lode::prepared
