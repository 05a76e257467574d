#!/usr/bin/env bash
# Ctrl-C during a load ends it within a second, with exit status 130 and one line of error.
set -euo pipefail
: "${LODE:?}" "${LODE_SYNTH:?}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Large enough that a load takes a while.
"$LODE_SYNTH" --preset qwen3-30b-a3b-layers --layers 2 --vocab 32768 --format mxfp4 --random-codes \
  --out "$folder/model" >/dev/null
echo '[1, 2, 3]' >"$folder/ids.json"

interrupt() {  # signal
  local status=0 pid lines began ended
  # A background job of a script ignores SIGINT unless something sets it back; python's default does.
  python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' \
    "$LODE" logits "$folder/model" --ids "$folder/ids.json" --out "$folder/never" --load-threads 1 \
    --ctx 64 --progress json 2>"$folder/err" &
  pid=$!
  # As soon as a byte of weights is finished, the load is under way.
  for _ in $(seq 2000); do
    grep -q '"finished_bytes":[1-9]' "$folder/err" 2>/dev/null && break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.005
  done
  began=$(date +%s%N)
  kill -s "$1" "$pid" || { cat "$folder/err"; echo "the load was over before it was interrupted"; exit 1; }
  wait "$pid" || status=$?
  ended=$(date +%s%N)
  if [ "$status" != 130 ]; then
    cat "$folder/err"
    echo "wanted exit status 130 after $1, got $status"
    exit 1
  fi
  local ms=$(((ended - began) / 1000000))
  echo "$1: exit status $status after $ms ms"
  if [ "$ms" -gt 2000 ]; then echo "too slow"; exit 1; fi
  lines=$(grep -c '^lode: ' "$folder/err")
  if [ "$lines" != 1 ]; then cat "$folder/err"; echo "wanted one line of error, got $lines"; exit 1; fi
  if [ -e "$folder/never" ]; then echo "something half-written was left"; exit 1; fi
}

interrupt INT
interrupt TERM
