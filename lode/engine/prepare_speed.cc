#include "lode/engine/prepare_speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/layout/half_swap.h"
#include "lode/layout/marlin_repack.h"
#include "lode/layout/row_shuffle.h"
#include "lode/memory/buffer.h"
#include "lode/memory/carver.h"
#include "lode/parallel/thread_pool.h"
#include "lode/targets/prepare_layer.h"
#include "lode/tensor/tensor.h"

namespace lode::engine {
namespace {

using Clock = std::chrono::steady_clock;
using targets::ExpertsShape;
using targets::LayerPart;

constexpr std::uint64_t kEvictBytes = 64 * kMiB;  // what pushes the tensors out of the caches
constexpr std::uint64_t kPiecesOfExpert = 8;
constexpr std::uint64_t kTileRows = 64;  // of Marlin's scratch, for each thread
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 42;

std::uint64_t us_of(const auto& work) {
  const Clock::time_point begin = Clock::now();
  work();
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(passed.count()), 1);
}

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  std::ranges::sort(numbers);
  return numbers[numbers.size() / 2];
}

// Numbers that are finite and not negative whatever their format.
void fill(std::span<std::byte> bytes) {
  std::uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24 & 0x3FU);
  }
}

// One piece a thread: large enough for memcpy to write past the caches, its fastest way.
void copy(parallel::ThreadPool& pool, std::span<const std::byte> from, std::span<std::byte> to) {
  const std::uint64_t share = ceil_div<std::uint64_t>(from.size(), pool.num_threads());
  pool.run(pool.num_threads(), [&](std::size_t piece, std::size_t) {
    const std::uint64_t begin = std::min<std::uint64_t>(piece * share, from.size());
    const std::uint64_t count = std::min<std::uint64_t>(share, from.size() - begin);
    if (count > 0) std::memcpy(to.data() + begin, from.data() + begin, count);
  });
}

/// One tensor of one target from one encoding.
struct Job {
  std::string name;
  std::shared_ptr<const targets::Preparer> preparer;
  std::size_t tensor_idx = 0;
  ExpertsShape shape;

  std::uint64_t bytes() const { return preparer->tensors()[tensor_idx].bytes(shape.num_experts); }
  std::uint64_t num_kept() const { return shape.num_experts * preparer->kept_numbers(); }
  std::uint64_t kept_bytes() const {
    return align_up(num_kept() * sizeof(float), memory::Carver::kLineBytes);
  }
  /// Of the largest part of an expert, for all experts: what every part is read from.
  std::uint64_t source_bytes() const {
    std::uint64_t largest = 0;
    for (std::size_t part = 0; part < targets::kNumLayerParts; ++part)
      largest = std::max(largest, targets::part_bytes(shape, static_cast<LayerPart>(part)));
    return largest * shape.num_experts;
  }
};

class Measurement {
 public:
  Measurement(const PrepareSpeedSettings& settings, const std::function<bool()>& go_on)
      : settings_(settings),
        go_on_(go_on),
        ledger_(settings.limit_bytes),
        pool_(settings.num_threads) {}

  /// Errors: kUsage, kOverBudget.
  Status plan();
  Status run();
  PrepareSpeeds take() { return std::move(speeds_); }

 private:
  Status plan_route(const targets::Route& route, const formats::EncodingInfo& encoding);
  bool in_place(unsigned bits) const {
    return !settings_.target && gate_up_bytes(bits) >= kLeastMeasuredBytes;
  }
  std::uint64_t gate_up_bytes(unsigned bits) const {
    return settings_.num_experts * 2 * settings_.intermediate * settings_.hidden * bits / 8;
  }
  std::uint64_t needed_bytes() const;

  /// Rounds of `work` and of memcpy from `from` to `to`; the first round does not count.
  Status rounds(TransformSpeed speed, std::span<const std::byte> from, std::span<std::byte> to,
                const std::function<void()>& work);
  void evict() { std::ranges::fill(evicting_.mutate(), static_cast<std::byte>(++evictions_)); }
  Status run_job(const Job& job);
  void make(const Job& job, std::span<float> kept, std::span<std::byte> out);
  Result<memory::Buffer> buffer(std::uint64_t bytes) {
    return memory::make_buffer(ledger_, memory::Tag::kScratch, bytes, "measurement");
  }
  Result<tensor::Tensor> gate_up_codes(unsigned bits);
  Status swap_halves();
  Status shuffle_rows();
  Status repack(unsigned bits);

