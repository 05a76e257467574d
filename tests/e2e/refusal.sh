#!/usr/bin/env bash
# A budget 1 MiB too small is refused in less than a second, and no byte of the weights is read: a sparse
# model of 1.2 GB, byte counters of the process itself.
set -euo pipefail
: "${LODE:?}" "${LODE_SYNTH:?}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$LODE_SYNTH" --preset qwen3-30b-a3b-layers --layers 4 --format mxfp4 --sparse --out "$folder/model" \
  >/dev/null
echo '[1, 2, 3]' >"$folder/ids.json"

python3 - "$LODE" "$folder" <<'PY'
import json, os, subprocess, sys, time
lode, folder = sys.argv[1:]
model, mib = folder + "/model", 1 << 20
options = ["--ctx", "512", "--threads", "2"]
plan = json.loads(subprocess.run([lode, "plan", model, *options, "--json"], check=True,
                                 capture_output=True, text=True).stdout)
assert plan["source_bytes"] >= 1.2e9, plan["source_bytes"]
headers = sum(8 + int.from_bytes(open(f"{model}/{name}", "rb").read(8), "little")
              for name in os.listdir(model) if name.endswith(".safetensors"))
small = sum(os.path.getsize(f"{model}/{name}") for name in os.listdir(model) if name.endswith(".json"))


def ended(command):
  """Exit status, seconds and bytes read of a command, asked of the kernel when it is a zombie."""
  began = time.monotonic()
  process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
  text = process.stderr.read().decode()
  os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
  seconds = time.monotonic() - began
  with open(f"/proc/{process.pid}/io") as file:
    read = int(file.readline().split()[1])
  return process.wait(), seconds, read, text


for budget in (plan["peak_bytes"] - mib, plan["peak_bytes"] - 1):
  for command in (["plan", model], ["run", model, "-p", "x"]):
    status, seconds, read, text = ended([lode, *command, *options, "--memory", str(budget)])
    print(f"{command[0]} in {budget} bytes: status {status}, {seconds:.3f} s, {read} bytes read")
    assert status == 3, (status, text)
    assert seconds < 1, seconds
    # Headers and configs once; the rest are shared libraries' own headers and files of /proc.
    assert read < headers + 4 * small + 256 * 1024, (read, headers, small)
    assert "fits" in text, text
PY
