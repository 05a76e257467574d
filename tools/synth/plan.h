#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lode/formats/format.h"
#include "tools/synth/recipe.h"
#include "tools/synth/source.h"

namespace lode::synth {

/// One tensor of the checkpoint to be.
struct PlannedTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> dims;
  std::uint64_t bytes = 0;
  bool next_shard = false;  // belongs one shard further than its neighbours
  std::uint64_t shard = 0;
  std::uint64_t offset = 0;  // in the data of its shard
};

/// A place in a tensor.
struct Place {
  std::uint64_t tensor = 0;
  std::uint64_t offset = 0;
};

/// One piece of work: make rows of one matrix, or of gate and up laid together, and put the image
/// of each part into its place.
struct Job {
  std::vector<MatrixId> matrices;
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;  // of each matrix
  bool interleaved = false;
  bool transposed = false;
  formats::Encoding encoding = formats::kPlainBf16;
  std::optional<formats::Rule> rule{};  // none: BF16
  Place codes{};
  std::optional<Place> scales{};
  std::optional<Place> tensor_scale{};     // for jobs that are the first to know it
  std::optional<std::uint64_t> amax_of{};  // index into Plan::sharing
};

struct Plan {
  std::vector<PlannedTensor> tensors;  // in the order of the file
  std::vector<Job> jobs;
  std::vector<std::vector<MatrixId>> sharing;  // matrices under one scale of the matrix
};

/// Whether one number is the whole scale of a matrix, of FP8 or beside block scales: it is measured
/// beforehand and kept in Job::tensor_scale.
bool has_matrix_scale(const formats::Encoding& encoding) noexcept;
/// Whether there are scales of blocks or rows: those in Job::scales.
bool has_block_scales(const formats::Encoding& encoding) noexcept;

/// All tensors, their places in the shards, and the work that fills them. Touches nothing.
Plan plan_checkpoint(const Recipe& recipe, const Resolved& resolved);

/// The module of a tensor: its name without ".weight".
std::string_view module_of(std::string_view tensor) noexcept;

/// `name` with the recipe's prefix in place of "model.".
std::string prefixed(const Recipe& recipe, std::string_view name);

}  // namespace lode::synth
