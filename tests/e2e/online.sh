#!/usr/bin/env bash
# BF16 experts quantised on the way to each target that takes the result: verified, verified against their source,
# run on the CPU through its layouts. What a scheme makes is the same numbers for every target that keeps them.
set -euo pipefail
. "$(dirname "$0")/../support/prepared_targets.sh"

# Sizes that kernels and blocks pad.
quietly "$LODE_SYNTH" --vocab 512 --out model --preset tiny --hidden 192 --intermediate 160 --format bf16

for scheme in fp8-tensor fp8-channel fp8-block mxfp8 mxfp4 nvfp4; do
  for target in $targets; do
    prepare_and_run model "logits-$scheme-$target" --target "$target" --online "$scheme" || true
  done
done
# Biases are no longer than the source's rows, whatever a scheme pads the weights to.
quietly "$LODE_SYNTH" --vocab 512 --out biased --preset tiny-gpt-oss --hidden 96 --intermediate 160 --format bf16
for scheme in fp8-block mxfp4 nvfp4; do
  for target in marlin vllm-cutlass flashinfer-cutlass; do
    prepare_and_run biased biased-logits --target "$target" --online "$scheme" || true
  done
done
tried_at_least 27

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
