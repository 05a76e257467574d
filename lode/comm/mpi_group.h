#pragma once

#include <cstddef>

#include "lode/base/result.h"
#include "lode/comm/group.h"
#include "lode/parallel/function_ref.h"

namespace lode::comm {

/// Whether this build has MPI in it. One that has not needs no MPI library at run time.
bool mpi_built_in() noexcept;

/// Whether a launcher (mpirun, srun with PMI) started this process, by what it left in the
/// environment; MPI itself is not touched. What runs alone must not wait for MPI to start.
bool mpi_requested() noexcept;

struct MpiOptions {
  GroupOptions group{};
  /// Longer messages go as a datatype of blocks of so many bytes, as MPI counts in ints.
  std::size_t block_bytes = std::size_t{1} << 30;
};

/// Starts MPI, calls body(group) with all the processes of the job as ranks, and ends MPI. Once in
/// a process, from the thread that started it.
///
/// A failure (the body's Error, a lost peer) reaches every rank that is inside a call of a group
/// or comes to one, at once; then `say` is called with the Error by one rank, the lowest that
/// answers, and run_mpi returns it on all. MPI is not ended then, for that would wait for lost
/// ranks: the caller ends the process with the Error's exit status and the launcher ends those
/// that hang. mpirun ends the whole job itself, with status 128 + the signal's number, when a rank
/// dies of a signal.
///
/// Memory:  MPI's own: about 3 MiB, and its shared segments.
/// Errors:  the body's; kPeerLost also when some ranks end early; kUnsupported without MPI, or with
///          one that lets only one thread in.
Status run_mpi(const MpiOptions& options, parallel::FunctionRef<Status(Group&)> body,
               parallel::FunctionRef<void(const Error&)> say);

}  // namespace lode::comm
