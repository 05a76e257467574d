// Marlin weights and scales of one expert against memcpy of the same bytes by the same threads:
//   layout_bench --benchmark_filter=marlin --benchmark_repetitions=5
//
// An iteration makes one expert and copies as many bytes in turn; experts go round in 512 MiB of
// touched huge pages on either side, so that both come from and go to DRAM. "of_memcpy" is the
// ratio of the two; what was made is compared with the law's before it is timed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/kernels/kernel_table.h"
#include "lode/layout/marlin_repack.h"
#include "lode/layout/marlin_scales.h"
#include "lode/layout/marlin_weights.h"
#include "lode/memory/buffer.h"
#include "lode/parallel/thread_pool.h"

namespace lode::layout {
namespace {

constexpr std::uint64_t kArenaBytes = 512 * kMiB;

class Arena {
 public:
  Arena() : buffer_(*memory::make_buffer(ledger_, memory::Tag::kScratch, kArenaBytes, "bench")) {
    std::uint32_t state = 1;
    for (std::byte& byte : buffer_.mutate()) {
      state = state * 1664525U + 1013904223U;
      byte = static_cast<std::byte>(state >> 24);
    }
  }
  std::span<std::byte> next(std::uint64_t bytes) {
    if (at_ + bytes > kArenaBytes) at_ = 0;
    const auto piece = buffer_.mutate().subspan(at_, bytes);
    at_ += align_up(bytes, memory::kHugePageBytes);
    return piece;
  }

