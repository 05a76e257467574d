#pragma once

#include <cstdint>
#include <optional>

#include "lode/base/result.h"

namespace lode::memory {

/// Bytes of private writable memory that this process has mapped, touched or not: what a hard limit
/// is compared with. Source: VmData of /proc/self/status.
/// Errors: kIo, kUnsupported.
Result<std::uint64_t> data_bytes();

/// From here on the kernel refuses this process private writable memory beyond `bytes`
/// (RLIMIT_DATA): anonymous memory, malloc, stacks of threads, whether touched or not. A second
/// line behind the ledger: whoever takes more than was promised gets an error instead of taking the
/// machine down. Memory shared between processes, and mapped files that are only read, are not
/// counted.
/// Errors: kIo where the system does not take the limit.
Status set_hard_limit(std::uint64_t bytes);

/// The limit that was set, if any.
std::optional<std::uint64_t> hard_limit_bytes() noexcept;

/// What a refusal of memory means: with a hard limit, that more was taken than was promised, our
/// bug (kBudgetViolated); else `otherwise`.
Code code_of_refused_memory(Code otherwise) noexcept;

}  // namespace lode::memory
