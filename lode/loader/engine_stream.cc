#include "lode/loader/engine_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/loader/expert_numbers.h"
#include "lode/loader/expert_reader.h"
#include "lode/loader/layer_scalars.h"
#include "lode/loader/loss_check.h"
#include "lode/loader/outlet.h"
#include "lode/loader/stage_guard.h"
#include "lode/memory/buffer.h"
#include "lode/memory/carver.h"
#include "lode/parallel/thread_pool.h"
#include "lode/targets/refiner.h"

namespace lode::loader {
namespace {

using memory::Tag;
using memory::TagBytes;

constexpr std::uint64_t kChunk = ChunkRun::kChunkBytes;
constexpr std::uint64_t kStackBytes = 64 * kKiB;  // of a thread, as touched
// A thread makes this much at once, or more as long as every thread has some tasks of a batch: rows
// of tiles take a few bytes of every row of their source, and lines are brought in for each task.
constexpr std::uint64_t kLeastTaskBytes = 64 * kKiB;
constexpr std::uint64_t kTasksOfThread = 4;

// What is made between two looks at the outlet.
std::uint64_t batch_bytes(const EnginePlan& plan) { return std::max(kChunk, plan.unit_bytes); }

std::uint64_t stack_bytes(const EnginePlan& plan) { return (plan.threads + 1) * kStackBytes; }

void add_staging(TagBytes& held, std::uint64_t bytes) {
  const memory::BufferCost cost = memory::buffer_cost(bytes);
  of(held, Tag::kStaging) += cost.tag_bytes;
  of(held, Tag::kPageTables) += cost.page_table_bytes;
}

constexpr std::string_view kLookStage = "a look at what was made";

bool looks_back(const EngineStart& start) { return start.is_strict && start.bank_idx > 0; }

// Memory and threads of one stream.
struct Transient {
  memory::Buffer slots;
  memory::Buffer output;
  std::optional<memory::Buffer> refined;  // one expert
  std::optional<memory::Buffer> kept;     // of all experts of a layer
  memory::Reservation stacks;
};

class EngineStream {
 public:
  EngineStream(const EnginePlan& plan, const Binding& binding, const EngineStreamParts& parts,
               Progress& progress)
      : plan_(plan), binding_(binding), parts_(parts), progress_(progress), pool_(plan.threads) {}

  Status run();

 private:
  // One expert's part of one tensor, or units of it: what a window of the expert is for.
  struct Part {
    std::size_t tensor_idx = 0;
    std::uint64_t expert_idx = 0;
    std::uint64_t first_unit = 0;
    std::uint64_t num_units = 0;  // none of a window that only gives scales
    targets::SourceWindow window{};
    bool scales_are_known = false;
    bool ends_expert = false;  // the last of its expert
    bool counts_losses = true;
  };

  void begin_progress();
  Status begin();
  Status look_back();
  Status run_banks();
  Result<Transient> make_transient();
  Status begin_bank(const EngineBankPlan& bank);
  Status run_bank(const EngineBankPlan& bank, std::uint64_t start_bytes);
  Status look_at_bank(const EngineBankPlan& bank);
  Status look_at_tensor(std::size_t tensor_idx, std::uint64_t num_experts);
  void look_at_scalars();
  Status make_tensor(std::size_t tensor_idx);
  // Does something with the experts in `range` of a tensor, part by part: with numbers that were
  // looked at.
  using Take = parallel::FunctionRef<Status(const Part& part, const targets::ExpertSource& source)>;
  enum class Losses : std::uint8_t { kCount, kLeave };
  Status for_parts(std::size_t tensor_idx, const Range& range, Losses losses, Take take);
  std::vector<Part> parts_of(std::size_t tensor_idx, std::uint64_t expert_idx) const;
  Status take_part(const Part& part, const targets::ExpertSource& source, Take take);
  NumberOrigin origin_of(const Part& part) const {
    return {binding_.experts[bank_->layer][bank_->experts[part.expert_idx]], bank_->shape.encoding,
            parts_.index};
  }
  Result<targets::ExpertSource> look_at(const Part& part, const targets::ExpertSource& source);
  Status count_losses(const Part& part, const targets::LossRequest& request);
  Status keep_again(std::size_t tensor_idx, std::uint64_t first_expert);
  std::span<float> kept_of(std::uint64_t expert_idx) const {
    const std::uint64_t count = bank_->preparer->kept_numbers();
    return kept_.subspan(expert_idx * count, count);
  }
  std::uint64_t units_at_once(std::size_t tensor_idx) const {
    return std::max<std::uint64_t>(batch_bytes(plan_) / bank_->tensors()[tensor_idx].unit_bytes, 1);
  }
  Status make_part(const Part& part, const targets::ExpertSource& source);
  void make_units(const Part& part, std::uint64_t first_unit, const targets::ExpertSource& source,
                  std::span<std::byte> out);
  Status fill_to(std::uint64_t offset_bytes);

