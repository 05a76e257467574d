// Panel kernels on weights that lie in DRAM, against a plain reading loop over the same memory:
//   kernels_bench --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
//
// An iteration is one task: 16 panels of k = 2048 (MXFP4: 272 KiB), as a model's layer would hand
// them out; threads take tasks in turn. "GB/s" counts bytes of panels, each moved once a task
// however many tokens use it; "GOP/s" counts a multiply and an add each.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <string>

#include "lode/kernels/test_panel_dot.h"

namespace lode::kernels {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{512} << 20;
constexpr std::size_t kLength = 2048, kPanelsPerTask = 16;

/// 512 MiB in 2 MiB pages, filled so that every kind finds ordinary numbers in them.
const std::byte* arena() {
  static const std::byte* bytes = [] {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    void* memory = mmap(nullptr, kArenaBytes + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return static_cast<std::byte*>(nullptr);
    auto* begin = static_cast<std::byte*>(memory);
    begin += (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
    madvise(begin, kArenaBytes, MADV_HUGEPAGE);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < kArenaBytes; ++i) {
      state = state * 1664525u + 1013904223u;
      begin[i] = static_cast<std::byte>(0x30u | state >> 28);
    }
    return begin;
  }();
  return bytes;
}

/// Tasks are taken in turn by whoever is free.
const std::byte* next_task(std::size_t task_bytes) {
  static std::atomic<std::size_t> next{0};
  const std::size_t tasks = kArenaBytes / task_bytes;
  return arena() + next.fetch_add(1, std::memory_order_relaxed) % tasks * task_bytes;
}

void count(benchmark::State& state, std::size_t bytes, double operations) {
  const auto iterations = static_cast<double>(state.iterations());
  const auto rate = benchmark::Counter::kIsRate;
  state.counters["GB/s"] = {iterations * static_cast<double>(bytes) * 1e-9, rate};
  if (operations > 0) state.counters["GOP/s"] = {iterations * operations * 1e-9, rate};
}

void read_task(benchmark::State& state) {
  constexpr std::size_t kTaskBytes = std::size_t{256} << 10;
  if (arena() == nullptr) return state.SkipWithError("no memory");
  for (auto _ : state) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(next_task(kTaskBytes));
    std::array<std::uint64_t, 8> sum{};
    for (std::size_t i = 0; i < kTaskBytes / 8; i += 8) {
      for (std::size_t lane = 0; lane < 8; ++lane) sum[lane] += words[i + lane];
    }
    benchmark::DoNotOptimize(sum);
  }
  count(state, kTaskBytes, 0);
}

struct Case {
  const KernelTable* table;
  PanelKind kind;
  bool fast;
  std::size_t tokens;
  bool cached = false;  // always the same task: what the kernel could do with endless bandwidth
};

PanelDotFn kernel_of(const KernelTable& table, const Case& what) {
  const auto at = static_cast<std::size_t>(what.kind);
  return what.fast ? table.fast_dot[at] : table.exact_dot[at];
}

void dot_task(benchmark::State& state, const Case& what) {
  if (arena() == nullptr) return state.SkipWithError("no memory");
  const PanelShape shape = shape_of(what.kind);
  const ActivationForm form =
      what.fast ? what.table->fast_form[static_cast<std::size_t>(what.kind)] : ActivationForm::kF32;
  const TestActivations x(*what.table, form, random_rows(what.tokens, kLength, 3), kLength);
  constexpr std::size_t kWidth = kPanelsPerTask * kPanelRows;
  std::vector<float> y(what.tokens * kWidth), want(y.size());
  PanelDot call{.shape = shape, .panels = arena(), .num_panels = 2, .k = kLength};
  call.panel_stride_bytes = shape.panel_bytes(kLength);
  call.x = x.bytes.data();
  call.x_stride_bytes = x.stride_bytes;
  call.num_tokens = what.tokens;
  call.y_stride = kWidth;
  call.y = want.data();
  kernel_of(available().front(), what)(call);
  call.y = y.data();
  kernel_of(*what.table, what)(call);
  if (first_difference(want, y) != -1) return state.SkipWithError("wrong numbers are not timed");

  call.num_panels = kPanelsPerTask;
  const std::size_t task_bytes = kPanelsPerTask * call.panel_stride_bytes;
  for (auto _ : state) {
    call.panels = what.cached ? arena() : next_task(task_bytes);
    kernel_of(*what.table, what)(call);
    benchmark::ClobberMemory();
  }
  count(state, task_bytes, 2.0 * static_cast<double>(kLength * kWidth * what.tokens));
}

void add_case(const Case& what) {
  const auto at = static_cast<std::size_t>(what.kind);
  if (what.fast && what.table->fast_dot[at] == what.table->exact_dot[at]) return;
  const std::string name = std::string(what.table->isa) + "/" + name_of(what.kind) +
                           (what.fast ? "/fast/" : "/exact/") + std::to_string(what.tokens) +
                           (what.cached ? "/cached" : "");
  auto* added = benchmark::RegisterBenchmark(name.c_str(), dot_task, what)->UseRealTime();
  added->Threads(1);
  if (!what.cached) added->Threads(2);
}

const bool registered = [] {
  benchmark::RegisterBenchmark("read", read_task)->Threads(1)->Threads(2)->UseRealTime();
  for (const KernelTable& table : available().subspan(1)) {
    for (const PanelKind kind : kAllKinds) {
      for (const bool fast : {true, false}) {
        add_case({&table, kind, fast, 1, true});
        for (const std::size_t tokens : {1U, 4U, 32U}) add_case({&table, kind, fast, tokens});
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace lode::kernels
