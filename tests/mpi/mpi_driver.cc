// One rank of tests/mpi/run.py: mpi_driver CASE, under mpirun. Its exit status is that of the
// Error.
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "lode/comm/mpi_group.h"
#include "lode/comm/test_group_cases.h"
#include "lode/eplb/test_moves.h"

namespace {

using lode::Status;
using lode::comm::Group;

Status signals_itself(Group& group, int signal) {
  LODE_TRY_STATUS(group.barrier());
  if (group.rank() == 1) std::raise(signal);
  LODE_TRY_STATUS(group.barrier());
  return group.barrier();
}

// In no call of a group, so it hears of the failure only when it comes to one.
Status comes_late(Group& group) {
  if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  return group.barrier();
}

Status is_on_one_node(Group& group) {
  for (std::size_t r = 0; r < group.size(); ++r) {
    LODE_TRY_STATUS(lode::comm::cases::expect(group.node_of(r) == 0, "all ranks are on node 0"));
  }
  return lode::comm::cases::expect(group.num_nodes() == 1, "one machine is one node");
}

// Records of which some are longer than what MPI sends without being asked.
Status experts_move(Group& group) {
  return lode::eplb::test::experts_move(group, {.pairs = 60, .max_record_bytes = 9000});
}

const std::map<std::string, std::function<Status(Group&)>> kCases = {
    {"everything", [](Group& group) { return lode::comm::cases::everything_holds(group, 10); }},
    {"one_node", is_on_one_node},
    {"experts_move", experts_move},
    {"another_size", lode::comm::cases::another_size},
    {"another_operation", lode::comm::cases::another_operation},
    {"spans_that_do_not_fit", lode::comm::cases::spans_that_do_not_fit},
    {"message_of_another_size", lode::comm::cases::message_of_another_size},
    {"one_refuses", lode::comm::cases::one_refuses},
    {"one_leaves", lode::comm::cases::one_leaves},
    {"nobody_receives", lode::comm::cases::nobody_receives},
    {"comes_late", comes_late},
    {"killed", [](Group& group) { return signals_itself(group, SIGKILL); }},
    {"stopped", [](Group& group) { return signals_itself(group, SIGSTOP); }},
};

// Says what the failure is on this rank, before the first one to end is the end of all.
Status watched(const std::function<Status(Group&)>& body, Group& group) {
  const Status outcome = body(group);
  if (outcome) return {};
  group.fail(outcome.error());
  std::fprintf(stderr, "ended: %s\n", lode::to_string(group.health().error()).c_str());
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  const auto found = argc == 3 ? kCases.find(argv[1]) : kCases.end();
  if (found == kCases.end()) {
    std::fputs("usage: mpi_driver CASE DEADLINE_MS\n", stderr);
    return 2;
  }
  lode::comm::MpiOptions options;
  options.group.deadline = std::chrono::milliseconds(std::stoi(argv[2]));
  options.block_bytes = 1000;  // so that "long" messages are short
  const Status status = lode::comm::run_mpi(
      options, [&](Group& group) { return watched(found->second, group); },
      [](const lode::Error& error) {
        std::fprintf(stderr, "said: %s\n", lode::to_string(error).c_str());
      });
  if (status) return 0;
  return lode::info(status.error().code).exit_status;
}
