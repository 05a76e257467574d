#!/usr/bin/env bash
# With --hard-limit the kernel's limit on private memory is the plan's peak and a margin. A run keeps within it
# with few and many threads and answers the same; so does bench, which then has no room to measure bandwidth.
set -euo pipefail
: "${LODE:?}" "${LODE_MODEL:?}"
answer() { "$LODE" run "$LODE_MODEL" -p "The king said" -n 8 --greedy "$@" 2>/dev/null; }
wanted=$(answer)
for threads in 1 2 32; do
  found=$(answer --hard-limit -t "$threads")
  [ "$found" = "$wanted" ] || { echo "with $threads threads: $found"; exit 1; }
done
"$LODE" bench "$LODE_MODEL" -p 8 -n 8 -r 1 --hard-limit | grep -q tg8
echo "the same answers below the hard limit"