  const PrepareSpeedSettings& settings_;
  const std::function<bool()>& go_on_;
  memory::Ledger ledger_;
  parallel::ThreadPool pool_;
  std::vector<Job> jobs_;
  memory::Buffer source_;  // as large as the largest part so far
  memory::Buffer evicting_;
  std::uint8_t evictions_ = 0;
  targets::LayerScalars scalars_;
  PrepareSpeeds speeds_;
};

Status Measurement::rounds(TransformSpeed speed, std::span<const std::byte> from,
                           std::span<std::byte> to, const std::function<void()>& work) {
  for (std::uint32_t round = 0; round <= settings_.rounds; ++round) {
    if (go_on_ && !go_on_()) {
      return Error{.code = Code::kInterrupted, .thing = "measurement", .found = "interrupted"};
    }
    evict();
    const std::uint64_t time_us = us_of(work);
    evict();
    const std::uint64_t copy_us = us_of([&] { copy(pool_, from, to); });
    if (round == 0) continue;
    speed.times_us.push_back(time_us);
    speed.copies_us.push_back(copy_us);
  }
  speeds_.transforms.push_back(std::move(speed));
  return {};
}

ExpertsShape shape_of(const PrepareSpeedSettings& settings, const formats::Encoding& encoding) {
  ExpertsShape shape;
  shape.num_experts = settings.num_experts;
  shape.hidden = settings.hidden;
  shape.intermediate = settings.intermediate;
  shape.input_scales = true;
  shape.encoding = encoding;
  shape.scale_format = encoding.scale;
  return shape;
}

targets::LayerScalars scalars_of(std::uint64_t num_experts) {
  targets::LayerScalars scalars;
  for (std::vector<float>* const each :
       {&scalars.gate_scale, &scalars.up_scale, &scalars.down_scale, &scalars.gate_input_scale,
        &scalars.up_input_scale, &scalars.down_input_scale})
    each->assign(num_experts, 1.0F);
  scalars.largest_gate_up_input_scale = 1.0F;
  scalars.largest_down_input_scale = 1.0F;
  scalars.largest_gate_up_block_scale = 1.0F;
  scalars.largest_down_block_scale = 1.0F;
  return scalars;
}

Status Measurement::plan() {
  for (const targets::Route& each : targets::route_table()) {
    if (settings_.target && each.target != *settings_.target) continue;
    for (const formats::EncodingInfo& encoding : formats::encoding_table()) {
      // A divisor is a multiplier by the time that a preparer sees it.
      if (encoding.encoding.tensor_scale == formats::TensorScale::kDivisor) continue;
      if (each.takes(encoding.encoding)) LODE_TRY_STATUS(plan_route(each, encoding));
    }
  }
  if (jobs_.empty() && !in_place(8)) {
    return Error{.code = Code::kUsage,
                 .thing = "layer to measure with",
                 .wanted = fmt::format("a tensor of {} or more: less is over before the clock sees",
                                       human_bytes(kLeastMeasuredBytes)),
                 .found = count_of(speeds_.num_small, "smaller one"),
                 .hint = "more --experts, or larger --hidden and --intermediate"};
  }
  const std::uint64_t needed = needed_bytes();
  if (needed <= settings_.limit_bytes) return {};
  return Error{
      .code = Code::kOverBudget,
      .thing = "this measurement",
      .wanted = fmt::format("{} bytes ({})", needed, human_bytes(needed)),
      .found =
          fmt::format("{} bytes ({})", settings_.limit_bytes, human_bytes(settings_.limit_bytes)),
      .hint = fmt::format("--memory {} fits; fewer --experts or one --target need less", needed)};
}

// Sizes that the kernels do not take are left away, and counted.
Status Measurement::plan_route(const targets::Route& route, const formats::EncodingInfo& encoding) {
  const ExpertsShape shape = shape_of(settings_, encoding.encoding);
  auto made = route.make(shape, {});
  if (!made) {
    if (made.error().code != Code::kUnsupported) return std::move(made).error();
    ++speeds_.num_refused;
    return {};
  }
  const std::shared_ptr<const targets::Preparer> preparer = *std::move(made);
  for (std::size_t idx = 0; idx < preparer->tensors().size(); ++idx) {
    Job job{fmt::format("{} {} {}", targets::name(route.target), encoding.name,
                        preparer->tensors()[idx].name),
            preparer, idx, shape};
    if (job.bytes() < kLeastMeasuredBytes) {
      ++speeds_.num_small;
    } else {
      jobs_.push_back(std::move(job));
    }
  }
  return {};
}

