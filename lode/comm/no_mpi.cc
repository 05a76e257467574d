#include "lode/comm/mpi_group.h"

namespace lode::comm {

bool mpi_built_in() noexcept { return false; }

Status run_mpi(const MpiOptions&, parallel::FunctionRef<Status(Group&)>,
               parallel::FunctionRef<void(const Error&)> say) {
  // Each process of the job is alone and none knows of the others: all of them say it.
  Error error{.code = Code::kUnsupported,
              .thing = "ranks under mpirun",
              .wanted = "a build with MPI",
              .found = "one without",
              .hint = "install libopenmpi-dev and build again, or use --ranks (threads)"};
  say(error);
  return error;
}

}  // namespace lode::comm
