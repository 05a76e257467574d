// What a load does to bytes between a slot and their final place, one thread, against memcpy:
//   layout_bench --benchmark_repetitions=5
//
// An iteration moves one slot of 2 MiB, as the ring hands it out, to its panels, and copies the
// same slot to the same place in turn. Slots go round in 64 MiB and panels in 256 MiB of touched
// huge pages, so that both come from and go to DRAM. "GB/s" counts the larger of the bytes taken
// and the bytes made; "of_memcpy" is that over what memcpy does in the same iterations.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <vector>

#include "lode/layout/requantise.h"
#include "lode/layout/scatter.h"
#include "lode/memory/buffer.h"

namespace lode::layout {
namespace {

using formats::Format;

constexpr std::uint64_t kSlotBytes = std::uint64_t{2} << 20;
constexpr std::uint64_t kSourceBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kPlaceBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kWidth = 2048;

// Touched memory that is handed out piece by piece, round and round.
class Arena {
 public:
  explicit Arena(std::uint64_t bytes)
      : buffer_(*memory::make_buffer(ledger_, memory::Tag::kScratch, bytes, "benchmark")),
        bytes_(buffer_.mutate()) {
    std::uint32_t state = 1;
    for (std::byte& byte : bytes_) {
      state = state * 1664525U + 1013904223U;
      byte = static_cast<std::byte>(0x30U | state >> 28);  // an ordinary number in every format
    }
  }
  std::span<std::byte> next(std::uint64_t bytes) {
    if (at_ + bytes > bytes_.size()) at_ = 0;
    const auto piece = bytes_.subspan(at_, bytes);
    at_ += (bytes + 63) / 64 * 64;
    return piece;
  }

