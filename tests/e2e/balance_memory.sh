#!/usr/bin/env bash
# What balancing takes of FP8 experts: by the ledger to the byte (slots, tables, and a buffer while experts move), and by
# the kernel's count of the process while it runs, within 2 MiB.
set -euo pipefail
: "${LODE:?}" "${LODE_SYNTH:?}"
exec python3 "$(dirname "$0")/balance_memory.py"