// What is pushed through the caches stays; beside it a tensor in place and a copy, or the largest
// source, a result and a copy.
std::uint64_t Measurement::needed_bytes() const {
  const auto held = [](std::uint64_t bytes) {
    const memory::BufferCost cost = memory::buffer_cost(bytes);
    return cost.tag_bytes + cost.page_table_bytes;
  };
  std::uint64_t source = 0;
  std::uint64_t result = 0;
  std::uint64_t kept = 0;
  for (const Job& job : jobs_) {
    source = std::max(source, job.source_bytes());
    result = std::max(result, job.bytes());
    kept = std::max(kept, job.kept_bytes());
  }
  std::uint64_t most = jobs_.empty() ? 0 : held(source) + 2 * held(result) + held(kept);
  if (in_place(8)) {
    const std::uint64_t scratch = kTileRows * settings_.hidden * settings_.num_threads;
    most = std::max(most, 2 * held(gate_up_bytes(8)) + held(scratch));
  }
  return held(kEvictBytes) + most;
}

Status Measurement::run() {
  LODE_TRY(evicting_, buffer(kEvictBytes));
  scalars_ = scalars_of(settings_.num_experts);
  if (in_place(4)) {
    LODE_TRY_STATUS(swap_halves());
    LODE_TRY_STATUS(shuffle_rows());
    LODE_TRY_STATUS(repack(4));
  }
  if (in_place(8)) LODE_TRY_STATUS(repack(8));
  for (const Job& job : jobs_) LODE_TRY_STATUS(run_job(job));
  return {};
}

Status Measurement::run_job(const Job& job) {
  if (source_.bytes().size() < job.source_bytes()) {
    source_ = memory::Buffer();
    LODE_TRY(source_, buffer(job.source_bytes()));
    fill(source_.mutate());
  }
  LODE_TRY(memory::Buffer out, buffer(job.bytes()));
  LODE_TRY(memory::Buffer other, buffer(job.bytes()));
  LODE_TRY(memory::Buffer kept, buffer(job.kept_bytes()));
  const auto numbers = memory::Carver(kept.mutate()).take<float>(job.num_kept());
  return rounds({.name = job.name, .bytes = job.bytes(), .times_us = {}, .copies_us = {}},
                out.bytes(), other.mutate(), [&] { make(job, numbers, out.mutate()); });
}

void Measurement::make(const Job& job, std::span<float> kept, std::span<std::byte> out) {
  const std::uint64_t each_kept = job.preparer->kept_numbers();
  const targets::EngineTensor& tensor = job.preparer->tensors()[job.tensor_idx];
  const std::uint64_t share = ceil_div(tensor.units(), kPiecesOfExpert);
  const std::uint64_t pieces = ceil_div(tensor.units(), share);
  pool_.run(job.shape.num_experts * pieces, [&](std::size_t task, std::size_t) {
    const std::uint64_t expert = task / pieces;
    const std::uint64_t first = task % pieces * share;
    const std::uint64_t count = std::min(share, tensor.units() - first);
    targets::PartBytes bytes;
    for (std::size_t part = 0; part < bytes.size(); ++part) {
      const std::uint64_t each = targets::part_bytes(job.shape, static_cast<LayerPart>(part));
      bytes[part] = source_.bytes().subspan(expert * each, each);
    }
    const targets::ExpertSource source = targets::source_of(job.shape, bytes);
    job.preparer->make({job.tensor_idx, expert, first, source, scalars_,
                        kept.subspan(expert * each_kept, each_kept)},
                       out.subspan(expert * tensor.expert_bytes + first * tensor.unit_bytes,
                                   count * tensor.unit_bytes));
  });
}

Result<tensor::Tensor> Measurement::gate_up_codes(unsigned bits) {
  const formats::Format format = bits == 4 ? formats::Format::kE2m1 : formats::Format::kE4m3;
  LODE_TRY(
      tensor::Tensor codes,
      tensor::make_tensor(ledger_, memory::Tag::kScratch,
                          {formats::Encoding{.element = format},
                           tensor::Layout::kRowMajor,
                           {settings_.num_experts, 2 * settings_.intermediate, settings_.hidden}},
                          "measurement"));
  fill(codes.mutate().bytes());
  return codes;
}

