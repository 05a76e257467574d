#!/usr/bin/env bash
# Experts over ranks: threads of one process, and processes of mpirun where there is one. The same logits, bit by bit,
# and the same text as one rank gives; each rank reads its own experts; what cannot be ends every rank with one error.
set -euo pipefail
story=$(cd "$(dirname "$0")/../../models" && ls -d "$PWD"/story* | head -n 1)
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT

quietly() { "$@" >log 2>&1 || { echo "failed: $*"; cat log; exit 1; }; }
fails() {  # status command...
  local wanted=$1 status=0
  shift
  timeout 60 "$@" >out 2>log || status=$?
  [ "$status" = "$wanted" ] || { echo "exit status $status, not $wanted: $*"; cat log; exit 1; }
}
seq -s, 3 41 | sed 's/^/[/;s/$/]/' >ids.json
logits() { quietly "$LODE" logits "$1" --ids ids.json --out "$2" --compute "$compute" --chunk 16 --memory 512MiB "${@:3}"; }

"$LODE_SYNTH" --preset tiny --hidden 128 --intermediate 96 --format nvfp4 --vocab 512 --out nvfp4 >/dev/null
"$LODE_SYNTH" --preset tiny-gpt-oss --hidden 128 --intermediate 128 --format mxfp4 --vocab 512 --out mxfp4 >/dev/null
"$LODE_SYNTH" --preset tiny --hidden 128 --intermediate 128 --format fp8-block --vocab 512 --out fp8 >/dev/null
for compute in exact fast; do
  for model in nvfp4 mxfp4 fp8; do
    logits "$model" "one-$model-$compute" --layers
    for ranks in "2" "3" "8" "2 --redundant-experts 4" "4 --redundant-experts 8 -t 2"; do
      # shellcheck disable=SC2086
      logits "$model" several --layers --ranks $ranks
      cmp several "one-$model-$compute" || { echo "other logits of $model over $ranks ranks"; exit 1; }
    done
  done
done
quietly "$LODE" prepare nvfp4 prepared
compute=fast logits prepared several --layers --ranks 2
cmp several one-nvfp4-fast

# Each rank reads its experts and what all have, and together they hold what one holds, less nothing.
compute=fast logits nvfp4 several --ranks 4 --receipt receipt.json
compute=fast logits nvfp4 single --receipt single.json
python3 - <<'PYTHON'
import json
receipt, single = json.load(open("receipt.json")), json.load(open("single.json"))
ranks = receipt["ranks"]
assert len(ranks) == 4 and all(rank["as_planned"] for rank in ranks), ranks
assert len({rank["expert_records"] for rank in ranks}) == 1, ranks
assert single["ranks"] == [] and receipt["run"]["ranks"] == 4, single["ranks"]
records = sum(rank["expert_records"] for rank in ranks)
weights = single["weight_bytes"]
assert all(rank["weight_bytes"] < weights for rank in ranks), ranks
whole = single["source_bytes"]
assert all(rank["read_bytes"] < whole for rank in ranks), (ranks, whole)
print("read of", whole, "bytes by each rank:", [rank["read_bytes"] for rank in ranks], "records", records)
PYTHON

text=(-p "Once upon" -n 12 --greedy --ignore-end --memory 512MiB)
"$LODE" run "$story" "${text[@]}" >one 2>/dev/null
"$LODE" run "$story" "${text[@]}" --ranks 3 >several 2>/dev/null
cmp one several

