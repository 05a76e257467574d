#pragma once

#include <optional>

#include "lode/base/result.h"
#include "lode/formats/format.h"
#include "lode/layout/code_counts.h"
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

}  // namespace lode::loader
