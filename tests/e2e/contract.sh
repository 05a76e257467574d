#!/usr/bin/env bash
# The memory contract inside limits that the kernel keeps, and loads that break it there: the small matrix, or
# all of it with LODE_FULL_TESTS=1 (an hour).
set -euo pipefail
: "${LODE:?}" "${LODE_SYNTH:?}"
exec python3 "$(dirname "$0")/contract_matrix.py"