  const EnginePlan& plan_;
  const Binding& binding_;
  const EngineStreamParts& parts_;
  Progress& progress_;
  parallel::ThreadPool pool_;
  std::optional<Transient> transient_;
  std::optional<ExpertReader> reader_;
  std::optional<Outlet> outlet_;
  std::span<std::byte> refined_;
  std::span<float> kept_;
  // Of the bank that is being made:
  const EngineBankPlan* bank_ = nullptr;
  targets::LayerScalars scalars_;
  targets::LossCounts expert_losses_;  // of the windows of an expert until now
  std::uint64_t at_bytes_ = 0;         // made up to here
  // Of each tensor, the first expert whose part was made by this stream from its beginning on.
  std::vector<std::uint64_t> first_made_;
};

Result<Transient> EngineStream::make_transient() {
  Transient transient;
  LODE_TRY(transient.slots, memory::make_buffer(parts_.ledger, Tag::kStaging, plan_.slots_bytes(),
                                                "experts as they are stored"));
  LODE_TRY(transient.output,
           memory::make_buffer(parts_.ledger, Tag::kStaging, engine_output_bytes(plan_),
                               "experts as they become"));
  if (plan_.refined_bytes > 0) {
    LODE_TRY(transient.refined, memory::make_buffer(parts_.ledger, Tag::kStaging,
                                                    plan_.refined_bytes, "an expert, quantised"));
  }
  if (plan_.kept_numbers > 0) {
    LODE_TRY(transient.kept, memory::make_buffer(parts_.ledger, Tag::kStaging, plan_.kept_bytes(),
                                                 "numbers that are kept of a layer's experts"));
  }
  LODE_TRY(transient.stacks, parts_.ledger.reserve(Tag::kScratch, stack_bytes(plan_),
                                                   "stacks of the preparing threads"));
  return transient;
}

// What an earlier stream has made is finished.
void EngineStream::begin_progress() {
  std::uint64_t finished = parts_.start.offset_bytes;
  for (std::size_t i = 0; i < parts_.start.bank_idx; ++i) finished += plan_.banks[i].bytes;
  progress_.total_bytes.fetch_add(plan_.bytes(), std::memory_order_relaxed);
  progress_.finished_bytes.fetch_add(finished, std::memory_order_relaxed);
}

// Memory and threads, in the first stage.
Status EngineStream::begin() {
  LODE_TRY(transient_, make_transient());
  reader_.emplace(parts_.engine, transient_->slots.mutate());
  outlet_.emplace(parts_.sink, transient_->output.mutate());
  if (transient_->refined) refined_ = transient_->refined->mutate();
  if (transient_->kept) {
    kept_ = memory::Carver(transient_->kept->mutate()).take<float>(plan_.kept_numbers);
  }
  return outlet_->start();
}

Status EngineStream::run() {
  const StageGuard guard(parts_.ledger);
  begin_progress();
  Status made = looks_back(parts_.start) ? look_back() : Status();
  if (made) made = run_banks();
  outlet_.reset();
  reader_.reset();
  transient_.reset();
  LODE_TRY_STATUS(std::move(made));
  return parts_.engine.finish();
}

Status EngineStream::look_back() {
  parts_.ledger.begin_stage(std::string(kLookStage));
  LODE_TRY_STATUS(begin());
  for (std::size_t i = 0; i < parts_.start.bank_idx; ++i) {
    const EngineBankPlan& bank = plan_.banks[i];
    Status seen = look_at_bank(bank);
    if (!seen) return at(fmt::format("layer {}", bank.layer), std::move(seen).error());
  }
  return {};
}

Status EngineStream::run_banks() {
  for (std::size_t i = parts_.start.bank_idx; i < plan_.banks.size(); ++i) {
    const EngineBankPlan& bank = plan_.banks[i];
    parts_.ledger.begin_stage(stage_name(bank));
    progress_.stage_idx.store(static_cast<std::uint32_t>(bank.layer + 1),
                              std::memory_order_relaxed);
    if (!transient_) LODE_TRY_STATUS(begin());
    Status made = run_bank(bank, i == parts_.start.bank_idx ? parts_.start.offset_bytes : 0);
    if (!made) return at(fmt::format("layer {}", bank.layer), std::move(made).error());
  }
  return {};
}

Status EngineStream::begin_bank(const EngineBankPlan& bank) {
  bank_ = &bank;
  first_made_.assign(bank.tensors().size(), bank.shape.num_experts);
  LODE_TRY(scalars_, read_layer_scalars(binding_.experts[bank.layer], bank,
                                        {parts_.engine, *reader_, pool_, parts_.index}));
  return {};
}

Status EngineStream::run_bank(const EngineBankPlan& bank, std::uint64_t start_bytes) {
  LODE_TRY_STATUS(begin_bank(bank));
  at_bytes_ = start_bytes;
  look_at_scalars();
  outlet_->begin(bank.layer + 1, start_bytes);
  for (std::size_t tensor = 0; tensor < bank.tensors().size(); ++tensor) {
    LODE_TRY_STATUS(fill_to(bank.offsets_bytes[tensor]));
    LODE_TRY_STATUS(make_tensor(tensor));
  }
  LODE_TRY_STATUS(fill_to(bank.bytes));
  return outlet_->end();
}

// The first experts of a tensor that an earlier stream has made.
Status EngineStream::look_at_tensor(std::size_t tensor_idx, std::uint64_t num_experts) {
  return for_parts(tensor_idx, {0, num_experts}, Losses::kCount,
                   [](const Part&, const targets::ExpertSource&) { return Status(); });
}

Status EngineStream::look_at_bank(const EngineBankPlan& bank) {
  LODE_TRY_STATUS(begin_bank(bank));
  for (std::size_t tensor = 0; tensor < bank.tensors().size(); ++tensor) {
    if (!bank.preparer->may_lose(tensor)) continue;
    LODE_TRY_STATUS(look_at_tensor(tensor, bank.shape.num_experts));
  }
  return {};
}

void EngineStream::look_at_scalars() {
  if (parts_.findings == nullptr) return;
  EngineFindings& findings = *parts_.findings;
  for (std::size_t i = 0; i < scalars_.up_scale.size(); ++i) {
    if (scalars_.gate_scale[i] != scalars_.up_scale[i]) ++findings.unequal_pairs;
  }
  if (bank_->shape.encoding.tensor_scale == formats::TensorScale::kNone) return;
  for (const auto* scales : {&scalars_.gate_scale, &scalars_.up_scale, &scalars_.down_scale}) {
    findings.implausible_scales += static_cast<std::uint64_t>(
        std::ranges::count_if(*scales, [](float scale) { return !is_plausible(scale); }));
  }
}

// All of it at once, or window by window; before those the windows that give scales.
std::vector<EngineStream::Part> EngineStream::parts_of(std::size_t tensor_idx,
                                                       std::uint64_t expert_idx) const {
  const targets::EngineTensor& tensor = bank_->tensors()[tensor_idx];
  const TensorWindows& windows = bank_->windows[tensor_idx];
  if (windows.is_whole()) return {{tensor_idx, expert_idx, 0, tensor.units(), {}, false, true}};
  std::vector<Part> parts;
  const std::uint64_t rows = tensor.needs.gate_up ? bank_->shape.intermediate : bank_->shape.hidden;
  for (std::uint64_t row = 0; windows.scale_rows > 0 && row < rows; row += windows.scale_rows) {
    const Range range{row, row + windows.scale_rows};
    parts.push_back({tensor_idx, expert_idx, 0, 0, {.rows = {range, range}}, false});
  }
  if (windows.units == 0) {  // nothing but scales, which are known when the last window is through
    parts.back().num_units = tensor.units();
    parts.back().ends_expert = true;
    return parts;
  }
  for (std::uint64_t unit = 0; unit < tensor.units(); unit += windows.units) {
    const std::uint64_t count = std::min(windows.units, tensor.units() - unit);
    parts.push_back({tensor_idx, expert_idx, unit, count,
                     bank_->preparer->window_of(tensor_idx, unit, count), windows.scale_rows > 0});
  }
  parts.back().ends_expert = true;
  return parts;
}

Status EngineStream::for_parts(std::size_t tensor_idx, const Range& range, Losses losses,
                               Take take) {
  if (range.size() == 0) return {};
  std::vector<Part> parts;
  for (std::uint64_t expert = range.begin; expert < range.end; ++expert) {
    const std::vector<Part> of_expert = parts_of(tensor_idx, expert);
    parts.insert(parts.end(), of_expert.begin(), of_expert.end());
  }
  for (Part& part : parts) part.counts_losses = losses == Losses::kCount;
  std::vector<WantedExpert> wanted;
  wanted.reserve(parts.size());
  for (const Part& part : parts) {
    wanted.push_back(
        {bank_->experts[part.expert_idx], bank_->tensors()[tensor_idx].needs, part.window});
  }
  return reader_->read_each({binding_.experts[bank_->layer], wanted},
                            [&](std::size_t at_idx, const targets::ExpertSource& source) -> Status {
                              LODE_TRY_STATUS(check_may_go_on(progress_));
                              Status taken = take_part(parts[at_idx], source, take);
                              if (taken) return {};
                              return at(fmt::format("expert {}", wanted[at_idx].expert),
                                        std::move(taken).error());
                            });
}

Status EngineStream::take_part(const Part& part, const targets::ExpertSource& source, Take take) {
  const TensorWindows& windows = bank_->windows[part.tensor_idx];
  const bool gives_scales = windows.scale_rows > 0 && !part.scales_are_known;
  if (!gives_scales) {
    LODE_TRY(const targets::ExpertSource seen, look_at(part, source));
    return take(part, seen);
  }
  const Status known = bank_->preparer->refiner()->refine_scales(
      {part.tensor_idx, part.expert_idx, part.window, source, scalars_, false}, refined_, &pool_);
  if (!known) return with_origin(known.error(), source, origin_of(part));
  if (part.num_units == 0) return {};
  Part made = part;
  made.window = {.rows = {Range{0, 0}, Range{0, 0}}};
  made.scales_are_known = true;
  LODE_TRY(const targets::ExpertSource seen, look_at(made, {}));
  return take(made, seen);
}

// What an earlier stream has kept of experts, and this one has not.
Status EngineStream::keep_again(std::size_t tensor_idx, std::uint64_t first_expert) {
  const auto from = bank_->preparer->kept_from(tensor_idx);
  if (!from) return {};
  return for_parts(*from, {first_expert, first_made_[*from]}, Losses::kLeave,
                   [this](const Part& part, const targets::ExpertSource& source) -> Status {
                     const std::uint64_t unit_bytes = bank_->tensors()[part.tensor_idx].unit_bytes;
                     const std::uint64_t at_once = units_at_once(part.tensor_idx);
                     for (std::uint64_t unit = 0; unit < part.num_units; unit += at_once) {
                       const std::uint64_t count = std::min(at_once, part.num_units - unit);
                       LODE_TRY(const std::span<std::byte> unused,
                                outlet_->room(count * unit_bytes));
                       make_units(part, part.first_unit + unit, source, unused);
                     }
                     return {};
                   });
}

Status EngineStream::make_tensor(std::size_t tensor_idx) {
  const targets::EngineTensor& tensor = bank_->tensors()[tensor_idx];
  if (tensor.expert_bytes == 0) return {};
  // Beyond the tensor's beginning where an earlier stream has made some of it.
  const std::uint64_t first = (at_bytes_ - bank_->offsets_bytes[tensor_idx]) / tensor.expert_bytes;
  const std::uint64_t num_experts = bank_->shape.num_experts;
  first_made_[tensor_idx] = std::min(
      num_experts, ceil_div(at_bytes_ - bank_->offsets_bytes[tensor_idx], tensor.expert_bytes));
  LODE_TRY_STATUS(keep_again(tensor_idx, first));
  if (parts_.start.is_strict && bank_->preparer->may_lose(tensor_idx)) {
    LODE_TRY_STATUS(look_at_tensor(tensor_idx, std::min(first, num_experts)));
  }
  return for_parts(tensor_idx, {first, num_experts}, Losses::kCount,
                   [this](const Part& part, const targets::ExpertSource& source) {
                     return make_part(part, source);
                   });
}

// What the tensor is made of; its numbers were looked at.
Result<targets::ExpertSource> EngineStream::look_at(const Part& part,
                                                    const targets::ExpertSource& source) {
  const targets::Refiner* const refiner = bank_->preparer->refiner();
  if (refiner != nullptr) {
    const auto refined = refiner->refine(
        {part.tensor_idx, part.expert_idx, part.window, source, scalars_, part.scales_are_known},
        refined_, &pool_);
    if (!refined) return with_origin(refined.error(), source, origin_of(part));
    LODE_TRY_STATUS(count_losses(
        part, {part.tensor_idx, part.expert_idx, *refined, scalars_, nullptr, &pool_}));
    return *refined;
  }
  const auto codes = check_block_scales(source, bank_->shape.encoding.scale, &pool_);
  if (!codes) return with_origin(codes.error(), source, origin_of(part));
  const layout::CodeCounts* const counted = *codes ? &**codes : nullptr;
  LODE_TRY_STATUS(
      count_losses(part, {part.tensor_idx, part.expert_idx, source, scalars_, counted, &pool_}));
  return source;
}

// Of an expert that comes in windows all losses are counted before any is refused: what is told
// does not depend on how it comes.
Status EngineStream::count_losses(const Part& part, const targets::LossRequest& request) {
  if (!part.counts_losses || !bank_->preparer->may_lose(part.tensor_idx)) return {};
  bank_->preparer->count_losses(request, expert_losses_);
  if (!part.ends_expert) return {};
  const targets::LossCounts counts = std::exchange(expert_losses_, {});
  if (!counts.any()) return {};
  if (parts_.findings != nullptr) {
    std::vector<LayerLosses>& losses = parts_.findings->losses;
    if (losses.empty() || losses.back().layer != bank_->layer) losses.push_back({bank_->layer, {}});
    losses.back().counts += counts;
  }
  return check_losses(counts, bank_->tensors()[part.tensor_idx].name, parts_.start.is_strict);
}

Status EngineStream::make_part(const Part& part, const targets::ExpertSource& source) {
  const targets::EngineTensor& tensor = bank_->tensors()[part.tensor_idx];
  const std::uint64_t begin =
      bank_->offsets_bytes[part.tensor_idx] + part.expert_idx * tensor.expert_bytes;
  const std::uint64_t at_once = units_at_once(part.tensor_idx);
  // Nothing is left to make of a part that an earlier stream has made.
  std::uint64_t unit = std::max((at_bytes_ - begin) / tensor.unit_bytes, part.first_unit);
  const std::uint64_t end = part.first_unit + part.num_units;
  while (unit < end) {
    const std::uint64_t count = std::min(at_once, end - unit);
    const std::uint64_t bytes = count * tensor.unit_bytes;
    LODE_TRY(const std::span<std::byte> out, outlet_->room(bytes));
    make_units(part, unit, source, out);
    outlet_->add(bytes);
    // The start may lie within a unit.
    const std::uint64_t made_from = begin + unit * tensor.unit_bytes;
    if (made_from < at_bytes_) outlet_->drop_front(at_bytes_ - made_from);
    progress_.finished_bytes.fetch_add(made_from + bytes - at_bytes_, std::memory_order_relaxed);
    at_bytes_ = made_from + bytes;
    unit += count;
  }
  return {};
}

void EngineStream::make_units(const Part& part, std::uint64_t first_unit,
                              const targets::ExpertSource& source, std::span<std::byte> out) {
  const std::uint64_t unit_bytes = bank_->tensors()[part.tensor_idx].unit_bytes;
  const std::uint64_t units = out.size() / unit_bytes;
  const std::uint64_t task_bytes = std::max<std::uint64_t>(
      kLeastTaskBytes, batch_bytes(plan_) / (kTasksOfThread * pool_.num_threads()));
  const std::uint64_t per_task = std::max<std::uint64_t>(task_bytes / unit_bytes, 1);
  pool_.run(ceil_div(units, per_task), [&](std::size_t task, std::size_t) {
    const std::uint64_t first = task * per_task;
    const std::uint64_t count = std::min(per_task, units - first);
    bank_->preparer->make({part.tensor_idx, part.expert_idx, first_unit + first, source, scalars_,
                           kept_of(part.expert_idx)},
                          out.subspan(first * unit_bytes, count * unit_bytes));
  });
}

// Zeros between tensors.
Status EngineStream::fill_to(std::uint64_t offset_bytes) {
  if (offset_bytes <= at_bytes_) return {};
  const std::uint64_t bytes = offset_bytes - at_bytes_;
  LODE_TRY(const std::span<std::byte> out, outlet_->room(bytes));
  std::memset(out.data(), 0, out.size());
  outlet_->add(bytes);
  progress_.finished_bytes.fetch_add(bytes, std::memory_order_relaxed);
  at_bytes_ = offset_bytes;
  return {};
}

}  // namespace

std::uint64_t engine_output_bytes(const EnginePlan& plan) noexcept {
  return 2 * align_up(kChunk + batch_bytes(plan), kChunk);
}

std::string stage_name(const EngineBankPlan& bank) {
  return fmt::format("experts of layer {}", bank.layer);
}

std::vector<memory::StageUse> expected_engine_stages(const EnginePlan& plan,
                                                     const EngineStart& start,
                                                     const TagBytes& held_before) {
  TagBytes held = held_before;
  add_staging(held, plan.slots_bytes());
  add_staging(held, engine_output_bytes(plan));
  if (plan.refined_bytes > 0) add_staging(held, plan.refined_bytes);
  if (plan.kept_numbers > 0) add_staging(held, plan.kept_bytes());
  of(held, Tag::kScratch) += stack_bytes(plan);
  std::vector<memory::StageUse> uses;
  if (looks_back(start)) {
    uses.push_back({std::string(kLookStage), held, held, memory::total(held)});
  }
  for (std::size_t i = start.bank_idx; i < plan.banks.size(); ++i) {
    uses.push_back({stage_name(plan.banks[i]), held, held, memory::total(held)});
  }
  if (!uses.empty()) uses.back().held_bytes = held_before;  // nothing stays
  return uses;
}

Status stream_engine(const EnginePlan& plan, const Binding& binding,
                     const EngineStreamParts& parts) {
  Progress unread;
  EngineStream stream(plan, binding, parts, parts.progress != nullptr ? *parts.progress : unread);
  Status made = stream.run();
  if (made) return made;
  return with_advice(std::move(made).error(), parts.index);
}

}  // namespace lode::loader
