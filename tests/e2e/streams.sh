#!/usr/bin/env bash
# What is beside the command - closed input, a reader that goes away, a full disk - ends it cleanly.
set -euo pipefail
: "${LODE:?}" "${LODE_MODEL:?}"
[ -d "$LODE_MODEL" ] || { echo "there is no model"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

expect() {  # what wanted command...
  local what=$1 wanted=$2 status=0
  shift 2
  "$@" 2>"$folder/err" || status=$?
  if [ "$status" != "$wanted" ]; then
    cat "$folder/err"
    echo "$what: wanted exit status $wanted, got $status"
    exit 1
  fi
  if grep -qiE 'terminate|abort|exception|sanitizer' "$folder/err"; then
    cat "$folder/err"
    echo "$what: did not end cleanly"
    exit 1
  fi
  echo "$what: exit status $status"
}

run() { "$LODE" run "$LODE_MODEL" -p 'Once upon a time' -n 200 --ignore-end "$@"; }
no_input() { "$LODE" tokenize "$LODE_MODEL" <&-; }
full_disk() { "$LODE" tokenize "$LODE_MODEL" --file "$LODE_MODEL/README.md" >/dev/full; }
full_disk_run() { run >/dev/full; }
full_disk_receipt() { run --receipt /dev/full >/dev/null; }
no_input_run() { run <&- >"$folder/out"; }
closed_output() { run >&-; }

expect "standard input closed" 6 no_input
expect "standard input closed, not needed" 0 no_input_run
expect "disk full" 7 full_disk
expect "disk full while a text is written" 7 full_disk_run
expect "disk full under the receipt" 7 full_disk_receipt
expect "standard output closed" 6 closed_output

# A reader that has seen enough: SIGPIPE ends the command as it ends any other in a pipe (141), or, where
# the signal is ignored, the failed write does.
for trapped in "" "trap '' PIPE;"; do
  status=$(bash -c "$trapped"' { "$0" run "$1" -p Once -n 200 --ignore-end 2>"$2/err"; echo $? >"$2/status"; } |
    head -c 3 >/dev/null; cat "$2/status"' "$LODE" "$LODE_MODEL" "$folder")
  case "$status" in
    141 | 6) echo "reader gone: exit status $status" ;;
    *) cat "$folder/err"; echo "reader gone: exit status $status"; exit 1 ;;
  esac
  if grep -qiE 'terminate|abort|exception' "$folder/err"; then cat "$folder/err"; exit 1; fi
done

# Standard error closed: nobody hears the progress nor the receipt, the text comes all the same.
if [ "$(run --progress json 2>&- | wc -c)" -lt 200 ]; then echo "no text without standard error"; exit 1; fi
