#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lode/base/result.h"
#include "lode/comm/group.h"

namespace lode::comm {

/// Rows for every rank, one after the other in rank order: `counts[r]` of them for (or from) rank
/// r. Shapes:  counts [size of the group]; rows.size() >= (sum of counts) * row_bytes.
struct OutgoingRows {
  std::span<const std::byte> rows;
  std::span<const std::int32_t> counts;
};
struct IncomingRows {
  std::span<std::byte> rows;  // room; what arrives fills its beginning
  std::span<std::int32_t> counts;
};

/// The first step alone: `theirs[r]` = what rank r has in `mine` for this rank.
/// Shapes:  both [size of the group].
/// Errors:  see Group; the spans' sizes fail the group.
Status exchange_counts(Group& group, std::span<const std::int32_t> mine,
                       std::span<std::int32_t> theirs);

/// The second step alone, with the counts of the first: rows of `row_bytes` bytes each.
/// Memory:  16 bytes a rank.
/// Errors:  see Group; kOther for negative counts, kOverBudget when the rows do not fit into the
///          room; both fail the group, as the others wait for this rank.
Status exchange_rows(Group& group, const OutgoingRows& outgoing, std::size_t row_bytes,
                     const IncomingRows& incoming);

/// Both steps. The number of rows that came.
/// Memory:  16 bytes a rank.
/// Errors:  as those.
Result<std::size_t> exchange_counts_and_rows(Group& group, const OutgoingRows& outgoing,
                                             std::size_t row_bytes, const IncomingRows& incoming);

}  // namespace lode::comm
