#include "lode/comm/exchange_rows.h"

#include <limits>
#include <utility>
#include <vector>

#include "lode/base/fmt.h"

namespace lode::comm {
namespace {

struct Sizes {
  std::vector<std::size_t> of_rank;
  std::size_t sum = 0;
};

Error not_these(const Group& group, std::string found) {
  return {.thing = "rows between ranks",
          .wanted = fmt::format("{} counts, none negative", group.size()),
          .found = std::move(found)};
}

Result<Sizes> bytes_of(const Group& group, std::span<const std::int32_t> counts,
                       std::size_t row_bytes, std::size_t room_bytes) {
  if (counts.size() != group.size()) return not_these(group, fmt::format("{}", counts.size()));
  Sizes sizes;
  for (const std::int32_t count : counts) {
    if (count < 0) return not_these(group, fmt::format("{} rows", count));
    const auto rows = static_cast<std::size_t>(count);
    // Every product and sum stays below the room, which is a size.
    if (row_bytes != 0 && rows > (room_bytes - sizes.sum) / row_bytes) {
      return Error{
          .code = Code::kOverBudget,
          .thing = "rows between ranks",
          .wanted = fmt::format("{} rows of {} bytes after {} bytes", rows, row_bytes, sizes.sum),
          .found = fmt::format("{} bytes", room_bytes)};
    }
    sizes.of_rank.push_back(rows * row_bytes);
    sizes.sum += rows * row_bytes;
  }
  return sizes;
}

}  // namespace

Status exchange_counts(Group& group, std::span<const std::int32_t> mine,
                       std::span<std::int32_t> theirs) {
  if (mine.size() != group.size() || theirs.size() != group.size()) {
    Error error = not_these(group, fmt::format("{} and {}", mine.size(), theirs.size()));
    group.fail(error);
    return group.health();
  }
  return group.all_to_all(std::as_bytes(mine), std::as_writable_bytes(theirs));
}

Status exchange_rows(Group& group, const OutgoingRows& outgoing, std::size_t row_bytes,
                     const IncomingRows& incoming) {
  const auto out = bytes_of(group, outgoing.counts, row_bytes, outgoing.rows.size());
  const auto in = bytes_of(group, incoming.counts, row_bytes, incoming.rows.size());
  for (const auto* sizes : {&out, &in}) {
    if (*sizes) continue;
    group.fail(sizes->error());
    return group.health();
  }
  return group.all_to_all_v(outgoing.rows.first(out->sum), out->of_rank,
                            incoming.rows.first(in->sum), in->of_rank);
}

Result<std::size_t> exchange_counts_and_rows(Group& group, const OutgoingRows& outgoing,
                                             std::size_t row_bytes, const IncomingRows& incoming) {
  LODE_TRY_STATUS(exchange_counts(group, outgoing.counts, incoming.counts));
  LODE_TRY_STATUS(exchange_rows(group, outgoing, row_bytes, incoming));
  std::size_t rows = 0;
  for (const std::int32_t count : incoming.counts) rows += static_cast<std::size_t>(count);
  return rows;
}

}  // namespace lode::comm
