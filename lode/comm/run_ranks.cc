#include <utility>

#include "lode/base/fmt.h"
#include "lode/comm/thread_group.h"
#include "lode/parallel/small_thread.h"

namespace lode::comm {
namespace {

// A rank runs a whole forward pass and reads whole configs; what its stack does not touch costs
// nothing.
constexpr std::size_t kStackBytes = std::size_t{8} << 20;

// The handle ends with the body: a rank that is done is not waited for.
Status run_rank(std::unique_ptr<Group> group, parallel::FunctionRef<Status(Group&)> body) {
  const Status outcome = body(*group);
  if (outcome) return {};
  group->fail(outcome.error());
  return group->health();
}

}  // namespace

Status run_ranks(std::size_t num_ranks, const GroupOptions& options,
                 parallel::FunctionRef<Status(Group&)> body) {
  LODE_TRY(auto group, make_thread_group(num_ranks, options));
  std::vector<Status> outcomes(num_ranks);
  {
    std::vector<parallel::SmallThread> threads;
    for (std::size_t r = 1; r < num_ranks; ++r) {
      threads.push_back(parallel::SmallThread::start(
          fmt::format("lode-rank-{}", r).c_str(),
          [&, r] { outcomes[r] = run_rank(std::move(group[r]), body); }, kStackBytes));
      if (threads.back().joinable()) continue;
      Error none{.thing = fmt::format("thread of rank {}", r), .found = "none to be had"};
      group[0]->fail(none);
      return none;
    }
    outcomes[0] = run_rank(std::move(group[0]), body);
  }
  for (Status& outcome : outcomes) {
    if (!outcome) return std::move(outcome);
  }
  return {};
}

}  // namespace lode::comm
