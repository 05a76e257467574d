#!/usr/bin/env python3
"""Runs one case of mpi_driver under mpirun and looks at how the job ended.

run.py MPIRUN DRIVER CASE RANKS: the exit status, what one rank said, and what every other one ended
with, all within a time that no hang would keep to."""
import pathlib
import subprocess
import sys
import time

MANY = 60000  # ms: none of these may wait for it
# case: (deadline in ms, exit status, what the one line says, whether all ranks live to end with it)
CASES = {
    "everything": (MANY, 0, None, True),
    "experts_move": (MANY, 0, None, True),
    "one_node": (MANY, 0, None, True),
    "another_size": (MANY, 1, "all_gather between ranks: want", True),
    "another_operation": (MANY, 1, "ranks that should do the same: want", True),
    "spans_that_do_not_fit": (MANY, 1, "all_gather between ranks: want", True),
    "message_of_another_size": (MANY, 1, "message 5 from rank 0 to rank 1: want 8 bytes from rank 0, "
                                "found 7 bytes (rank 1)", True),
    "one_refuses": (MANY, 3, "ring of reads (rank 1, layer 3)", True),
    "one_leaves": (MANY, 13, "want rank 1, found it has left", False),
    "nobody_receives": (300, 13, "nothing within 300 ms", True),
    "comes_late": (300, 13, "barrier between ranks: want rank 1, found nothing within 300 ms", True),
    "killed": (MANY, 128 + 9, None, False),
    "stopped": (300, 13, "barrier between ranks: want rank 1, found nothing within 300 ms", False),
}
LIMIT_SECONDS = 30


def faults(case, ranks, status, said, took):
    _, wanted_status, wanted, all_live = CASES[case]
    lines = [line.removeprefix("said: ") for line in said.splitlines() if line.startswith("said: ")]
    ended = [line.removeprefix("ended: ") for line in said.splitlines() if line.startswith("ended: ")]
    if status != wanted_status:
        yield f"exit status {status}, want {wanted_status}"
    if took > LIMIT_SECONDS:
        yield f"took {took:.0f} s"
    if len(lines) != (wanted is not None):
        yield f"{len(lines)} ranks said something: {lines}"
    if wanted is not None and not any(wanted in line for line in lines):
        yield f"nobody said {wanted!r}"
    if wanted is not None and all_live and (len(ended) != ranks or len(set(ended)) != 1):
        yield f"ranks ended with {ended}"


def main():
    mpirun, driver, case, ranks = sys.argv[1:]
    began = time.monotonic()
    command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", ranks, driver, case,
               str(CASES[case][0])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=4 * LIMIT_SECONDS, check=False)
    found = list(faults(case, int(ranks), ran.returncode, ran.stderr, time.monotonic() - began))
    for fault in found:
        print(f"{pathlib.Path(driver).name} {case} on {ranks} ranks: {fault}")
    if found:
        print(ran.stdout + ran.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
