#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lode/json/json.h"
#include "tools/synth/shape.h"

namespace lode::synth {

/// What a tensor is, which says how large its numbers are and whether it may be quantised.
enum class Kind : std::uint8_t {
  kExpert,
  kDense,
  kHead,
  kEmbedding,
  kRouter,
  kNorm,
  kBias,
  kSinks
};

/// One tensor of every layer ("{L}" in its name), or of the model. `role` names the numbers: they
/// depend on it and on the position, never on the name.
struct TensorRow {
  std::string_view role;
  std::string_view name;
  Extent rows;
  Extent columns;  // kOne: a vector
  Kind kind;
};

/// How routed experts are called: modules with "{L}" and "{E}", stacks with "{L}".
struct ExpertNames {
  std::string_view gate;
  std::string_view up;
  std::string_view down;
  std::string_view gate_up_stack;
  std::string_view down_stack;
  bool interleaved;  // gate and up alternate, with biases, always in stacks (gpt-oss)
};

/// A family as data. The next one is a row of tables in family.cc.
struct Family {
  std::string_view name;  // model_type
  std::string_view architecture;
  std::span<const TensorRow> tensors;  // what precedes the experts of a layer, and the rest
  ExpertNames experts;
  json::Object (*config)(const ModelShape&);  // what is special to it
};

std::span<const Family> families();
const Family* family_by_name(std::string_view name);

/// The pattern with its "{L}" and "{E}" filled in.
std::string filled(std::string_view pattern, std::uint64_t layer, std::uint64_t expert = 0);

/// config.json of the family without quantisation.
json::Object config_of(const Family& family, const ModelShape& shape);

}  // namespace lode::synth
