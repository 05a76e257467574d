#!/usr/bin/env bash
# The memory contract of preparations for GPU engines inside limits that the kernel keeps: every format to every
# target that takes it, or with LODE_FULL_TESTS=1 also with every number of threads, and models of a gigabyte.
set -euo pipefail
: "${LODE:?}" "${LODE_SYNTH:?}"
exec python3 "$(dirname "$0")/contract_targets.py"
