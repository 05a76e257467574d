# Sourced by scripts of tests/e2e that prepare models for the targets of GPU engines, in a folder of their own.
: "${LODE:?}" "${LODE_SYNTH:?}"
[ -x "$LODE_SYNTH" ] || { echo "there is no lode-synth"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]' >ids.json

targets="marlin flashinfer-cutlass flashinfer-trtllm flashinfer-b12x vllm-cutlass deepgemm"
tried=0 refused=0

quietly() { "$@" >out 2>&1 || { cat out; echo "failed: $*"; exit 1; }; }
logits() { quietly "$LODE" logits "$1" --ids ids.json --compute exact --out "$2"; }  # model file

# Prepares a model, verifies it, also against its source, and runs it on the CPU through its layouts: its logits go
# to a file. What a target does not take is refused with exit status 11: then this fails; all else must hold.
prepare_and_run() {  # model file arguments...
  local model=$1 file=$2 status=0
  shift 2
  rm -rf prepared
  "$LODE" prepare "$model" prepared "$@" >out 2>&1 || status=$?
  if [ "$status" = 11 ]; then refused=$((refused + 1)); return 1; fi
  if [ "$status" != 0 ]; then cat out; echo "$model, $*: exit status $status"; exit 1; fi
  quietly "$LODE" verify prepared
  quietly "$LODE" verify prepared --against "$model"
  logits prepared "$file"
  tried=$((tried + 1))
}

tried_at_least() {  # wanted
  echo "$tried ways held, $refused refused"
  [ "$tried" -ge "$1" ] || { echo "wanted $1 ways at least"; exit 1; }
}
