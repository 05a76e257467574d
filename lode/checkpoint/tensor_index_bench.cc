#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "lode/checkpoint/tensor_index.h"
#include "tests/support/checkpoint_files.h"

namespace lode::checkpoint {
namespace {

using testing_support::TempFolder;
using testing_support::TensorEntry;

// A checkpoint of 180,000 tensors in 200 shards with an index, all holes: Kimi-K2 in NVFP4 is
// about that.
void write_large(const TempFolder& folder) {
  const std::vector<std::string> parts = {"weight", "weight_scale", "weight_scale_2"};
  std::string map;
  for (int shard = 0; shard < 200; ++shard) {
    const std::string name = "model-" + std::to_string(shard) + "-of-00200.safetensors";
    std::vector<TensorEntry> tensors;
    for (int i = 0; i < 300; ++i) {
      for (const std::string& part : parts) {
        const std::string tensor = "model.layers." + std::to_string(shard) + ".mlp.experts." +
                                   std::to_string(i) + ".gate_proj." + part;
        tensors.push_back({tensor, "U8", {2048, 512}, 1 << 20});
        map += (map.empty() ? "\"" : ",\"") + tensor + "\":\"" + name + "\"";
      }
    }
    const auto [header, bytes] = testing_support::header_of(tensors);
    const std::string file = testing_support::with_header(header, 0);
    folder.write_sparse(name, file, file.size() + bytes);
  }
  folder.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
}

void open_180_000_tensors(benchmark::State& state) {
  const TempFolder folder;
  write_large(folder);
  std::size_t held_bytes = 0;
  for (auto _ : state) {
    const Result<TensorIndex> index = open_index(folder.path());
    if (!index) return state.SkipWithError(to_string(index.error()).c_str());
    held_bytes = index->held_bytes();
  }
  state.counters["held_mib"] = static_cast<double>(held_bytes) / (1024 * 1024);
}
BENCHMARK(open_180_000_tensors)->Unit(benchmark::kMillisecond);

void nearest_name_of_180_000(benchmark::State& state) {
  const TempFolder folder;
  write_large(folder);
  const Result<TensorIndex> index = open_index(folder.path());
  if (!index) return state.SkipWithError(to_string(index.error()).c_str());
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        index->nearest_name("language_model.layers.7.mlp.experts.17.gate_projection.weights"));
  }
}
BENCHMARK(nearest_name_of_180_000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lode::checkpoint
