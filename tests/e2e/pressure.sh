#!/usr/bin/env bash
# A load whose memory another program takes while it runs ends with exit status 10 and one line that says
# what was seen: nobody is killed and the limit is never hit. In a control group of its own, so that the
# machine does not notice; where there is none it says so and is skipped.
set -euo pipefail
: "${LODE:?}" "${LODE_SYNTH:?}"
if [ "${LODE_FULL_TESTS:-0}" != 1 ]; then
  echo "with --full (LODE_FULL_TESTS=1)"
  exit 77
fi
tools=$(dirname "$0")/../../tools
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if ! "$tools/in_cgroup" --require --limit 64MiB -- true 2>/dev/null; then
  echo "no memory cgroup can be made here"
  exit 77
fi
"$LODE_SYNTH" --preset qwen3-30b-a3b-layers --layers 2 --vocab 32768 --format mxfp4 --random-codes \
  --out "$folder/model" >/dev/null
echo '[1, 2, 3]' >"$folder/ids.json"

# The load waits (SIGSTOP) as soon as its first byte is there, until the other program has taken its share:
# so it does not depend on who is faster.
cat >"$folder/both.sh" <<'SH'
"$LODE" logits "$1/model" --ids "$1/ids.json" --out "$1/never" --ctx 64 --load-threads 1 --progress json \
  --memory "$3" \
  2>"$1/err" &
load=$!
for _ in $(seq 4000); do
  grep -q '"finished_bytes":[1-9]' "$1/err" && break
  kill -0 "$load" 2>/dev/null || exit 1
  sleep 0.005
done
kill -STOP "$load"
python3 -c 'import sys
taken = bytearray(b"x") * (int(sys.argv[1]) << 20)
print("taken", flush=True)
sys.stdin.read()' "$2" <"$1/pipe" >"$1/balloon" &
exec 9>"$1/pipe"
until grep -q taken "$1/balloon"; do sleep 0.02; done
kill -CONT "$load"
status=0
wait "$load" || status=$?
exec 9>&-
wait
exit "$status"
SH
mkfifo "$folder/pipe"
need=$("$LODE" plan "$folder/model" --ctx 64 --json | python3 -c \
  'import json, sys; print(json.load(sys.stdin)["peak_bytes"] // 2**20 + 1)')
# Room for the load alone and 200 MiB; the other program takes 200 MiB more than it should.
status=0
LODE="$LODE" "$tools/in_cgroup" --require --json --out "$folder/report" --limit $((need + 200))MiB -- \
  bash "$folder/both.sh" "$folder" 400 "${need}MiB" || status=$?
tail -n 1 "$folder/err"
if [ "$status" != 10 ]; then
  cat "$folder/report"
  echo "wanted exit status 10, got $status"
  exit 1
fi
grep -q 'still to come, only .* free (cgroup' "$folder/err"
[ ! -e "$folder/never" ] || { echo "there is an answer"; exit 1; }