 private:
  memory::Ledger ledger_{std::uint64_t{1} << 40};
  memory::Buffer buffer_;
  std::span<std::byte> bytes_;
  std::uint64_t at_ = 0;
};

Arena& sources() {
  static Arena arena(kSourceBytes);
  return arena;
}
Arena& places() {
  static Arena arena(kPlaceBytes);
  return arena;
}

// The thread's own time: what others do on the machine counts less.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <class Function>
double seconds(Function&& function) {
  const double begin = thread_seconds();
  function();
  benchmark::ClobberMemory();
  return thread_seconds() - begin;
}

// Runs `function` of a source and a place in turn with memcpy.
template <class Function>
void measure(benchmark::State& state, std::uint64_t taken, std::uint64_t made,
             Function&& function) {
  const std::uint64_t larger = std::max(taken, made);
  std::memcpy(places().next(larger).data(), sources().next(larger).data(), larger);  // touches both
  double own = 0.0, copying = 0.0;
  for (auto _ : state) {
    const double once = seconds([&] { function(sources().next(taken), places().next(made)); });
    state.SetIterationTime(once);
    own += once;
    const auto from = sources().next(larger);
    const auto to = places().next(larger);
    copying += seconds([&] { std::memcpy(to.data(), from.data(), larger); });
  }
  const auto bytes = static_cast<double>(larger) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = bytes * 1e-9 / own;
  state.counters["memcpy_GB/s"] = bytes * 1e-9 / copying;
  state.counters["of_memcpy"] = copying / own;
}

struct Order {
  bool k_first = false;
  bool pair = false;  // gate and up in turns of a row
};

void codes(benchmark::State& state, const formats::Encoding& encoding, const Order& order) {
  const std::uint64_t bits = formats::info(encoding.element).bits;
  const std::uint64_t unit = std::max<std::uint64_t>(1, bits / 8);
  const std::uint32_t matrices = order.pair ? 2 : 1;
  const std::uint64_t rows = kSlotBytes / (kWidth * bits / 8) / matrices;
  const auto layout = *PanelLayout::make(encoding, rows, kWidth, matrices);
  const std::uint64_t row_bytes = kWidth * bits / 8;
  measure(state, kSlotBytes, layout.total_bytes(), [&](auto slot, auto panels) {
    for (std::uint32_t matrix = 0; matrix < matrices; ++matrix) {
      SourceCodes source{slot, order.k_first, matrices * row_bytes, 0};
      source.bytes = slot.subspan(matrix * (order.k_first ? unit : row_bytes));
      if (order.k_first) {
        source.outer_stride_bytes = matrices * rows * unit;
        source.inner_step_bytes = matrices * unit;
      }
      scatter_codes(layout, {matrix, 0, rows, 0, kWidth}, source, panels);
    }
  });
}
constexpr Order kRows{}, kTransposed{.k_first = true}, kPairs{.pair = true},
    kTransposedPairs{.k_first = true, .pair = true};
BENCHMARK_CAPTURE(codes, fp4_rows, formats::kMxfp4, kRows)->UseManualTime();
BENCHMARK_CAPTURE(codes, fp8_rows, formats::kFp8Tensor, kRows)->UseManualTime();
BENCHMARK_CAPTURE(codes, bf16_rows, formats::kPlainBf16, kRows)->UseManualTime();
BENCHMARK_CAPTURE(codes, fp4_transposed, formats::kMxfp4, kTransposed)->UseManualTime();
BENCHMARK_CAPTURE(codes, fp8_transposed, formats::kFp8Tensor, kTransposed)->UseManualTime();
BENCHMARK_CAPTURE(codes, bf16_transposed, formats::kPlainBf16, kTransposed)->UseManualTime();
BENCHMARK_CAPTURE(codes, fp4_pairs, formats::kMxfp4, kPairs)->UseManualTime();
BENCHMARK_CAPTURE(codes, fp4_transposed_pairs, formats::kMxfp4, kTransposedPairs)->UseManualTime();
BENCHMARK_CAPTURE(codes, bf16_transposed_pairs, formats::kPlainBf16, kTransposedPairs)
    ->UseManualTime();

SourceScales scales_in(std::span<const std::byte> bytes, const formats::Encoding& encoding,
                       Format format) {
  SourceScales source;
  source.bytes = bytes;
  source.format = format;
  source.outer_stride_bytes =
      formats::scale_columns(encoding, kWidth) * (formats::info(format).bits / 8);
  return source;
}

// A slot of codes with its scales: what a second of a load is made of.
void codes_and_scales(benchmark::State& state, const formats::Encoding& encoding, Format stored) {
  const std::uint64_t row_bytes = kWidth * formats::info(encoding.element).bits / 8;
  const std::uint64_t rows = kSlotBytes / row_bytes;
  const auto layout = *PanelLayout::make(encoding, rows, kWidth);
  const std::uint64_t taken = kSlotBytes + formats::scale_rows(encoding, rows) *
                                               formats::scale_columns(encoding, kWidth) *
                                               (formats::info(stored).bits / 8);
  const PanelTile tile{0, 0, rows, 0, kWidth};
  measure(state, taken, layout.total_bytes(), [&](auto slot, auto panels) {
    scatter_codes(layout, tile, {slot, false, row_bytes, 0}, panels);
    const auto scales = scales_in(slot.subspan(kSlotBytes), encoding, stored);
    benchmark::DoNotOptimize(scatter_scales(layout, tile, scales, panels));
  });
}
constexpr formats::Encoding kRows128{Format::kE4m3, Format::kF32, 1, 128, true};
BENCHMARK_CAPTURE(codes_and_scales, mxfp4, formats::kMxfp4, Format::kE8m0)->UseManualTime();
BENCHMARK_CAPTURE(codes_and_scales, nvfp4, formats::kNvfp4, Format::kE4m3)->UseManualTime();
BENCHMARK_CAPTURE(codes_and_scales, fp8_block, formats::kFp8Block128, Format::kBf16)
    ->UseManualTime();
BENCHMARK_CAPTURE(codes_and_scales, fp8_channel, formats::kFp8Channel, Format::kF32)
    ->UseManualTime();
BENCHMARK_CAPTURE(codes_and_scales, fp8_rows_of_128, kRows128, Format::kF32)->UseManualTime();

void requantise(benchmark::State& state, const formats::Encoding& encoding, const Order& order) {
  const std::uint64_t unit = formats::info(encoding.element).bits / 8;
  const std::uint64_t rows = kSlotBytes / (kWidth * unit);
  const auto layout = *PanelLayout::make(formats::kInt8Row128, rows, kWidth);
  const std::vector<std::byte> scale_bytes(rows * kWidth, std::byte{0x30});
  const auto scales = scales_in(scale_bytes, encoding, encoding.scale);
  measure(state, kSlotBytes, layout.total_bytes(), [&](auto slot, auto panels) {
    const std::uint64_t stride = order.k_first ? rows * unit : kWidth * unit;
    if (!requantise_to_int8(layout, {0, 0, rows, 0, kWidth}, encoding,
                            {slot, order.k_first, stride, unit},
                            encoding.has_scale ? &scales : nullptr, panels)) {
      state.SkipWithError("wrong numbers are not timed");
    }
  });
}
BENCHMARK_CAPTURE(requantise, bf16, formats::kPlainBf16, kRows)->UseManualTime();
BENCHMARK_CAPTURE(requantise, f32, formats::kPlainF32, kRows)->UseManualTime();
BENCHMARK_CAPTURE(requantise, fp8_block, formats::kFp8Block128, kRows)->UseManualTime();
BENCHMARK_CAPTURE(requantise, bf16_transposed, formats::kPlainBf16, kTransposed)->UseManualTime();

}  // namespace
}  // namespace lode::layout
