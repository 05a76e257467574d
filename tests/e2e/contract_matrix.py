#!/usr/bin/env python3
"""The contract in the kernel's own limits: loads inside a memory cgroup of finished weights + 64 MiB.

For every storage, I/O engine, number of load threads and way in which tensors lie in files: the load ends
well, the limit is not hit once, the process's high water is at most final + 64 MiB, at most 16 MiB of the
sources are in the page cache at the end, the ledger of the run is the plan of the run, byte for byte, and
the plan's total is the process's high water or up to 8 MiB more.
The program, its libraries and its page tables are inside the limit, which is stricter than the contract.
The same loads inside final + 48 and + 32 MiB are recorded, not required. Then a driver that leaks one
tensor, and one that keeps one raw layer, inside the same limit: these must fail, and without their breach
pass.

  tests/e2e/contract_matrix.py --lode build/release/lode --synth build/dev/lode-synth \\
      --driver build/dev/load_driver [--full] [--json FILE] [--work FOLDER]

Without --full: small models, a cell of every storage, engine and number of threads. With it all cells, models
of a gigabyte, stacked tensors of more than 1 GiB. Exit status 1 where something did not hold, 77 where nothing
can be measured.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import memory_cgroup  # noqa: E402

MIB = 1 << 20
ALLOWANCE = 64 * MIB
MOST_CACHED = 16 * MIB
MOST_TOTAL_ERROR = 8 * MIB
THREADS = (1, 2, 4, 16)
ENGINES = ("uring", "threads", "buffered")
# Bits of a weight, for as many experts as make up a size.
FORMATS = {"nvfp4": 4.5, "nvfp4-ct": 4.5, "mxfp4": 4.25, "fp8-block": 8, "fp8-tensor": 8, "bf16": 16}
LAYOUTS = {"one-shard": [], "split": ["--shards", "2", "--split-gate-up"], "unaligned": ["--unaligned"],
           "stacked": ["--storage", "fused"]}
# To load and do nothing: as little beside the weights as there can be.
IDLE = ["--ctx", "1", "--chunk", "1", "-t", "1"]


@dataclasses.dataclass
class Size:
    """Of the models: `stacked_bytes` of gate and up of all experts of a layer, in one tensor where stacked."""
    layers: int
    hidden: int
    width: int
    vocab: int
    stacked_bytes: int

    def experts(self, bits):
        return max(8, -(-self.stacked_bytes * 8 // int(bits * 2 * self.width * self.hidden)))


SMALL = Size(1, 2048, 768, 8192, 72 * MIB)
LARGE = Size(2, 2048, 768, 32768, 300 * MIB)
STACKED = Size(1, 4096, 2048, 4096, 1160 * MIB)  # of FP4 the codes alone are 1 GiB


def make_model(synth, folder, storage, layout, size):
    """One of random codes; gone, the one that was there before."""
    shutil.rmtree(folder, ignore_errors=True)
    experts = size.experts(FORMATS[storage])
    shape = ["--layers", size.layers, "--hidden", size.hidden, "--intermediate", size.width, "--experts", experts,
             "--vocab", size.vocab]
    how = LAYOUTS[layout]
    if layout == "stacked" and storage == "mxfp4":  # as gpt-oss has it: stacked, gate and up alternate
        how = []
        shape += ["--preset", "gpt-oss-20b-layers", "--top-k", 4]
    else:
        shape += ["--preset", "qwen3-30b-a3b-layers"]
    command = [synth, "--format", storage, "--random-codes", "--out", folder, *how, *shape]
    made = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise SystemExit(f"lode-synth failed: {made.stderr}")


def says(lode, command, flag):
    """Whether a command of this build knows a flag."""
    text = subprocess.run([lode, command, "--help"], capture_output=True, text=True, check=False).stdout
    return flag in text


def engines_of(lode):
    """The engines to ask for; [None] where this build has but one."""
    return list(ENGINES) if says(lode, "bench", "--io") else [None]


@dataclasses.dataclass
class Row:
    storage: str
    layout: str
    engine: str
    threads: int
    above_mib: int  # of the limit, above final
    final_bytes: int = 0
    planned_peak_bytes: int = 0
    peak_bytes: int | None = None
    limit_hits: int | None = None
    high_water_bytes: int = 0
    cached_bytes: int | None = None
    total_error_bytes: int | None = None  # plan's total at the peak less the kernel's
    seconds: float = 0.0
    outcome: str = ""
    wrong: list = dataclasses.field(default_factory=list)
    limited_by: str = ""

    def name(self):
        return f"{self.storage} {self.layout} {self.engine} {self.threads} threads +{self.above_mib}"


def outcome_of(report):
    if report.exit_status == 3:
        return "refused"  # by the plan, before anything was read
    if report.exit_status == 137 or report.oom_kills:
        return "killed"
    if report.exit_status != 0:
        return f"status {report.exit_status}"
    return "hit" if report.limit_hits else "passed"


def check_row(row, report, receipt, plan):
    """What does not hold, in words."""
    final = row.final_bytes
    if row.outcome != "passed":
        yield f"{row.outcome}, exit status {report.exit_status}, {report.limit_hits} hits"
        return
    if report.high_water_bytes > final + ALLOWANCE:
        yield f"high water {(report.high_water_bytes - final) / MIB:.1f} MiB above final"
    if report.cached_bytes is None or report.cached_bytes > MOST_CACHED:
        yield f"{report.cached_bytes} bytes of the sources in the page cache"
    if not 0 <= row.total_error_bytes <= MOST_TOTAL_ERROR:
        yield f"the plan's total is {row.total_error_bytes / MIB:.1f} MiB above the process's high water"
    if not receipt["as_planned"] or receipt["actual"] != plan["stages"]:
        yield "the ledger is not the plan"


class Matrix:
    def __init__(self, options):
        self.options = options
        self.rows = []
        self.notes = []

    def planned(self, folder, flags):
        command = [self.options.lode, "plan", folder, *IDLE, *flags, "--json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def limited(self, command, limit, folder, err):
        """A command inside a cgroup, its standard output and error into a file."""
        memory_cgroup.drop_from_cache([folder])
        with open(err, "wb") as file:
            streams = {1: file.fileno(), 2: file.fileno()}
            return memory_cgroup.run([str(word) for word in command], limit, [folder], streams=streams)

    def load(self, folder, row):
        """Loads inside final + row.above_mib and fills in the row."""
        flags = ["--load-threads", str(row.threads)]
        own = [] if row.engine == "-" else ["--io", row.engine]
        plan = self.planned(folder, flags + (own if own and says(self.options.lode, "plan", "--io") else []))
        row.final_bytes = plan["weight_bytes"] + plan["page_table_bytes"]
        row.planned_peak_bytes = plan["peak_bytes"]
        receipt, err = folder.parent / "receipt.json", folder.parent / "err"
        receipt.unlink(missing_ok=True)
        command = [self.options.lode, "bench", folder, "-p", 0, "-n", 0, *IDLE, *flags, *own, "--memory",
                   plan["peak_bytes"], "--receipt", receipt]
        report = self.limited(command, row.final_bytes + row.above_mib * MIB, folder, err)
        row.outcome, row.limited_by = outcome_of(report), report.limited_by
        for name in ("peak_bytes", "limit_hits", "high_water_bytes", "cached_bytes", "seconds"):
            setattr(row, name, getattr(report, name))
        told = None
        if row.outcome == "passed":
            told = json.loads(receipt.read_text())
            # Page tables are in the plan's total, and not in what the process has resident.
            load = max((stage for stage in plan["stages"] if stage["name"] != "work"),
                       key=lambda stage: stage["peak_total_bytes"])
            planned = load["peak_total_bytes"] - load["peak_bytes"]["page_tables"]
            row.total_error_bytes = planned - report.high_water_bytes
        if row.above_mib * MIB == ALLOWANCE:
            row.wrong = list(check_row(row, report, told, plan))
            if row.wrong:
                row.wrong.append(err.read_text()[-2000:])
        self.rows.append(row)
        return row

    def cell(self, folder, storage, layout, engine, threads):
        if self.options.only not in Row(storage, layout, engine or "-", threads, 64).name():
            return
        for above in (64, 48, 32) if self.options.margins else (64,):
            row = self.load(folder, Row(storage, layout, engine or "-", threads, above))
            if above == 64:
                over = max(row.peak_bytes or 0, row.high_water_bytes) - row.final_bytes
                print(f"{row.name()}: {row.outcome}, {over / MIB:.1f} MiB above {row.final_bytes / MIB:.0f}, "
                      f"plan +{(row.planned_peak_bytes - row.final_bytes) / MIB:.1f}, {row.seconds:.2f} s"
                      + "".join(f"\n    WRONG: {what}" for what in row.wrong), flush=True)

    def run_full(self, folder, engines):
        for storage in self.options.formats:
            for layout in LAYOUTS:
                if not any(self.options.only in Row(storage, layout, engine or "-", threads, 64).name()
                           for engine in engines for threads in THREADS):
                    continue
                large = STACKED if layout == "stacked" else LARGE
                make_model(self.options.synth, folder, storage, layout,
                           large if self.options.models == "large" else SMALL)
                for engine in engines:
                    for threads in THREADS:
                        self.cell(folder, storage, layout, engine, threads)

    def run_small(self, folder, engines):
        """Every storage with every engine; the other two take turns."""
        layouts = list(LAYOUTS)
        for i, storage in enumerate(self.options.formats):
            layout = layouts[(i + 3) % 4]
            make_model(self.options.synth, folder, storage, layout, SMALL)
            for j, engine in enumerate(engines):
                self.cell(folder, storage, layout, engine, THREADS[(i + j) % 4])

    def control(self, folder, breach, must_pass):
        plan = self.planned(folder, [])
        final = plan["weight_bytes"] + plan["page_table_bytes"]
        report = self.limited([self.options.driver, folder, breach], final + ALLOWANCE, folder,
                              folder.parent / "err")
        outcome = outcome_of(report)
        if report.peak_bytes is None and report.high_water_bytes > final + ALLOWANCE:
            outcome = "too high"
        held = (outcome == "passed") == must_pass
        print(f"control, breach {breach}: {outcome}, as it should" if held else
              f"control, breach {breach}: {outcome}, WRONG", flush=True)
        if not held:
            print((folder.parent / "err").read_text()[-2000:])
        self.notes.append({"breach": breach, "outcome": outcome, "held": held})
        return held

    def controls(self, folder):
        make_model(self.options.synth, folder, "nvfp4", "one-shard",
                   dataclasses.replace(SMALL, vocab=32768, layers=2))
        return all([self.control(folder, "none", True), self.control(folder, "tensor", False),
                    self.control(folder, "layer", False)])


def summary(rows):
    """What the matrix as a whole says."""
    told = {}
    for above in (64, 48, 32):
        here = [row for row in rows if row.above_mib == above]
        told[str(above)] = {"loads": len(here)}
        for outcome in sorted({row.outcome for row in here}):
            told[str(above)][outcome] = sum(row.outcome == outcome for row in here)
    measured = [row for row in rows if row.above_mib == 64 and row.outcome == "passed"]
    if not measured:
        return told
    over = [max(row.peak_bytes or 0, row.high_water_bytes) - row.final_bytes for row in measured]
    told["most_above_final_bytes"] = max(over)
    told["least_slack_bytes"] = ALLOWANCE - max(over)
    told["most_cached_bytes"] = max(row.cached_bytes for row in measured)
    told["most_planned_above_final_bytes"] = max(row.planned_peak_bytes - row.final_bytes for row in measured)
    errors = [row.total_error_bytes for row in measured]
    told["total_error_bytes"] = [min(errors), max(errors)]
    return told


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    near = {"lode": os.environ.get("LODE"), "synth": os.environ.get("LODE_SYNTH")}
    if near["synth"]:
        near["driver"] = str(pathlib.Path(near["synth"]).parent / "load_driver")
    for name in ("lode", "synth", "driver"):
        parser.add_argument("--" + name, default=near.get(name), required=not near.get(name))
    parser.add_argument("--full", action="store_true", default=os.environ.get("LODE_FULL_TESTS") == "1")
    parser.add_argument("--margins", action="store_true", help="also inside + 48 and + 32 MiB; --full with large models does")
    parser.add_argument("--models", choices=["small", "large"], default="large",
                        help="with --full: of 100 MB, or of 1 GB and more")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help='only cells with this in their name, such as "stacked uring 16 threads"')
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--json", help="all rows and the summary into this file")
    parser.add_argument("--work", help="folder for the models, a few gigabytes; default: a temporary one")
    options = parser.parse_args()
    options.margins = options.margins or options.full and options.models == "large"
    return options


def main():
    options = arguments()
    if not os.access(options.driver, os.X_OK):
        print(f"there is no {options.driver}")
        sys.exit(77)
    matrix = Matrix(options)
    engines = engines_of(options.lode)
    if engines == [None]:
        print("this lode knows no --io: ONE ENGINE ONLY")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.work, prefix="lode-matrix-") as work:
        folder = pathlib.Path(work, "model")
        (matrix.run_full if options.full else matrix.run_small)(folder, engines)
        held = matrix.controls(folder)
    wrong = [row for row in matrix.rows if row.wrong]
    told = summary(matrix.rows)
    by = {row.limited_by for row in matrix.rows}
    if by - {"memory cgroup v1", "memory cgroup v2"}:
        print("NO MEMORY CGROUP HERE: limited by RLIMIT_DATA, judged by VmHWM and page cache only")
    print(json.dumps(told, indent=1))
    print(f"{len(matrix.rows)} loads in {time.monotonic() - began:.0f} s, {len(wrong)} wrong")
    if options.json:
        rows = [dataclasses.asdict(row) for row in matrix.rows]
        text = json.dumps({"summary": told, "controls": matrix.notes, "limited_by": sorted(by), "rows": rows}, indent=1)
        pathlib.Path(options.json).write_text(text + "\n")
    sys.exit(1 if wrong or not held else 0)


if __name__ == "__main__":
    main()
