#include "lode/targets/online_refiner.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/kernels/kernel_table.h"

namespace lode::targets {
namespace {

using formats::OnlineRows;
using formats::OnlineScheme;
using layout::MatrixRows;

constexpr std::uint64_t kStripRows = OnlineRefiner::kStripRows;
constexpr std::uint64_t kAlignment = 64;

QuantisedMatrix matrix_of(OnlineScheme scheme, std::uint64_t num_halves, std::uint64_t rows,
                          std::uint64_t k) {
  const formats::Encoding& encoding = formats::info(scheme).encoding;
  const bool one_scale = scheme == OnlineScheme::kTensorFp8;
  return {num_halves, rows, k, num_halves * rows * formats::row_bytes(encoding, k),
          one_scale ? 0 : num_halves * formats::scales_bytes(encoding, rows, k)};
}

/// The rows of a half that are in memory.
OnlineRows rows_of(const MatrixRows& rows, std::uint32_t half, formats::Format format) {
  const Range here = rows.rows_here(half);
  const layout::RowRun& run = rows.halves[half];
  return {run.first, run.step_bytes, here.size(), rows.bytes_here().size() / 2, format};
}

/// Rows [first, first + count) of these; none if they end before.
OnlineRows part_of(const OnlineRows& rows, std::uint64_t first, std::uint64_t count) {
  OnlineRows part = rows;
  part.rows = rows.rows > first ? std::min(count, rows.rows - first) : 0;
  if (part.rows > 0) part.first += first * rows.step_bytes;
  return part;
}

/// A strip of a half: a task.
struct Strip {
  std::uint32_t half = 0;
  std::uint64_t first = 0;  // from the first row that is in memory, or is wanted
};

/// Strips of as many rows as each half has, on all threads.
void run_strips(const std::array<std::uint64_t, 2>& half_rows, parallel::ThreadPool* pool,
                parallel::FunctionRef<void(const Strip& strip)> body) {
  const std::uint64_t of_first = ceil_div(half_rows[0], kStripRows);
  const std::uint64_t num_strips = of_first + ceil_div(half_rows[1], kStripRows);
  const auto run = [&](std::size_t task, std::size_t) {
    const std::uint32_t half = task < of_first ? 0 : 1;
    body({half, (task - half * of_first) * kStripRows});
  };
  if (pool != nullptr) return pool->run(num_strips, run);
  for (std::size_t task = 0; task < num_strips; ++task) run(task, 0);
}

/// The largest magnitude of all halves, of what is in memory.
float amax_of(const MatrixRows& rows, formats::Format format, parallel::ThreadPool* pool) {
  // Magnitudes order like their bits.
  std::atomic<std::uint32_t> largest = 0;
  const std::array<std::uint64_t, 2> half_rows{rows.rows_here(0).size(),
                                               rows.num_halves == 2 ? rows.rows_here(1).size() : 0};
  run_strips(half_rows, pool, [&](const Strip& strip) {
    const OnlineRows part = part_of(rows_of(rows, strip.half, format), strip.first, kStripRows);
    const auto found = std::bit_cast<std::uint32_t>(formats::largest_magnitude(part));
    std::uint32_t known = largest.load();
    while (found > known && !largest.compare_exchange_weak(known, found)) {
    }
  });
  return std::bit_cast<float>(largest.load());
}

Error not_finite(std::string_view matrices) {
  return Error{.code = Code::kInvalidSource,
               .thing = fmt::format("weights of {}", matrices),
               .wanted = "finite numbers",
               .found = "an infinity or NaN"};
}

}  // namespace

OnlineRefiner::OnlineRefiner(OnlineScheme scheme, const ExpertsShape& source,
                             const ExpertsShape& quantised, const Preparer& inner)
    : scheme_(scheme),
      source_(source),
      gate_up_(matrix_of(scheme, source.num_halves(), quantised.intermediate, quantised.hidden)),
      down_(matrix_of(scheme, 1, quantised.hidden, quantised.intermediate)),
      inner_(inner) {}

// What is quantised together comes together.
Needs OnlineRefiner::reads_of(std::size_t tensor_idx) const noexcept {
  Needs needs = inner_.tensors()[tensor_idx].needs;
  needs.gate_up = needs.gate_up || needs.gate_up_scales;
  needs.down = needs.down || needs.down_scales;
  needs.gate_up_scales = false;
  needs.down_scales = false;
  return needs;
}

OnlineRefiner::Job OnlineRefiner::job_of(std::size_t tensor_idx, bool down,
                                         const SourceWindow& window) const noexcept {
  const Needs& wants = inner_.tensors()[tensor_idx].needs;
  const QuantisedMatrix& half = down ? down_ : gate_up_;
  Job job{.half = half,
          .rows = {window.rows[0].below(half.rows),
                   half.num_halves == 2 ? window.rows[1].below(half.rows) : Range{0, 0}},
          .k = window.k.below(half.k),
          .wants_codes = down ? wants.down : wants.gate_up,
          .wants_scales = down ? wants.down_scales : wants.gate_up_scales};
  job.keeps_scales = job.wants_scales || (has_scale_of_row() && job.is_part_of_rows());
  return job;
}

std::uint64_t OnlineRefiner::codes_bytes(const Job& job) const noexcept {
  if (!job.wants_codes) return 0;
  return (job.rows[0].size() + job.rows[1].size()) *
         formats::row_bytes(formats::info(scheme_).encoding, job.k.size());
}

std::uint64_t OnlineRefiner::window_scales_bytes(const Job& job) const noexcept {
  if (job.half.scales_bytes == 0) return 0;
  std::uint64_t bytes = 0;
  for (const Range& rows : job.rows) {
    bytes += formats::scales_bytes(formats::info(scheme_).encoding, rows.size(), job.k.size());
  }
  return bytes;
}

// Those of parts of rows lie behind the ones that are kept: their rows are shorter.
std::uint64_t OnlineRefiner::scales_bytes(const Job& job) const noexcept {
  if (!job.keeps_scales) return window_scales_bytes(job);
  const bool apart = job.is_part_of_rows() && !has_scale_of_row();
  return align_up(job.half.scales_bytes, kAlignment) + (apart ? window_scales_bytes(job) : 0);
}

std::uint64_t OnlineRefiner::deal_out(Job& job, std::span<std::byte> memory) const noexcept {
  const std::uint64_t scales = align_up(scales_bytes(job), kAlignment);
  const std::uint64_t codes = codes_bytes(job);
  if (!memory.empty()) {
    job.scales = memory.first(scales);
    job.codes = memory.subspan(scales, codes);
  }
  return scales + align_up(codes, kAlignment);
}

std::uint64_t OnlineRefiner::bytes(std::size_t tensor_idx,
                                   const SourceWindow& window) const noexcept {
  const Needs reads = reads_of(tensor_idx);
  std::uint64_t bytes = 0;
  for (const bool down : {false, true}) {
    if (!(down ? reads.down : reads.gate_up)) continue;
    Job job = job_of(tensor_idx, down, window);
    bytes += deal_out(job, {});
  }
  return bytes;
}

bool OnlineRefiner::wants_scales_first(std::size_t tensor_idx,
                                       const SourceWindow& window) const noexcept {
  const Needs reads = reads_of(tensor_idx);
  for (const bool down : {false, true}) {
    if (!(down ? reads.down : reads.gate_up)) continue;
    const Job job = job_of(tensor_idx, down, window);
    if (job.keeps_scales && (!job.wants_codes || job.is_part_of_rows())) return true;
  }
  return false;
}

/// Strips of rows, each by itself.
bool OnlineRefiner::quantise(const Job& job, const MatrixRows& source,
                             parallel::ThreadPool* pool) const {
  const formats::Encoding& encoding = formats::info(scheme_).encoding;
  const std::uint64_t row_codes =
      job.codes.empty() ? 0 : formats::row_bytes(encoding, job.k.size());
  const bool has_scales = job.half.scales_bytes > 0;
  const bool in_place = job.keeps_scales && !job.is_part_of_rows();
  const bool encodes_only = job.scales_are_known && has_scale_of_row() && job.is_part_of_rows();
  // Of a half, before row `row` of the window.
  const auto scales_before = [&](std::uint32_t half, std::uint64_t row) -> std::uint64_t {
    if (in_place || encodes_only) {
      return half * job.half.scales_bytes / job.half.num_halves +
             formats::scales_bytes(encoding, job.rows[half].begin + row, job.half.k);
    }
    const std::uint64_t kept = job.keeps_scales ? align_up(job.half.scales_bytes, kAlignment) : 0;
    const std::uint64_t of_first =
        half == 0 ? 0 : formats::scales_bytes(encoding, job.rows[0].size(), job.k.size());
    return kept + of_first + formats::scales_bytes(encoding, row, job.k.size());
  };
  std::atomic<bool> finite = true;
  const kernels::KernelTable& table = kernels::active_or_plainest();
  run_strips({job.rows[0].size(), job.rows[1].size()}, pool, [&](const Strip& strip) {
    const std::uint64_t rows = std::min(kStripRows, job.rows[strip.half].size() - strip.first);
    const std::uint64_t first_row = strip.half * job.rows[0].size() + strip.first;
    const formats::OnlineOutput out{
        .rows = rows,
        .k = job.k.size(),
        .codes = job.codes.subspan(first_row * row_codes, rows * row_codes),
        .scales = has_scales ? job.scales.subspan(scales_before(strip.half, strip.first))
                             : std::span<std::byte>{}};
    const OnlineRows from = part_of(rows_of(source, strip.half, format()), strip.first, rows);
    if (encodes_only) return encode_scaled_rows(scheme_, from, out, table.encode_piece);
    if (!quantise_online(scheme_, from, job.amax, out, table.encode_piece)) finite = false;
  });
  return finite;
}

Status OnlineRefiner::measure(std::uint64_t expert_idx, const ExpertSource& source,
                              LayerScalars& scalars, parallel::ThreadPool* pool) const {
  const auto add = [&](std::vector<float>& numbers, const MatrixRows& rows) {
    numbers.resize(source_.num_experts, 0.0F);
    const float amax = amax_of(rows, format(), pool);
    numbers[expert_idx] = std::max(numbers[expert_idx], amax);
    return std::isfinite(amax);
  };
  if (!add(scalars.gate_up_amax, source.gate_up)) return not_finite("gate and up");
  if (!add(scalars.down_amax, source.down)) return not_finite("down");
  return {};
}

void OnlineRefiner::end_measure(LayerScalars& scalars) const {
  const auto scales_of = [&](const std::vector<float>& amaxes) {
    std::vector<float> scales;
    scales.reserve(amaxes.size());
    for (const float amax : amaxes) scales.push_back(formats::online_matrix_scale(scheme_, amax));
    return scales;
  };
  scalars.one_scale = true;
  scalars.gate_scale = scales_of(scalars.gate_up_amax);
  if (source_.gated) scalars.up_scale = scalars.gate_scale;
  scalars.down_scale = scales_of(scalars.down_amax);
  if (scheme_ != OnlineScheme::kNv4) return;
  // NVFP4 kernels want scales of activations; the engine sets them to 1.
  const std::vector<float> ones(source_.num_experts, 1.0F);
  scalars.gate_input_scale = ones;
  if (source_.gated) scalars.up_input_scale = ones;
  scalars.down_input_scale = ones;
  scalars.largest_gate_up_input_scale = 1.0F;
  scalars.largest_down_input_scale = 1.0F;
  const auto largest_of = [](const std::vector<float>& amaxes) {
    float largest = 0.0F;
    for (const float amax : amaxes) {
      largest = std::max(largest, formats::online_largest_block_scale(amax));
    }
    return largest;
  };
  scalars.largest_gate_up_block_scale = largest_of(scalars.gate_up_amax);
  scalars.largest_down_block_scale = largest_of(scalars.down_amax);
}

MatrixRows OnlineRefiner::codes_of(const Job& job) const noexcept {
  if (job.codes.empty()) return {};
  const formats::Encoding& encoding = formats::info(scheme_).encoding;
  const std::uint64_t step = formats::row_bytes(encoding, job.k.size());
  MatrixRows codes;
  codes.num_halves = static_cast<std::uint32_t>(job.half.num_halves);
  codes.half_rows = job.half.rows;
  codes.row_bytes = job.half.row_bytes();
  codes.bytes = {formats::row_bytes(encoding, job.k.begin),
                 formats::row_bytes(encoding, job.k.end)};
  codes.halves[0] = {job.codes.data(), step, job.rows[0]};
  codes.halves[1] = {job.codes.data() + job.rows[0].size() * step, step, job.rows[1]};
  return codes;
}

MatrixRows OnlineRefiner::scales_of(const Job& job) const noexcept {
  if (!job.wants_scales) return {};
  const formats::Encoding& encoding = formats::info(scheme_).encoding;
  return layout::rows_of(job.scales.first(job.half.scales_bytes),
                         static_cast<std::uint32_t>(job.half.num_halves),
                         formats::scales_bytes(encoding, 1, job.half.k));
}

/// Puts a job's parts into the memory and quantises what the request has of its matrix; the bytes
/// that it took.
Result<std::uint64_t> OnlineRefiner::run(Job& job, const RefineRequest& request, bool down,
                                         std::span<std::byte> memory,
                                         parallel::ThreadPool* pool) const {
  const LayerScalars& scalars = request.scalars;
  if (wants_measure()) {
    job.amax = (down ? scalars.down_amax : scalars.gate_up_amax)[request.expert_idx];
  }
  job.scales_are_known = request.scales_are_known;
  const std::uint64_t used = deal_out(job, memory);
  const MatrixRows& source = down ? request.source.down : request.source.gate_up;
  if (!quantise(job, source, pool)) return not_finite(down ? "down" : "gate and up");
  return used;
}

Status OnlineRefiner::refine_scales(const RefineRequest& request, std::span<std::byte> memory,
                                    parallel::ThreadPool* pool) const {
  const bool down = reads_of(request.tensor_idx).down;
  Job job = job_of(request.tensor_idx, down, request.window);
  job.wants_codes = false;
  job.keeps_scales = true;
  const auto used = run(job, request, down, memory, pool);
  return used ? Status() : Status(used.error());
}

Result<ExpertSource> OnlineRefiner::refine(const RefineRequest& request,
                                           std::span<std::byte> memory,
                                           parallel::ThreadPool* pool) const {
  const Needs reads = reads_of(request.tensor_idx);
  ExpertSource refined = request.source;
  for (const bool down : {false, true}) {
    if (!(down ? reads.down : reads.gate_up)) continue;
    Job job = job_of(request.tensor_idx, down, request.window);
    LODE_TRY(const std::uint64_t used, run(job, request, down, memory, pool));
    memory = memory.subspan(used);
    (down ? refined.down : refined.gate_up) = codes_of(job);
    (down ? refined.down_scales : refined.gate_up_scales) = scales_of(job);
  }
  return refined;
}

}  // namespace lode::targets