Status Measurement::swap_halves() {
  layout::GateUpTensors tensors;
  LODE_TRY(tensors.weight, gate_up_codes(4));
  const std::uint64_t bytes = tensors.weight.view().bytes().size();
  LODE_TRY(memory::Buffer other, buffer(bytes));
  auto plan = layout::plan_half_swap(tensors);
  if (!plan) return {};
  const std::span<const std::byte> place = tensors.weight.view().bytes();
  return rounds({.name = "in place: halves swapped, FP4 w13",
                 .bytes = bytes,
                 .times_us = {},
                 .copies_us = {}},
                place, other.mutate(),
                [&] { tensors = layout::run(*plan, std::move(tensors), &pool_); });
}

Status Measurement::shuffle_rows() {
  layout::GateUpTensors tensors;
  LODE_TRY(tensors.weight, gate_up_codes(4));
  const std::uint64_t bytes = tensors.weight.view().bytes().size();
  LODE_TRY(memory::Buffer other, buffer(bytes));
  const layout::RowOrder from{2, settings_.intermediate};
  auto plan = layout::plan_row_shuffle(
      tensors, from,
      {2, settings_.intermediate, layout::GateUpOrder::kUpGateInTurn, layout::RowShuffle::kBy32});
  if (!plan) return {};
  const std::span<const std::byte> place = tensors.weight.view().bytes();
  return rounds({.name = "in place: rows shuffled for TRT-LLM, FP4 w13",
                 .bytes = bytes,
                 .scratch_bytes = settings_.hidden / 2,
                 .times_us = {},
                 .copies_us = {}},
                place, other.mutate(),
                [&] { tensors = layout::run(*plan, std::move(tensors), &pool_); });
}

Status Measurement::repack(unsigned bits) {
  layout::MarlinTensors tensors;
  LODE_TRY(tensors.weight, gate_up_codes(bits));
  const std::uint64_t bytes = tensors.weight.view().bytes().size();
  LODE_TRY(memory::Buffer other, buffer(bytes));
  auto plan = layout::plan_marlin_repack(tensors, {});
  if (!plan) return {};
  const std::uint64_t scratch_bytes = plan->scratch_bytes * pool_.num_threads();
  LODE_TRY(memory::Buffer scratch, buffer(scratch_bytes));
  const std::span<const std::byte> place = tensors.weight.view().bytes();
  return rounds({.name = fmt::format("in place: Marlin tiles, {}-bit w13", bits),
                 .bytes = bytes,
                 .scratch_bytes = scratch_bytes,
                 .times_us = {},
                 .copies_us = {}},
                place, other.mutate(), [&] {
                  tensors = layout::run(*plan, std::move(tensors), scratch.mutate(), &pool_);
                });
}

Status check(const PrepareSpeedSettings& settings) {
  std::optional<std::uint64_t> bytes = std::uint64_t{2} * sizeof(float);
  for (const std::uint64_t extent :
       {settings.num_experts, settings.hidden, settings.intermediate, std::uint64_t{2}})
    bytes = bytes ? checked_mul(*bytes, extent) : std::nullopt;
  if (bytes && *bytes > 0 && *bytes < kMostBytes && settings.rounds > 0) return {};
  return Error{.code = Code::kUsage,
               .thing = "layer to measure with",
               .wanted = "experts, sizes and rounds from 1 up, and a layer that memory holds",
               .found = fmt::format("{} experts of {} by {}, {} rounds", settings.num_experts,
                                    settings.hidden, settings.intermediate, settings.rounds)};
}

}  // namespace

double TransformSpeed::bytes_per_second() const {
  std::vector<double> speeds;
  for (const std::uint64_t time : times_us)
    speeds.push_back(static_cast<double>(bytes) * 1e6 / static_cast<double>(time));
  return median(std::move(speeds));
}

double TransformSpeed::of_memcpy() const {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < times_us.size(); ++round)
    ratios.push_back(static_cast<double>(copies_us[round]) / static_cast<double>(times_us[round]));
  return median(std::move(ratios));
}

Result<PrepareSpeeds> measure_prepare(const PrepareSpeedSettings& settings,
                                      const std::function<bool()>& go_on) {
  LODE_TRY_STATUS(check(settings));
  Measurement measurement(settings, go_on);
  LODE_TRY_STATUS(measurement.plan());
  LODE_TRY_STATUS(measurement.run());
  return measurement.take();
}

}  // namespace lode::engine
