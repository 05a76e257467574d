#include "lode/comm/failures.h"

#include <utility>

#include "lode/base/fmt.h"
#include "lode/comm/fate.h"

namespace lode::comm {
namespace {

std::string in_words(Operation operation, std::size_t root) {
  if (operation == Operation::kBroadcast) return fmt::format("broadcast of rank {}", root);
  return std::string(name_of(operation));
}

}  // namespace

std::string subject_of(Operation operation) {
  return fmt::format("{} between ranks", name_of(operation));
}

std::string subject_of_message(std::uint32_t tag, std::size_t from, std::size_t to) {
  return fmt::format("message {} from rank {} to rank {}", tag, from, to);
}

Error ranks_lost(std::size_t here, std::string_view subject, const std::vector<std::size_t>& ranks,
                 std::optional<std::chrono::milliseconds> deadline) {
  return at_rank(here, {.code = Code::kPeerLost,
                        .thing = std::string(subject),
                        .wanted = fmt::format("rank {}", fmt::join(ranks, ", ")),
                        .found = deadline ? fmt::format("nothing within {} ms", deadline->count())
                                          : "it has left"});
}

Error operations_differ(std::size_t here, const Exchange& mine, std::size_t other, Operation theirs,
                        std::size_t their_root) {
  if (theirs == Operation::kEnd) {
    return ranks_lost(here, subject_of(mine.operation), {other}, std::nullopt);
  }
  // The same seen from the rank that leaves: whoever notices first, all hear one thing.
  if (mine.operation == Operation::kEnd) {
    return ranks_lost(other, subject_of(theirs), {here}, std::nullopt);
  }
  return at_rank(here,
                 {.thing = "ranks that should do the same",
                  .wanted = in_words(mine.operation, mine.root),
                  .found = fmt::format("rank {} in {}", other, in_words(theirs, their_root))});
}

Error sizes_differ(std::size_t here, std::string_view subject, std::size_t from,
                   std::size_t wanted_bytes, std::string found) {
  return at_rank(here, {.thing = std::string(subject),
                        .wanted = fmt::format("{} bytes from rank {}", wanted_bytes, from),
                        .found = std::move(found)});
}

}  // namespace lode::comm
