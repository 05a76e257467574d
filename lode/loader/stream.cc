#include "lode/loader/stream.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/loader/pipeline.h"
#include "lode/loader/stage_guard.h"
#include "lode/memory/buffer.h"

namespace lode::loader {
namespace {

using memory::StageUse;
using memory::Tag;
using memory::TagBytes;

constexpr std::uint64_t kPageBytes = 4 * kKiB;
constexpr std::uint64_t kWindowBytes = 4 * kMiB;
constexpr std::uint64_t kMostCutBytes = 16 * kMiB;  // what slicing leaves open of one matrix
constexpr std::uint64_t kDrainStackBytes = 256 * kKiB;
constexpr std::string_view kLastStage = "finish";

std::uint64_t stack_bytes(const LoadPlan& plan) { return plan.stack_bytes() + kDrainStackBytes; }

// What a stage hands to the sink: whole pages of both slabs.
std::uint64_t streamed_bytes(const StagePlan& stage) {
  return align_up(stage.slab_bytes, kPageBytes) +
         (stage.bank ? align_up(stage.bank->bytes(), kPageBytes) : 0);
}

// Of what a start leaves out.
std::uint64_t streamed_before(const LoadPlan& plan, const StreamStart& start) {
  std::uint64_t bytes = start.offset_bytes;
  for (std::size_t i = 0; i < start.stage_idx; ++i) bytes += streamed_bytes(plan.stages[i]);
  if (start.slab == Slab::kBank) {
    bytes += align_up(plan.stages[start.stage_idx].slab_bytes, kPageBytes);
  }
  return bytes;
}

// What is held while bytes flow.
struct Transient {
  memory::Buffer ring;
  memory::Reservation stacks;
  memory::Reservation room;
  memory::Reservation tables;
  std::unique_ptr<Pipeline> pipeline;  // last: its threads use the ring
};

struct Stream {
  const LoadPlan& plan;
  const Binding& binding;
  const StreamParts& parts;
  Progress& progress;

  Result<Transient> make_transient() const;
  Status run_stage(std::size_t stage_idx, Pipeline& pipeline, Drain& drain) const;
  Status run_stages(Drain& drain) const;
  Status run() const;
};

Result<Transient> Stream::make_transient() const {
  memory::Ledger& ledger = parts.ledger;
  const std::uint64_t room = stream_room_bytes(plan);
  Transient transient;
  LODE_TRY(transient.ring, memory::make_buffer(ledger, Tag::kStaging, plan.ring_bytes(),
                                               "ring between disk and weights"));
  LODE_TRY(transient.stacks,
           ledger.reserve(Tag::kScratch, stack_bytes(plan), "stacks of the loading threads"));
  LODE_TRY(transient.room, ledger.reserve(Tag::kStaging, room, "weights that pass"));
  LODE_TRY(transient.tables,
           ledger.reserve(Tag::kPageTables, memory::page_table_bytes(room), "weights that pass"));
  transient.pipeline =
      std::make_unique<Pipeline>(plan, transient.ring.mutate(), parts.engine, progress);
  LODE_TRY_STATUS(transient.pipeline->start(plan.policy.workers));
  return transient;
}

Status Stream::run_stage(std::size_t stage_idx, Pipeline& pipeline, Drain& drain) const {
  const StagePlan& stage = plan.stages[stage_idx];
  OperationStream::Options options{.window_bytes = kWindowBytes, .start = {}};
  if (stage_idx == parts.start.stage_idx) {
    options.start = {parts.start.slab, parts.start.offset_bytes};
  }
  LODE_TRY(const WeightSetBuilder::Slabs slabs, drain.make_slabs(stage, stage_idx, options.start));
  OperationStream operations(plan, binding, stage_idx, options);
  LODE_TRY_STATUS(pipeline.run(operations, stage, slabs, &drain));
  progress.finished_bytes.store(streamed_before(plan, {.stage_idx = stage_idx + 1}),
                                std::memory_order_relaxed);
  return {};
}

Status Stream::run_stages(Drain& drain) const {
  std::optional<Transient> transient;
  for (std::size_t stage = parts.start.stage_idx; stage < plan.stages.size(); ++stage) {
    parts.ledger.begin_stage(plan.stages[stage].name);
    progress.stage_idx.store(static_cast<std::uint32_t>(stage), std::memory_order_relaxed);
    if (!transient) {
      LODE_TRY(Transient made, make_transient());
      transient = std::move(made);
    }
    LODE_TRY_STATUS(run_stage(stage, *transient->pipeline, drain));
  }
  parts.ledger.begin_stage(std::string(kLastStage));
  progress.stage_idx.store(static_cast<std::uint32_t>(plan.stages.size()),
                           std::memory_order_relaxed);
  return drain.finish();
}

Status Stream::run() const {
  LODE_TRY_STATUS(check_stream_fits(plan, parts.start, parts.ledger));
  const StageGuard guard(parts.ledger);
  progress.finished_bytes.store(streamed_before(plan, parts.start), std::memory_order_relaxed);
  progress.total_bytes.store(streamed_before(plan, {.stage_idx = plan.stages.size()}),
                             std::memory_order_relaxed);
  Drain drain(parts.sink, stream_room_bytes(plan));
  LODE_TRY_STATUS(drain.start());
  LODE_TRY_STATUS(run_stages(drain));
  return parts.engine.finish();
}

}  // namespace

// The windows under way: one that is due and what was put to it, a matrix that is cut along k, and
// the chunks at both ends.
std::uint64_t stream_room_bytes(const LoadPlan& plan) noexcept {
  return kMostCutBytes + std::max(kWindowBytes, 2 * plan.policy.slot_bytes) +
         2 * ChunkRun::kChunkBytes;
}

std::vector<StageUse> expected_stream_stages(const LoadPlan& plan, const StreamStart& start,
                                             const TagBytes& held_before) {
  const memory::BufferCost ring = memory::buffer_cost(plan.ring_bytes());
  const std::uint64_t room = stream_room_bytes(plan);
  TagBytes held = held_before;
  of(held, Tag::kStaging) += ring.tag_bytes + room;
  of(held, Tag::kPageTables) += ring.page_table_bytes + memory::page_table_bytes(room);
  of(held, Tag::kScratch) += stack_bytes(plan);
  std::vector<StageUse> uses;
  for (std::size_t i = start.stage_idx; i < plan.stages.size(); ++i) {
    uses.push_back({plan.stages[i].name, held, held, memory::total(held)});
  }
  const TagBytes& peak = uses.empty() ? held_before : held;
  uses.push_back({std::string(kLastStage), held_before, peak, memory::total(peak)});
  return uses;
}

Status check_stream_fits(const LoadPlan& plan, const StreamStart& start,
                         const memory::Ledger& ledger) {
  const auto stages = expected_stream_stages(plan, start);
  const std::uint64_t need = stages.front().peak_total_bytes;
  const std::uint64_t have = ledger.limit_bytes() - ledger.held_bytes();
  if (need <= have) return {};
  return Error{.code = Code::kOverBudget,
               .thing = "preparing the weights",
               .wanted = fmt::format("{} bytes, whatever the model's size", need),
               .found = fmt::format("{} of {} bytes free", have, ledger.limit_bytes()),
               .hint = fmt::format("a budget of {} bytes fits", need + ledger.held_bytes())};
}

Status stream(const LoadPlan& plan, const Binding& binding, const StreamParts& parts) {
  Progress unread;
  return Stream{plan, binding, parts, parts.progress != nullptr ? *parts.progress : unread}.run();
}

}  // namespace lode::loader
