#!/usr/bin/env bash
# BF16 experts quantised on the way to each target that takes the result: verified, verified against their source,
# run on the CPU through its layouts. What a scheme makes is the same numbers for every target that keeps them.
set -euo pipefail
: "${LODE:?}" "${LODE_SYNTH:?}"
[ -x "$LODE_SYNTH" ] || { echo "there is no lode-synth"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '[1, 2, 3, 4, 5, 6, 7, 8]' >ids.json

quietly() { "$@" >out 2>&1 || { cat out; echo "failed: $*"; exit 1; }; }

# Sizes that kernels and blocks pad.
quietly "$LODE_SYNTH" --vocab 512 --out model --preset tiny --hidden 192 --intermediate 160 --format bf16

tried=0 refused=0
for scheme in fp8-tensor fp8-channel fp8-block mxfp8 mxfp4 nvfp4; do
  for target in marlin flashinfer-cutlass flashinfer-trtllm flashinfer-b12x vllm-cutlass deepgemm; do
    status=0
    rm -rf prepared
    "$LODE" prepare model prepared --target "$target" --online "$scheme" >out 2>&1 || status=$?
    if [ "$status" = 11 ]; then refused=$((refused + 1)); continue; fi
    if [ "$status" != 0 ]; then cat out; echo "$scheme to $target: exit status $status"; exit 1; fi
    quietly "$LODE" verify prepared
    quietly "$LODE" verify prepared --against model
    quietly "$LODE" logits prepared --ids ids.json --compute exact --out "logits-$scheme-$target"
    tried=$((tried + 1))
  done
done
echo "$tried ways held, $refused refused"
[ "$tried" -ge 22 ] || { echo "wanted 22 ways at least"; exit 1; }

# Marlin rounds FP8 scales to 16 bits, b12x folds two scales into one, deepgemm wants powers of two; the others keep
# what was quantised.
same() {  # scheme targets...
  local scheme=$1 first=$2 target
  for target in "${@:3}"; do
    cmp "logits-$scheme-$first" "logits-$scheme-$target" || { echo "$scheme: $first and $target differ"; exit 1; }
  done
}
same fp8-tensor flashinfer-cutlass flashinfer-trtllm vllm-cutlass
same fp8-block flashinfer-cutlass flashinfer-trtllm vllm-cutlass
same mxfp8 marlin flashinfer-trtllm
same mxfp4 marlin flashinfer-cutlass flashinfer-trtllm flashinfer-b12x vllm-cutlass deepgemm
same nvfp4 marlin flashinfer-cutlass flashinfer-trtllm vllm-cutlass
