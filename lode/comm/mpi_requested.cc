#include <cstdlib>

#include "lode/comm/mpi_group.h"

namespace lode::comm {

bool mpi_requested() noexcept {
  // Open MPI's own; MPICH's and its kin's; of srun, only where it was told to speak PMI.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

}  // namespace lode::comm
