# Sourced by ./lode-test: steps that are timed, logged, counted and named when they fail or are skipped.
passed=0 failed=0 skipped=0
failures=() skips=()
began=$SECONDS cpu=0

part() { printf '\n== %s\n' "$*"; }

skip() {  # what why
  skipped=$((skipped + 1))
  skips+=("$1: $2")
  printf '  %-28s SKIPPED: %s\n' "$1" "$2"
}

# What the finished children have taken of the processors, into cpu; in hundredths of a second. The builtin
# is asked in this shell: in a subshell it would know of no children.
read_cpu() {
  local minutes seconds total=0 word
  times >build/logs/times
  for word in $(tail -n 1 build/logs/times); do
    minutes=${word%m*} seconds=${word#*m}
    seconds=${seconds%s}
    total=$((total + minutes * 6000 + 10#${seconds//[.,]/} / 10))
  done
  cpu=$total
}

# report NAME BEGAN STATUS LOG: one line, with time by the clock and time of the processors; and the log's end
# where it failed.
report() {
  local took=$((SECONDS - $2)) cpu_before=$cpu cpu_took
  read_cpu
  cpu_took=$(((cpu - cpu_before) / 100))
  if [ "$3" = 0 ]; then
    printf '  %-28s ok %5d s %5d s cpu  %s\n' "$1" "$took" "$cpu_took" "${5:-}"
  else
    failures+=("$1")
    printf '  %-28s FAILED %d s (log: %s)\n' "$1" "$took" "$4"
    tail -n 80 "$4" | sed 's/^/    | /'
  fi
}

step() {  # name command...
  local name=$1 start=$SECONDS log="build/logs/$1.log" status=0
  shift
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  report "$name" "$start" "$status" "$log"
  return "$status"
}

# count NAME START LOG STATUS REPORTS...: adds what runners wrote into their reports. A runner that fails without
# a failing test has failed all the same (a sanitizer's exit, a crash after the report).
count() {
  local name=$1 start=$2 log=$3 status=$4 p f s names
  { read -r p f s; mapfile -t names; } < <(python3 tools/count_tests.py "${@:5}")
  if [ "$status" != 0 ] && [ "$f" = 0 ]; then f=1; fi
  if [ "$status" = 0 ] && [ "$((p + f + s))" = 0 ]; then
    echo "no test was run" >>"$log"
    f=1
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  for one in "${names[@]}"; do [ -z "$one" ] || skips+=("$name: $one"); done
  report "$name" "$start" "$f" "$log" "$p passed, $f failed, $s skipped"
}

# Each program runs twice at once, each time half of its tests: most have one thread.
gtests() {  # BUILD[@label] programs...
  local label=$1 build=build/${1%@*} program half
  shift
  for program in "$@"; do
    local start=$SECONDS status=0 stem="build/logs/$label-$program" runs=()
    rm -f "$stem".[01].json
    for half in 0 1; do
      GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$half "$build/$program" --gtest_brief=1 \
        --gtest_output="json:$stem.$half.json" >"$stem.$half.log" 2>&1 </dev/null &
      runs+=($!)
    done
    for half in 0 1; do wait "${runs[$half]}" || status=$?; done
    cat "$stem".[01].log >"$stem.log"
    count "$label $program" "$start" "$stem.log" "$status" "$stem".[01].json
  done
}

ctests() {  # name preset ctest's selection...
  local start=$SECONDS status=0 stem=$PWD/build/logs/$1
  rm -f "$stem.xml"
  ctest --test-dir "build/$2" "${@:3}" -j 2 --output-on-failure --output-junit "$stem.xml" >"$stem.log" 2>&1 ||
    status=$?
  count "$1" "$start" "$stem.log" "$status" "$stem.xml"
}

unittests() {  # name folder
  local start=$SECONDS status=0 log=build/logs/$1.log
  python3 -m unittest discover -s "$2" -p '*_test.py' >"$log" 2>&1 </dev/null || status=$?
  count "$1" "$start" "$log" "$status" "$log"
}

# The GoogleTest programs of a build, from what it says itself, not from what lies there.
test_programs() {  # preset
  ctest --test-dir "build/$1" -N -LE '^(compile_fail|fuzz|mpi)$' | sed -n 's/^ *Test *#[0-9]*: //p'
}

both() {  # "words" words...: those in both
  local words=" $1 " word
  shift
  for word in "$@"; do [[ $words == *" $word "* ]] && echo "$word"; done
}

others_than() {  # "words" words...: those not among the first
  local words=" $1 " word
  shift
  for word in "$@"; do [[ $words == *" $word "* ]] || echo "$word"; done
}

machine_has() {  # isa
  local isa
  case "$1" in
    scalar) ;;
    avx512)  # as lode/kernels/cpu.cc asks for
      for isa in avx512{f,bw,dq,vl,_vnni,vbmi}; do grep -qw "$isa" /proc/cpuinfo || return 1; done ;;
    *) grep -qw "$1" /proc/cpuinfo ;;
  esac
}

# tests/e2e/*.sh, each a check of the `lode` command as a user runs it; exit 77 means skipped, its last
# line why. They find the command in LODE, the maker of checkpoints in LODE_SYNTH, the model in LODE_MODEL.
end_to_end() {  # preset
  local script name status start log
  export LODE=$PWD/build/$1/lode LODE_PRESET=$1 LODE_SYNTH=$PWD/build/dev/lode-synth LODE_MODEL=$PWD/models/story-moe-nvfp4
  if [ ! -x "$LODE" ]; then
    skip "end to end" "there is no lode command yet"
    return
  fi
  if [ -d "$LODE_MODEL" ]; then step demo ./lode-demo; else skip demo "there is no $LODE_MODEL yet"; fi
  for script in tests/e2e/*.sh; do
    [ -e "$script" ] || continue
    name=e2e-$(basename "$script" .sh) status=0 start=$SECONDS log=build/logs/$(basename "$script" .sh).log
    bash "$script" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" = 77 ]; then
      skip "$name" "$(tail -n 1 "$log")"
    else
      if [ "$status" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
      report "$name" "$start" "$status" "$log"
    fi
  done
}

finish() {
  printf '\n'
  for one in "${skips[@]}"; do echo "skipped: $one"; done
  for one in "${failures[@]}"; do echo "failed: $one"; done
  echo "took $((SECONDS - began)) s, $((cpu / 100)) s of processors"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ]
  exit
}
