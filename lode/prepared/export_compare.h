#pragma once

#include <cstdint>
#include <filesystem>

#include "lode/base/result.h"
#include "lode/loader/progress.h"
#include "lode/memory/ledger.h"
#include "lode/prepared/prepare.h"

namespace lode::prepared {

/// Makes an export again from `input`, the checkpoint that it was made of, keeps nothing of it, and
/// compares every byte. Returns how many there are. `progress` may be null.
///
/// Memory: that of loader::stream_engine, and two pieces of 2 MiB.
/// Errors: kCheckFailed naming the file that is missing or has other tensors, or the first tensor,
///         expert and coordinates that differ; those of stream_engine.
Result<std::uint64_t> compare_export(const std::filesystem::path& folder, const Input& input,
                                     memory::Ledger& ledger, loader::Progress* progress = nullptr);

}  // namespace lode::prepared
