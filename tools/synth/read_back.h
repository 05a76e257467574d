#pragma once

#include <filesystem>
#include <vector>

#include "lode/base/result.h"
#include "lode/checkpoint/linear_storage.h"
#include "lode/checkpoint/tensor_index.h"
#include "tools/synth/recipe.h"

namespace lode::synth {

enum class ExpertRole : std::uint8_t { kGate, kUp, kDown };

/// Reads experts back out of a checkpoint by straightforward code: for tests, here and end to end.
class Reader {
 public:
  /// Errors: as checkpoint::open_index, and what `resolve` says of the recipe.
  static Result<Reader> open(const std::filesystem::path& folder, const Recipe& recipe);

  /// One expert's matrix, dequantised, [out, in] whatever the storage.
  ///
  /// Errors: as checkpoint::detect_linear and read_tensor.
  Result<std::vector<float>> expert(std::uint64_t layer, std::uint64_t expert,
                                    ExpertRole role) const;

 private:
  Reader(checkpoint::TensorIndex index, Recipe recipe, Resolved resolved)
      : index_(std::move(index)), recipe_(std::move(recipe)), resolved_(resolved) {}

  checkpoint::TensorIndex index_;
  Recipe recipe_;
  Resolved resolved_;
};

/// What `Reader::expert` should find: the float model of the recipe, quantised in one piece.
///
/// Errors: as formats::quantise.
Result<std::vector<float>> expected_expert(const Recipe& recipe, std::uint64_t layer,
                                           std::uint64_t expert, ExpertRole role);

}  // namespace lode::synth