# Experts that move while the text is made: the same text, and an account of it, which planning reads.
eager=(--balance best --balance-interval 3 --balance-half-life 3 --balance-threshold 0 --balance-checksums)
"$LODE" run "$story" "${text[@]}" --ranks 4 --redundant-experts 4 "${eager[@]}" --balance-report balance.json --receipt moved.json >several 2>log
cmp one several
grep -q 'layers moved' log || { cat log; exit 1; }
"$LODE" balance plan balance.json --ranks 4 --redundant-experts 4 --out maps.json >/dev/null
python3 - <<'PYTHON'
import json
report = json.load(open("balance.json"))
assert report["passes"] == 12 and report["looks"] > 1 and report["failures"] == 0, report
assert report["layers_moved"] > 0 and report["received_bytes"] > 0, report
assert report["received_bytes"] == sum(rank["received_bytes"] for rank in report["by_rank"]), report
assert len(report["by_layer"]) == 5 and all(len(layer["rows"]) == 4 for layer in report["by_layer"]), report
assert all(rank["as_planned"] for rank in json.load(open("moved.json"))["ranks"])
PYTHON
"$LODE" balance apply "$story" maps.json --ranks 4 --redundant-experts 4 --memory 512MiB >applied 2>log || { cat log; exit 1; }
grep -q "every record's sum was right" applied || { cat applied; exit 1; }
"$LODE" balance apply "$story" maps.json --ranks 4 --redundant-experts 4 "${text[@]:0:4}" --memory 512MiB >applied 2>/dev/null
head -c "$(wc -c <one)" applied | cmp - one || { cat applied; exit 1; }
# All ranks map a prepared folder: maps change, nothing moves.
quietly "$LODE" prepare "$story" story-prepared
"$LODE" run story-prepared "${text[@]}" --ranks 2 "${eager[@]}" --balance-report balance.json >several 2>/dev/null
cmp one several
python3 -c 'import json; r = json.load(open("balance.json")); assert r["layers_moved"] > 0 and r["received_bytes"] == 0, r'
# FP8 made online for a GPU engine: each rank makes its own experts of it, and they move.
"$LODE_SYNTH" --preset tiny --tokenizer "$story/tokenizer.json" --vocab 4096 --hidden 256 --intermediate 256 --format bf16 --out bf16 >/dev/null
for scheme in fp8-tensor fp8-channel fp8-block; do
  quietly "$LODE" prepare bf16 "online-$scheme" --target marlin --online $scheme
  "$LODE" run "online-$scheme" "${text[@]}" >online-one 2>/dev/null
  "$LODE" run "online-$scheme" "${text[@]}" --ranks 4 --redundant-experts 4 -t 1 "${eager[@]}" --balance-report online.json --receipt moved.json \
    >several 2>/dev/null
  cmp online-one several || { echo "another text of $scheme over ranks"; exit 1; }
  python3 -c 'import json; r = json.load(open("online.json")); assert r["layers_moved"] > 0 and r["received_bytes"] > 0, r
ranks = json.load(open("moved.json"))["ranks"]; assert all(rank["as_planned"] and rank["expert_records"] == 6 for rank in ranks), ranks'
done
fails 11 "$LODE" run story-prepared "${text[@]}" --ranks 2 --start read
fails 2 "$LODE" run "$story" -p ab --ranks 3 --balance best
grep -q -- '--redundant-experts 2' log || { cat log; exit 1; }
fails 2 "$LODE" run "$story" -p ab --ranks 2 --balance best --balance-step 1KiB
fails 2 "$LODE" run "$story" -p ab --ranks 2 --balance best --balance-threshold nan
fails 2 "$LODE" run "$story" -p ab --balance best --balance-report balance.json
fails 2 "$LODE" run "$story" -p ab --ranks 2 --balance best --balance-report one.json --receipt one.json
# A run that is interrupted tells what it did until then.
"$LODE_SYNTH" --preset tiny --tokenizer "$story/tokenizer.json" --vocab 4096 --hidden 1024 --intermediate 512 --layers 8 --format nvfp4 \
  --random-codes --out slow >/dev/null
status=0
timeout --foreground -s INT 2 "$LODE" run slow -p Once -n 1000000 --ctx 4096 --greedy --ignore-end --memory 1GiB --ranks 4 -t 1 "${eager[@]}" \
  --receipt interrupted.json --balance-report interrupted-balance.json >/dev/null 2>log || status=$?
