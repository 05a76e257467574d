"""Runs FP8 models over two ranks without and with balancing and holds what the kernel counts against the ledgers."""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

LODE, SYNTH = os.environ["LODE"], os.environ["LODE_SYNTH"]
MIB = 1 << 20
RANKS, LAYERS = 2, 2
SHAPE = ["--layers", LAYERS, "--experts", 40, "--hidden", 1024, "--intermediate", 512, "--top-k", 4, "--heads", 4, "--kv-heads", 2,
         "--head-dim", 64, "--vocab", 1024, "--random-codes"]
EAGER = ["--balance", "best", "--balance-interval", 6, "--balance-half-life", 6, "--balance-threshold", 0, "--balance-step", "16MiB"]


def held_kib(pid):
    """Anonymous memory of a process, or None where it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    lines = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(lines[0].split()[1]) if lines else None


def bench(model, folder, *more):
    receipt = folder / "receipt.json"
    command = [LODE, "bench", model, "-p", 0, "-n", 120, "-t", 1, "--chunk", 64, "--ranks", RANKS, "--json", "--receipt", receipt, *more]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    held = []
    while process.poll() is None:
        sample = held_kib(process.pid)
        if sample:
            held.append(sample * 1024)
        time.sleep(0.005)
    assert process.returncode == 0, process.stderr.read()
    return held, json.loads(receipt.read_text())


def run(model, folder, *more):
    """What the process held while it worked, and its receipt. Its budget is its plan, so that `bench` has no room to measure the
    memory's speed in, which would be held as well."""
    _, receipt = bench(model, folder, "-r", 1, "--memory", "2GiB", *more)
    planned = sum(rank["planned_peak_bytes"] for rank in receipt["ranks"])
    return bench(model, folder, "-r", 10, "--memory", planned, *more)


def ledger(receipt):
    """Held and at most held of all ranks when the model is ready: they differ by no more than the program."""
    work = [stage for stage in receipt["actual"] if stage["name"] == "work"][0]
    return sum(work["held_bytes"].values()), work["peak_total_bytes"]


def working(samples):
    """Those of the passes: behind the load and before the end."""
    return samples[len(samples) // 2:len(samples) * 9 // 10]


def check(name, folder):
    model = folder / name
    subprocess.run([SYNTH, "--format", name, "--out", str(model), *map(str, SHAPE)], check=True, stdout=subprocess.DEVNULL)
    off, plain = run(model, folder)
    report = folder / "report.json"
    on, balanced = run(model, folder, "--redundant-experts", 4, *EAGER, "--balance-report", report)
    moved = json.loads(report.read_text())
    assert moved["layers_moved"] > 0 and moved["failures"] == 0, moved
    assert all(rank["as_planned"] for rank in balanced["ranks"]), balanced["ranks"]
    (held_off, _), (held_on, peak_on) = ledger(plain), ledger(balanced)
    def sum_of(receipt, member):
        return sum(rank[member] for rank in receipt["ranks"])
    slots = sum_of(balanced, "weight_bytes") - sum_of(plain, "weight_bytes")  # as mapped: with padding to whole pages
    records = sum_of(balanced, "expert_records") - sum_of(plain, "expert_records")
    assert records == 4 * LAYERS and slots >= sum_of(balanced, "expert_bytes") - sum_of(plain, "expert_bytes") > 0, (records, slots)
    tables = RANKS * (held_on - held_off) - slots
    assert 0 < tables < MIB, tables
    on, off = working(on), working(off)
    more = statistics.median(on) - statistics.median(off)
    buffer = RANKS * (peak_on - held_on)
    least = min(on) - min(off)
    print(f"{name}: slots {slots}, tables {tables}, buffers at most {buffer}; the kernel counts {least} more, {more:.0f} in the median")
    assert -2 * MIB <= more - slots - tables <= buffer + 2 * MIB, (more, slots, tables, buffer)
    assert max(on) - max(off) <= slots + tables + buffer + 2 * MIB, (max(on), max(off))
    # Nothing of what moved stays: the least sample is one without a buffer.
    assert abs(least - slots - tables) <= 2 * MIB, (least, slots, tables)


with tempfile.TemporaryDirectory() as temporary:
    for one in ("fp8-block", "fp8-tensor"):
        check(one, pathlib.Path(temporary))
