// What preparing does to rows of experts, out of place, one thread, against memcpy of as many bytes
// in the same run:
//   layout_bench --benchmark_filter=out_of_place --benchmark_repetitions=5
//
// An iteration makes one expert of w13, [4096, 3584 bytes] of FP4 or its block scales, out of the
// next of several that together are larger than any cache. "of_memcpy" is the median over the
// iterations; both read each byte once and write it once.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <vector>

#include "lode/layout/block_major.h"
#include "lode/layout/block_scales.h"
#include "lode/layout/sm90_mixed.h"

namespace lode::layout {
namespace {

constexpr std::uint64_t kHalfRows = 2048;
constexpr std::uint64_t kTotalBytes = 192 * kMiB;

// The thread's own time: what others do on the machine counts less.
double seconds(const auto& function) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double begin = now();
  function();
  benchmark::ClobberMemory();
  return now() - begin;
}

using Make = void (*)(const OrderedRows& from, std::span<std::byte> out) noexcept;

void against_memcpy(benchmark::State& state, std::uint64_t row_bytes, const RowOrder& order,
                    Make make) {
  const std::uint64_t expert_bytes = order.rows() * row_bytes;
  const std::uint64_t num_experts = kTotalBytes / expert_bytes;
  const std::vector<std::byte> source(kTotalBytes, std::byte{0x38});
  std::vector<std::byte> out(kTotalBytes, std::byte{1});
  std::vector<double> ratios;
  std::uint64_t expert = 0;
  for (auto _ : state) {
    const auto from = std::span(source).subspan(expert * expert_bytes, expert_bytes);
    const auto to = std::span(out).subspan(expert * expert_bytes, expert_bytes);
    const double made = seconds([&] {
      make({rows_of(from, order.num_halves, row_bytes), order, row_bytes}, to);
    });
    const auto next = (expert + num_experts / 2) % num_experts * expert_bytes;
    const double copied =
        seconds([&] { std::memcpy(out.data() + next, source.data() + next, expert_bytes); });
    ratios.push_back(copied / made);
    state.SetIterationTime(made);
    expert = (expert + 1) % num_experts;
  }
  std::ranges::sort(ratios);
  state.counters["of_memcpy"] = ratios[ratios.size() / 2];
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(expert_bytes));
}

constexpr RowOrder kSwapped{2, kHalfRows, GateUpOrder::kUpThenGate, RowShuffle::kNone};
constexpr RowOrder kTrtllm{2, kHalfRows, GateUpOrder::kUpGateInTurn, RowShuffle::kBy32};

void rows_out_of_place(benchmark::State& state) {
  against_memcpy(state, 3584, kTrtllm,
                 [](const OrderedRows& from, std::span<std::byte> out) noexcept {
                   ordered_rows_into(from, 0, out);
                 });
}
void block_major_out_of_place(benchmark::State& state) {
  against_memcpy(state, 3584, kTrtllm,
                 [](const OrderedRows& from, std::span<std::byte> out) noexcept {
                   block_major_into(from, 0, out);
                 });
}
template <Sm90Version kVersion>
void sm90_out_of_place(benchmark::State& state) {
  against_memcpy(state, 3584, kSwapped,
                 [](const OrderedRows& from, std::span<std::byte> out) noexcept {
                   sm90_codes_into(from, kVersion, 0, out);
                 });
}
void scales_128x4_out_of_place(benchmark::State& state) {
  against_memcpy(state, 448, kTrtllm,
                 [](const OrderedRows& from, std::span<std::byte> out) noexcept {
                   block_scales_into(from, kScales128x4, 0, out);
                 });
}
BENCHMARK(rows_out_of_place)->UseManualTime();
BENCHMARK(block_major_out_of_place)->UseManualTime();
BENCHMARK_TEMPLATE(sm90_out_of_place, Sm90Version::kFlashinfer07)->UseManualTime();
BENCHMARK_TEMPLATE(sm90_out_of_place, Sm90Version::kFlashinfer0616)->UseManualTime();
BENCHMARK(scales_128x4_out_of_place)->UseManualTime();

}  // namespace
}  // namespace lode::layout
