#include <benchmark/benchmark.h>

#include <vector>

#include "lode/layout/scatter.h"

namespace lode::layout {
namespace {

constexpr std::uint64_t kRows = 2048;
constexpr std::uint64_t kWidth = 2048;

// Bytes moved: every code once in, once out; the figure counts them once.
void BM_ScatterCodes(benchmark::State& state, const formats::Encoding& encoding, bool k_first) {
  const PanelLayout layout = *PanelLayout::make(encoding, kRows, kWidth);
  const std::uint64_t bits = layout.shape().bits;
  const std::uint64_t unit = bits < 8 ? 1 : bits / 8;
  const std::vector<std::byte> codes(kRows * kWidth * bits / 8, std::byte{0x5A});
  const SourceCodes source{codes, k_first, k_first ? kRows * unit : kWidth * bits / 8, unit};
  std::vector<std::byte> panels(layout.total_bytes());
  for (auto _ : state) {
    scatter_codes(layout, {0, 0, kRows, 0, kWidth}, source, panels);
    benchmark::DoNotOptimize(panels.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(codes.size()));
}
BENCHMARK_CAPTURE(BM_ScatterCodes, fp4_rows, formats::kMxfp4, false);
BENCHMARK_CAPTURE(BM_ScatterCodes, fp8_rows, formats::kFp8Tensor, false);
BENCHMARK_CAPTURE(BM_ScatterCodes, bf16_rows, formats::kPlainBf16, false);
BENCHMARK_CAPTURE(BM_ScatterCodes, fp4_transposed, formats::kMxfp4, true);
BENCHMARK_CAPTURE(BM_ScatterCodes, bf16_transposed, formats::kPlainBf16, true);

// Bytes moved: every block scale once.
void BM_ScatterScales(benchmark::State& state, const formats::Encoding& encoding) {
  const PanelLayout layout = *PanelLayout::make(encoding, kRows, kWidth);
  const std::uint64_t columns = kWidth / encoding.block_k;
  const std::vector<std::byte> scales(kRows * columns * 4, std::byte{0x3A});
  SourceScales source;
  source.bytes = scales;
  source.format = encoding.scale;
  source.outer_stride_bytes = columns * (formats::info(encoding.scale).bits / 8);
  std::vector<std::byte> panels(layout.total_bytes());
  for (auto _ : state) {
    benchmark::DoNotOptimize(scatter_scales(layout, {0, 0, kRows, 0, kWidth}, source, panels));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kRows * columns));
}
BENCHMARK_CAPTURE(BM_ScatterScales, mxfp4, formats::kMxfp4);
BENCHMARK_CAPTURE(BM_ScatterScales, nvfp4, formats::kNvfp4);
BENCHMARK_CAPTURE(BM_ScatterScales, fp8_block, formats::kFp8Block128);

}  // namespace
}  // namespace lode::layout
