#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lode/base/result.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/formats/format.h"
#include "lode/layout/code_counts.h"
#include "lode/loader/binding.h"
#include "lode/parallel/thread_pool.h"
#include "lode/targets/experts.h"

namespace lode::loader {

/// Looks for block scales that no producer means. Of scales of one byte the counts come along, for
/// whoever asks what becomes of them; an expert whose gate_up and down are both there has none.
///
/// Errors: kInvalidSource naming the matrix and the place of the first that is not finite.
Result<std::optional<layout::CodeCounts>> check_block_scales(const targets::ExpertSource& source,
                                                             formats::Format format,
                                                             parallel::ThreadPool* pool);

/// An expert as it is stored, and what names its tensors; the index may be null.
struct NumberOrigin {
  const ExpertSource& expert;
  const formats::Encoding& encoding;  // as it is read
  const checkpoint::TensorIndex* index = nullptr;
};

/// A refusal of an expert's numbers, with the tensor and the file of the first that is not finite.
Error with_origin(Error error, const targets::ExpertSource& source, const NumberOrigin& origin);
/// "TENSOR in FILE" for what lies there; empty without an index, or where no tensor lies.
std::string place_in_files(std::uint32_t shard, std::uint64_t offset_bytes,
                           const checkpoint::TensorIndex* index);
/// A refusal of numbers, with the command that looks at all; the index may be null.
Error with_advice(Error error, const checkpoint::TensorIndex* index);

}  // namespace lode::loader
