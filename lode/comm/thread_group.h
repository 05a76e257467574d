#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lode/base/result.h"
#include "lode/comm/group.h"
#include "lode/parallel/function_ref.h"

namespace lode::comm {

/// The most threads that one group takes as ranks.
inline constexpr std::size_t kMaxThreadRanks = 1024;

/// The handles of `num_ranks` threads of this process as ranks; handle r for the thread that is
/// rank r. Bytes are copied once, from the sender's span to the receiver's. A rank whose handle is
/// destroyed has left: whoever still waits for it, or comes to, gets kPeerLost at once.
/// Memory:  about 200 bytes a rank beside the handles.
/// Errors:  kUsage unless 1 <= num_ranks <= kMaxThreadRanks.
Result<std::vector<std::unique_ptr<Group>>> make_thread_group(std::size_t num_ranks,
                                                              const GroupOptions& options = {});

/// Calls body(group) as rank 0 in this thread and as ranks 1, 2, ... in threads of their own (8 MiB
/// of stack each, taken as it is touched; signals are left to this thread), and returns when all
/// have ended. A rank that returns an Error fails the group, so that the others end too.
/// Errors:  what the group failed with, that is the first Error of a rank, its place preceded by
///          "rank R"; kUsage as make_thread_group; kOther
/// when
///          the system gives no thread.
Status run_ranks(std::size_t num_ranks, const GroupOptions& options,
                 parallel::FunctionRef<Status(Group&)> body);

}  // namespace lode::comm
