#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lode/base/result.h"
#include "lode/loader/progress.h"
#include "lode/memory/ledger.h"

namespace lode::prepared {

/// What a look at all of a prepared checkpoint came to.
struct VerifyReport {
  std::vector<Error> faults;  // everything that is not as `lode prepare` left it
  std::uint64_t num_companions = 0;
  std::uint64_t num_files = 0;
  std::uint64_t num_chunks = 0;
  std::uint64_t num_bytes = 0;  // of weights that were read
};

/// Looks at every byte of a prepared checkpoint: manifest, index, companions, sizes, the sum of
/// each chunk. A fault does not end it, unless it is one of manifest or index, without which
/// nothing can be said of the rest. What was read does not stay in the page cache. `progress` may
/// be null.
///
/// Memory: kCheckBufferBytes and a stack for each thread, the index.
/// Errors: kLayoutMismatch for another target, layout or version; kOverBudget, kInterrupted, kIo.
Result<VerifyReport> verify(const std::filesystem::path& folder, std::uint32_t threads,
                            memory::Ledger& ledger, loader::Progress* progress = nullptr);

}  // namespace lode::prepared
