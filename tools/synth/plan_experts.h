#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/synth/plan.h"

namespace lode::synth {

// Inside of plan.cc.

/// A matrix or a stack of them, as it is about to be stored.
struct Stored {
  std::string name{};
  formats::Encoding encoding = formats::kPlainBf16;
  std::vector<std::uint64_t> dims{};  // [rows, k], [E, rows, k] or, transposed, [E, k, rows]
  bool transposed = false;
  bool blocks_axis = false;  // codes as [..., k / 32, 16], as gpt-oss has them
  bool next_shard = false;
};

/// Adds the tensor of its codes, or of its block scales; where it begins.
Place add_codes(const Stored& stored, Plan& plan);
Place add_scales(const Stored& stored, Plan& plan);

/// Adds the routed experts of one layer: tensors, jobs, and what shares a scale.
void add_experts(const Recipe& recipe, const Resolved& resolved, std::uint64_t layer, Plan& plan);

}  // namespace lode::synth
