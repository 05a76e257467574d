#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lode::synth {

/// The numbers that a family's tensors and config are made from.
struct ModelShape {
  std::string family = "qwen3_moe";
  std::uint64_t layers = 2;
  std::uint64_t hidden = 64;
  std::uint64_t intermediate = 96;  // of one routed expert
  std::uint64_t experts = 8;
  std::uint64_t top_k = 2;
  std::uint64_t heads = 4;
  std::uint64_t kv_heads = 2;
  std::uint64_t head_dim = 16;
  std::uint64_t vocab = 320;
  std::uint64_t max_positions = 4096;
  bool tied = false;  // no output head of its own
};

/// Extents by name, so that a tensor's shape can stand in a table.
enum class Extent : std::uint8_t {
  kOne,
  kHidden,
  kExpertWidth,
  kExperts,
  kVocab,
  kQueryRows,  // heads * head_dim
  kKeyRows,    // kv_heads * head_dim
  kHeadDim,
  kHeads,
};
std::uint64_t extent(const ModelShape& shape, Extent which) noexcept;

struct Preset {
  std::string_view name;
  std::string_view meaning;
  ModelShape shape;
};
std::span<const Preset> presets();
std::optional<ModelShape> preset(std::string_view name);

}  // namespace lode::synth