[ "$status" = 124 ] || [ "$status" = 130 ] || { echo "exit status $status of an interrupted run"; cat log; exit 1; }
[ -s interrupted.json ] && [ -s interrupted-balance.json ] || { echo "an interrupted run without its account"; cat log; exit 1; }
grep -q '"passes"' interrupted-balance.json
fails 2 "$LODE" balance apply "$story" maps.json --ranks 2
fails 2 "$LODE" balance apply "$story" maps.json

# One error, in the end of every rank.
fails 2 "$LODE" run "$story" -p ab --ranks 2 --ctx auto
fails 2 "$LODE" run "$story" -p ab --ranks 3 --redundant-experts 3
fails 3 "$LODE" run "$story" -p ab --ranks 4 --memory 24MiB
[ "$(grep -c '^lode: this run' log)" = 1 ] || { cat log; exit 1; }
grep -q -- '--memory [0-9]* fits' log || { cat log; exit 1; }
memory=$(sed -n 's/.*--memory \([0-9]*\) fits.*/\1/p' log)
"$LODE" run "$story" -p ab -n 3 --ranks 4 --memory "$memory" >/dev/null 2>log || { cat log; exit 1; }

if ! command -v mpirun >/dev/null || ! "$LODE" version 2>/dev/null | grep -q MPI; then
  echo "MPI IS NOT INSTALLED HERE: threads as ranks only"
  exit 0
fi
mpi=(mpirun --allow-run-as-root --oversubscribe -n)
for ranks in 2 4; do
  quietly "${mpi[@]}" $ranks "$LODE" logits nvfp4 --ids ids.json --out several --compute fast --chunk 16 --memory 512MiB --layers -t 1
  cmp several one-nvfp4-fast || { echo "other logits over $ranks processes"; exit 1; }
done
"${mpi[@]}" 2 "$LODE" run "$story" "${text[@]}" -t 1 >several 2>/dev/null
cmp one several
"${mpi[@]}" 2 "$LODE" run "$story" "${text[@]}" -t 1 "${eager[@]}" >several 2>log
cmp one several
grep -q 'layers moved' log || { cat log; exit 1; }
# Maps or flags that differ.
"$LODE" balance plan balance.json --ranks 2 --policy identity --out plain.json >/dev/null
sed 's/\[\[0, *1,/[[1,0,/' plain.json >other.json
cmp -s plain.json other.json && { echo "the same maps"; exit 1; }
fails 4 "${mpi[@]}" 1 "$LODE" run "$story" -p ab -t 1 --expert-map plain.json : -n 1 "$LODE" run "$story" -p ab -t 1 --expert-map other.json
fails 4 "${mpi[@]}" 1 "$LODE" run "$story" -p ab -t 1 --balance best : -n 1 "$LODE" run "$story" -p ab -t 1 --balance best --balance-checksums
export STORY=$story
# Different settings.
cat >differ.sh <<'SH'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec "$LODE" run "$STORY" -p ab -t 1 --chunk 7
exec "$LODE" run "$STORY" -p ab -t 1
SH
chmod +x differ.sh
fails 4 "${mpi[@]}" 2 ./differ.sh
[ "$(grep -c '^lode: ' log)" = 1 ] || { cat log; exit 1; }
# A rank that is lost ends the others.
cat >lost.sh <<'SH'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && exec timeout -s KILL 1 "$LODE" bench "$STORY" -p 0 -n 100 -r 10000 -t 1
exec "$LODE" bench "$STORY" -p 0 -n 100 -r 10000 -t 1
SH
chmod +x lost.sh
status=0
timeout 60 "${mpi[@]}" 2 ./lost.sh >out 2>log || status=$?
if [ "$status" != 137 ] && [ "$status" != 13 ]; then echo "a lost rank was not noticed: $status"; cat log; exit 1; fi
echo "ranks agree"