 private:
  memory::Ledger ledger_{std::uint64_t{1} << 40};
  memory::Buffer buffer_;
  std::uint64_t at_ = 0;
};
Arena& sources() {
  static Arena arena;
  return arena;
}
Arena& places() {
  static Arena arena;
  return arena;
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Units of `unit_bytes` dealt out to all threads in equal shares.
template <class Make>
void deal_out(parallel::ThreadPool& pool, std::uint64_t unit_bytes, std::span<std::byte> out,
              Make make) {
  const std::uint64_t units = out.size() / unit_bytes;
  const std::uint64_t share = ceil_div<std::uint64_t>(units, pool.num_threads());
  pool.run(pool.num_threads(), [&](std::size_t task, std::size_t) {
    const std::uint64_t begin = std::min(units, task * share);
    const std::uint64_t end = std::min(units, begin + share);
    make(begin, out.subspan(begin * unit_bytes, (end - begin) * unit_bytes));
  });
}

template <class Make>
void measure(benchmark::State& state, std::uint64_t bytes, std::uint64_t unit_bytes, Make make) {
  parallel::ThreadPool pool(static_cast<std::size_t>(state.range(0)));
  double own = 0.0, copying = 0.0;
  for (auto _ : state) {
    const auto from = sources().next(bytes), to = places().next(bytes);
    const double begin = seconds();
    deal_out(pool, unit_bytes, to,
             [&](std::uint64_t first, std::span<std::byte> out) { make(from, first, out); });
    const double middle = seconds();
    const auto other = sources().next(bytes), place = places().next(bytes);
    const double again = seconds();
    deal_out(pool, unit_bytes, place, [&](std::uint64_t first, std::span<std::byte> out) {
      std::memcpy(out.data(), other.data() + first * unit_bytes, out.size());
    });
    copying += seconds() - again;
    own += middle - begin;
    state.SetIterationTime(middle - begin);
  }
  const auto total = static_cast<double>(bytes) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = total * 1e-9 / own;
  state.counters["memcpy_GB/s"] = total * 1e-9 / copying;
  state.counters["of_memcpy"] = copying / own;
}

// Gate and up of an expert of DeepSeek-V3's sizes.
constexpr std::uint64_t kRows = 4096, kWidth = 7168;
constexpr RowOrder kOrder{2, kRows / 2, GateUpOrder::kGateThenUp, RowShuffle::kNone};

bool equals_law(const MarlinLayout& layout, std::span<const std::byte> from) {
  const std::uint64_t row_bytes = kWidth * layout.shape().bits / 8;
  std::vector<std::byte> got(layout.unit_bytes()), want(layout.unit_bytes());
  marlin_from_rows(layout, kOrder, rows_of(from, 2, row_bytes), 3, got);
  const std::string_view name = kernels::active_or_plainest().isa;
  if (!kernels::force("scalar")) return false;
  marlin_from_rows(layout, kOrder, rows_of(from, 2, row_bytes), 3, want);
  return static_cast<bool>(kernels::force(name)) && got == want;
}

void marlin_weights(benchmark::State& state, const kernels::MarlinShape& shape) {
  const MarlinLayout layout = *MarlinLayout::make(kRows, kWidth, shape);
  const std::uint64_t row_bytes = kWidth * shape.bits / 8;
  if (!equals_law(layout, sources().next(layout.total_bytes()))) {
    state.SkipWithError("wrong bytes are not timed");
    return;
  }
  measure(state, layout.total_bytes(), layout.unit_bytes(),
          [&](std::span<const std::byte> from, std::uint64_t first, std::span<std::byte> out) {
            marlin_from_rows(layout, kOrder, rows_of(from, 2, row_bytes), first, out);
          });
}
BENCHMARK_CAPTURE(marlin_weights, bits4, kernels::MarlinShape{4, false})
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime();
BENCHMARK_CAPTURE(marlin_weights, bits8, kernels::MarlinShape{8, false})
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime();
BENCHMARK_CAPTURE(marlin_weights, bits4_narrow, kernels::MarlinShape{4, true})
    ->Arg(2)
    ->UseManualTime();
BENCHMARK_CAPTURE(marlin_weights, bits8_narrow, kernels::MarlinShape{8, true})
    ->Arg(2)
    ->UseManualTime();

// Where they lie: what is made is repacked again the next time, which takes as long.
void marlin_in_place(benchmark::State& state, const kernels::MarlinShape& shape) {
  constexpr std::uint64_t kExperts = 8;
  memory::Ledger ledger{std::uint64_t{1} << 40};
  const formats::Format format = shape.bits == 4 ? formats::Format::kE2m1 : formats::Format::kE4m3;
  MarlinTensors tensors;
  tensors.weight = *tensor::make_tensor(
      ledger, memory::Tag::kWeights,
      {formats::Encoding{.element = format}, tensor::Layout::kRowMajor, {kExperts, kRows, kWidth}},
      "bench");
  const MarlinRepack plan = *plan_marlin_repack(tensors, {shape.narrow_activations, {}, {}});
  const std::span<std::byte> bytes = tensors.weight.mutate().bytes();
  std::memset(bytes.data(), 1, bytes.size());
  parallel::ThreadPool pool(static_cast<std::size_t>(state.range(0)));
  std::vector<std::byte> scratch(plan.scratch_bytes * pool.num_threads());
  double own = 0.0, copying = 0.0;
  for (auto _ : state) {
    const double begin = seconds();
    tensors = run(plan, std::move(tensors), scratch, &pool);
    const double middle = seconds();
    own += middle - begin;
    state.SetIterationTime(middle - begin);
    const auto place = places().next(bytes.size());
    const double again = seconds();
    deal_out(
        pool, plan.weights.unit_bytes(), place, [&](std::uint64_t first, std::span<std::byte> out) {
          std::memcpy(out.data(), bytes.data() + first * plan.weights.unit_bytes(), out.size());
        });
    copying += seconds() - again;
  }
  const double total = static_cast<double>(bytes.size()) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = total * 1e-9 / own;
  state.counters["memcpy_GB/s"] = total * 1e-9 / copying;
  state.counters["of_memcpy"] = copying / own;
}
BENCHMARK_CAPTURE(marlin_in_place, bits4, kernels::MarlinShape{4, false})
    ->Arg(1)
    ->Arg(2)
    ->UseManualTime();
BENCHMARK_CAPTURE(marlin_in_place, bits8, kernels::MarlinShape{8, false})->Arg(2)->UseManualTime();

void marlin_scales(benchmark::State& state) {
  const std::uint64_t groups = kWidth / 16;
  MarlinScaleBytes scales{{MarlinScaleMap::kGrouped, true}, kOrder, {}, {}};
  scales.tables.fill(nvfp4_marlin_bytes(1.0F, formats::Format::kBf16));
  measure(state, groups * kRows, kRows,
          [&](std::span<const std::byte> from, std::uint64_t first, std::span<std::byte> out) {
            MarlinScaleBytes here = scales;
            here.source = rows_of(from, 2, groups);
            marlin_scale_bytes(here, first, out);
          });
}
BENCHMARK(marlin_scales)->Arg(1)->Arg(2)->UseManualTime();

}  // namespace
}  // namespace lode::layout
