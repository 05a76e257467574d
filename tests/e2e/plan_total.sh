#!/usr/bin/env bash
# The plan is at least what the whole process holds at its load peak, as the kernel sees it, and at most 8 MiB more:
# a checkpoint by the engines there are, a prepared one that is read, few and many threads that load. Of a mapped one it is at
# least that.
set -euo pipefail
: "${LODE:?}" "${LODE_MODEL:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$LODE" prepare "$LODE_MODEL" "$work/prepared" 2>/dev/null
check() {  # most MiB above, then the command's words
  local most=$1
  shift
  "$LODE" run "$@" -p "The king said" -n 1 -t 1 --receipt "$work/receipt.json" >/dev/null 2>&1
  python3 - "$work/receipt.json" "$most" "$*" <<'PYTHON'
import json, sys
receipt = json.load(open(sys.argv[1]))
above = receipt["planned_load_peak_bytes"] - receipt["kernel"]["peak_total_bytes"]
if not 0 <= above <= int(sys.argv[2]) << 20:
    sys.exit(f"{sys.argv[3]}: the plan is {above} bytes above the process")
PYTHON
}
for threads in 1 16; do
  for io in auto threads buffered; do check 8 "$LODE_MODEL" --io "$io" --load-threads "$threads"; done
  check 8 "$work/prepared" --start read --load-threads "$threads"
  check 8 "$work/prepared" --start read --verify none --load-threads "$threads"
  check 64 "$work/prepared" --verify full --load-threads "$threads"
done
echo "the plan is 0 to 8 MiB above what the process holds"
