#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lode/base/result.h"
#include "lode/json/json.h"
#include "lode/targets/functions.h"

namespace lode::engine {

/// A tensor to take from a file, and what it is called there.
struct TensorChoice {
  std::string name;    // "w13": the function's word
  std::string stored;  // "model.layers.0.mlp.experts.w13_weight"
};

/// Reads the tensors that are chosen, in that order.
///
/// Errors: kInvalidSource naming the tensor that is not there, kUnsupported for a dtype that we do
///         not know, kOverBudget where they are more than kMemoryShare of what the machine has
///         left; those of a damaged file; kIo.
/// Memory: their bytes.
Result<std::vector<targets::NamedTensor>> read_named_tensors(const std::filesystem::path& file,
                                                             std::span<const TensorChoice> chosen);

/// What a file offers: those tensors whose names begin with "in.", without it, as golden files have
/// them; where there are none, all.
///
/// Errors: those of a damaged file; kIo.
Result<std::vector<TensorChoice>> offered_tensors(const std::filesystem::path& file);

/// A transform's inputs may be this part of the memory that is left: what it makes of them lies
/// beside them, and may be padded.
inline constexpr std::uint64_t kMemoryShare = 3;

/// Writes tensors as a file of their names, each behind `prefix`. The file appears when it is
/// whole.
///
/// Errors: kNoSpace, kIo; kUsage where the file is one of `not_over`, which is being read.
Status write_named_tensors(const std::filesystem::path& file, std::string_view prefix,
                           std::span<const targets::NamedTensor> tensors,
                           const std::filesystem::path& not_over);

/// One transform of the tensors of a file.
struct LayoutApply {
  std::string function;  // a name of targets::function_table
  std::filesystem::path in;
  std::filesystem::path out;
  json::Object params;
  std::vector<TensorChoice> chosen;  // empty: what the file offers and the function takes
  targets::Way way = targets::Way::kOutOfPlace;
};

struct Applied {
  std::vector<std::string> inputs;  // "w13 U8 [2, 64, 32]"
  std::vector<std::string> outputs;
  std::vector<std::string> left_aside;  // what the file has and the function has no use for
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
};

/// Outputs of tensors called "in.x" are written as "out.x".
///
/// Errors: kUsage for a function that we do not know, and for params and chosen tensors that the
///         function has no use for; those of the function, of reading and of writing.
/// Memory: all tensors in and out.
Result<Applied> apply_layout(const LayoutApply& apply);

}  // namespace lode::engine
