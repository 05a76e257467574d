#!/usr/bin/env bash
# Every target that takes a format: prepared, verified, verified against its source, run on the CPU through its
# layouts with the same logits, bit by bit, as the source gives. The scales of the models are powers of two, which
# each engine's own rounding keeps. With padding and without, gate and up in halves and in turn, exports and ranks.
set -euo pipefail
. "$(dirname "$0")/../support/prepared_targets.sh"

try_target() {  # model target
  prepare_and_run "$1" "logits-$2" --target "$2" || return 0
  cmp "logits-$2" "logits-$1" || { echo "$1 to $2: other logits than the source's"; exit 1; }
}

make_model() {  # name arguments...
  quietly "$LODE_SYNTH" --vocab 512 --out "$@"
  logits "$1" "logits-$1"
}
even=(--random-codes --even-scales)
even_sizes=(--preset tiny --hidden 256 --intermediate 256)
odd_sizes=(--preset tiny --hidden 192 --intermediate 160)
for format in nvfp4 mxfp4 fp8-tensor fp8-block; do
  make_model "$format" "${even_sizes[@]}" --format "$format" "${even[@]}"
done
for format in nvfp4 mxfp4 fp8-tensor; do make_model "odd-$format" "${odd_sizes[@]}" --format "$format" "${even[@]}"; done
make_model bf16 "${odd_sizes[@]}" --format bf16
make_model in-turn --preset tiny-gpt-oss --hidden 128 --intermediate 128 --format mxfp4
for model in nvfp4 mxfp4 fp8-tensor fp8-block odd-nvfp4 odd-mxfp4 odd-fp8-tensor bf16 in-turn; do
  for target in $targets; do
    try_target "$model" "$target"
  done
done
tried_at_least 37

# A byte that was changed is found, by its sum and by name.
rm -rf prepared
quietly "$LODE" prepare nvfp4 prepared --target marlin
last=$(ls prepared/weights-*.bin | tail -n 1)
printf '\377' | dd of="$last" bs=1 seek=$(($(stat -c %s "$last") - 300000)) conv=notrunc status=none
if "$LODE" verify prepared >out 2>&1; then echo "a changed byte was not found"; exit 1; fi

# One rank holds its own experts; together the ranks hold all.
for rank in 0 1 2; do quietly "$LODE" prepare mxfp4 "rank-$rank" --target marlin --ranks 3 --rank $rank; done
quietly "$LODE" verify rank-1 --against mxfp4
if "$LODE" run rank-1 -p x >out 2>&1; then echo "a rank was run by itself"; exit 1; fi

quietly "$LODE" prepare nvfp4 exported --target flashinfer-cutlass --export safetensors
python3 - exported <<'PYTHON'
import json, struct, sys, pathlib
names = {}
for file in pathlib.Path(sys.argv[1]).glob("*.safetensors"):
    with open(file, "rb") as stream:
        header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
    names.update((k, v) for k, v in header.items() if k != "__metadata__")
w13 = names["model.layers.0.mlp.experts.w13_weight"]
assert (w13["dtype"], w13["shape"]) == ("U8", [8, 512, 128]), w13
assert "model.embed_tokens.weight" in names and not any(".experts.0." in name for name in names), sorted(names)
index = json.loads((pathlib.Path(sys.argv[1]) / "model.safetensors.index.json").read_text())
assert set(index["weight_map"]) == set(names)
PYTHON
quietly "$LODE" verify exported --against nvfp4
if "$LODE" verify exported --against mxfp4 >out 2>&1; then echo "an export passed for one of another model"; exit 1; fi
if "$LODE" run exported -p x >out 2>&1; then echo "an export was run"; exit 1; fi
grep -q "an export for target flashinfer-cutlass" out || { echo "not said what it is"; cat out; exit 1; }
"$LODE" inspect exported | grep -q "w13_weight .*\[8, 512, 128\]" || { echo "shapes are not shown"; exit 1; }
echo "an export has the names and shapes of the engine, and is verified against its source"
