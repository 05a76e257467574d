// Gate and up change places in a layer's weight, and rows are shuffled, against memcpy of as many
// bytes by as many threads in the same run:
//   layout_bench --benchmark_filter=in_place --benchmark_repetitions=5
//
// The tensor has 256 MiB in 16 experts, the bytes of a row of FP4 with K = 7168, so nothing of it
// is in a cache when its turn comes. "of_memcpy" is the median, over the iterations, of memcpy's
// time over the transform's; both read each byte once and write it once.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "lode/layout/half_swap.h"
#include "lode/layout/row_shuffle.h"

namespace lode::layout {
namespace {

constexpr std::uint64_t kExperts = 16;
constexpr std::uint64_t kRows = 4608;
constexpr std::uint64_t kRowBytes = 3584;

memory::Ledger& ledger() {
  static memory::Ledger ledger(std::uint64_t{1} << 40);
  return ledger;
}

tensor::Tensor touched() {
  tensor::Tensor tensor = *tensor::make_tensor(ledger(), memory::Tag::kWeights,
                                               {formats::Encoding{.element = formats::Format::kU8},
                                                tensor::Layout::kRowMajor,
                                                {kExperts, kRows, kRowBytes}},
                                               "benchmark");
  std::ranges::fill(tensor.mutate().bytes(), std::byte{0x5A});
  return tensor;
}

double seconds(const auto& function) {
  const auto begin = std::chrono::steady_clock::now();
  function();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// One piece a thread: large enough for memcpy to write past the caches, its fastest way.
void copy(std::span<const std::byte> from, std::span<std::byte> to, parallel::ThreadPool& pool) {
  const std::uint64_t size = from.size() / pool.num_threads();
  pool.run(pool.num_threads(), [&](std::size_t piece, std::size_t) {
    std::memcpy(to.data() + piece * size, from.data() + piece * size, size);
  });
}

template <class Plan>
void against_memcpy(benchmark::State& state, const Plan& plan, GateUpTensors tensors) {
  parallel::ThreadPool pool(static_cast<std::size_t>(state.range(0)));
  tensor::Tensor other = touched();
  std::vector<double> ratios;
  for (auto _ : state) {
    const double transform = seconds([&] { tensors = run(plan, std::move(tensors), &pool); });
    const double memcpy_seconds =
        seconds([&] { copy(tensors.weight.view().bytes(), other.mutate().bytes(), pool); });
    ratios.push_back(memcpy_seconds / transform);
    state.SetIterationTime(transform);
  }
  std::ranges::sort(ratios);
  state.counters["of_memcpy"] = ratios[ratios.size() / 2];
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(kExperts * kRows * kRowBytes));
}

void half_swap_in_place(benchmark::State& state) {
  GateUpTensors tensors{touched(), {}, {}};
  const HalfSwap plan = *plan_half_swap(tensors);
  against_memcpy(state, plan, std::move(tensors));
}
BENCHMARK(half_swap_in_place)->Arg(1)->Arg(2)->UseManualTime();

void shuffle(benchmark::State& state, const RowOrder& from, const RowOrder& to) {
  GateUpTensors tensors{touched(), {}, {}};
  const RowShuffleInPlace plan = *plan_row_shuffle(tensors, from, to);
  against_memcpy(state, plan, std::move(tensors));
}
void shuffle_by_32_in_place(benchmark::State& state) {
  shuffle(state, {1, kRows}, {1, kRows, {}, RowShuffle::kBy32});
}
BENCHMARK(shuffle_by_32_in_place)->Arg(2)->UseManualTime();
void gate_up_in_turn_in_place(benchmark::State& state) {
  shuffle(state, {2, kRows / 2}, {2, kRows / 2, GateUpOrder::kUpGateInTurn, RowShuffle::kBy32});
}
BENCHMARK(gate_up_in_turn_in_place)->Arg(2)->UseManualTime();

}  // namespace
}  // namespace lode::layout
