#include "tools/synth/shape.h"

#include <vector>

namespace lode::synth {

std::uint64_t extent(const ModelShape& shape, Extent which) noexcept {
  switch (which) {
    case Extent::kOne:
      return 1;
    case Extent::kHidden:
      return shape.hidden;
    case Extent::kExpertWidth:
      return shape.intermediate;
    case Extent::kExperts:
      return shape.experts;
    case Extent::kVocab:
      return shape.vocab;
    case Extent::kQueryRows:
      return shape.heads * shape.head_dim;
    case Extent::kKeyRows:
      return shape.kv_heads * shape.head_dim;
    case Extent::kHeadDim:
      return shape.head_dim;
    case Extent::kHeads:
      return shape.heads;
  }
  return 0;
}

std::span<const Preset> presets() {
  static const std::vector<Preset> rows{
      {"tiny", "for tests: hidden 64, 8 experts of 96, top 2, 2 layers", ModelShape{}},
      {"tiny-gpt-oss",
       "for tests: gpt_oss, hidden 96, 4 experts of 96, 2 layers",
       {"gpt_oss", 2, 96, 96, 4, 2, 4, 2, 16, 256, 4096, false}},
      {"qwen3-30b-a3b-layers",
       "six layers of Qwen3-30B-A3B, vocabulary 32768",
       {"qwen3_moe", 6, 2048, 768, 128, 8, 32, 4, 128, 32768, 40960, false}},
      {"gpt-oss-20b-layers",
       "four layers of gpt-oss-20b, vocabulary 32768",
       {"gpt_oss", 4, 2880, 2880, 32, 4, 64, 8, 64, 32768, 131072, false}},
      {"qwen3-30b-a3b",
       "all of Qwen3-30B-A3B",
       {"qwen3_moe", 48, 2048, 768, 128, 8, 32, 4, 128, 151936, 40960, false}},
      {"gpt-oss-20b",
       "all of gpt-oss-20b",
       {"gpt_oss", 24, 2880, 2880, 32, 4, 64, 8, 64, 201088, 131072, false}},
  };
  return rows;
}

std::optional<ModelShape> preset(std::string_view name) {
  for (const Preset& row : presets()) {
    if (row.name == name) return row.shape;
  }
  return std::nullopt;
}

}  // namespace lode::synth
