#!/usr/bin/env python3
"""The contract of preparations for GPU engines, in the kernel's own limits.

For every format and every target that takes it: `lode prepare --target` ends well inside a memory cgroup, the
limit is not hit once, at most 16 MiB of the sources are in the page cache at the end, and the ledger of the run
is its plan, byte for byte. Of the result nothing stays in memory, so the limit is 64 MiB alone, and the models are
larger: stricter than final + 64 MiB.

  tests/e2e/contract_targets.py --lode build/release/lode --synth build/dev/lode-synth [--full] [--json FILE]

Without --full: every pair once, 1, 2, 4 and 16 threads taking turns. With it each pair with each number of threads,
models of a gigabyte. Exit status 1 where something did not hold, 77 where nothing can be measured.
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
THREADS = (1, 2, 4, 16)
TARGETS = ("marlin", "flashinfer-cutlass", "flashinfer-trtllm", "flashinfer-b12x", "vllm-cutlass", "deepgemm")
# Bits of a weight, and what lode-synth is told beside the format.
FORMATS = {"nvfp4": (4.5, []), "nvfp4-ct": (4.5, []), "mxfp4": (4.25, []),
           "mxfp4-in-turn": (4.25, ["--preset", "gpt-oss-20b-layers", "--top-k", "4"]),
           "fp8-block": (8, []), "fp8-tensor": (8, []), "bf16": (16, [])}
# BF16 experts that are quantised on the way, and to which target.
ONLINE = {"fp8-tensor": "vllm-cutlass", "fp8-channel": "marlin", "fp8-block": "deepgemm", "mxfp8": "flashinfer-trtllm",
          "mxfp4": "flashinfer-b12x", "nvfp4": "flashinfer-cutlass"}
# Experts of Mixtral-8x7B's size, 89 to 336 MiB, which come in windows: of rows, and of columns that are gathered.
LARGE = [("nvfp4", "marlin", ""), ("fp8-block", "deepgemm", "")]
LARGE_WITH_FULL = [("mxfp4", "flashinfer-trtllm", ""), ("fp8-block", "flashinfer-trtllm", ""), ("fp8-tensor", "marlin", ""),
                   ("bf16", "marlin", "fp8-channel"), ("bf16", "deepgemm", "fp8-block"),
                   ("bf16", "flashinfer-cutlass", "nvfp4")]
UNSUPPORTED = 11


def make_model(synth, folder, name, expert_bytes):
    """Two layers of random codes, so many bytes of experts; of none given two large experts."""
    bits, how = FORMATS[name]
    hidden, width, layers, experts = 4096, 14336, 1, 2
    if expert_bytes:
        hidden, width, layers = 1024, 768, 2
        experts = max(8, -(-expert_bytes // (layers * int(3 * hidden * width * bits / 8))))
    command = [synth, "--format", name.removesuffix("-in-turn"), "--random-codes", "--out", folder, "--layers", layers,
               "--hidden", hidden, "--intermediate", width, "--experts", experts, "--vocab", 4096, "--force",
               *(how or ["--preset", "qwen3-30b-a3b-layers"]), *([] if expert_bytes else ["--top-k", 2])]
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise SystemExit(f"lode-synth failed: {made.stderr}")


@dataclasses.dataclass
class Row:
    model: str
    target: str
    threads: int
    online: str = ""
    output_bytes: int = 0
    peak_bytes: int | None = None
    limit_hits: int | None = None
    high_water_bytes: int = 0
    cached_bytes: int | None = None
    seconds: float = 0.0
    wrong: list = dataclasses.field(default_factory=list)
    limited_by: str = ""

    def name(self):
        online = f" by {self.online}" if self.online else ""
        return f"{self.model}{online} to {self.target}, {self.threads} threads"


def check_row(row, report, receipt):
    """What does not hold, in words."""
    if report.exit_status != 0 or report.limit_hits or report.oom_kills:
        yield f"exit status {report.exit_status}, {report.limit_hits} hits, {report.oom_kills} kills"
        return
    if report.high_water_bytes > ALLOWANCE:
        yield f"high water {report.high_water_bytes / MIB:.1f} MiB"
    if report.cached_bytes is None or report.cached_bytes > MOST_CACHED:
        yield f"{report.cached_bytes} bytes of the sources in the page cache"
    if not receipt["as_planned"] or receipt["actual"] != receipt["planned"]:
        yield "the ledger is not the plan"
    if row.output_bytes <= ALLOWANCE:
        yield f"a result of {row.output_bytes} bytes proves nothing"


class Pairs:
    def __init__(self, options, work):
        self.options = options
        self.work = pathlib.Path(work)
        self.rows = []
        self.refused = 0

    def takes(self, target):
        """Whether the model can go there: found without a preparation."""
        plan = subprocess.run([self.options.lode, "plan", self.work / "model", "--target", target],
                              capture_output=True, text=True, check=False)
        if plan.returncode not in (0, UNSUPPORTED):
            raise SystemExit(f"lode plan --target {target}: {plan.stderr}")
        return plan.returncode == 0

    def prepare(self, row):
        if self.options.only not in row.name():
            return
        model, out, receipt, err = (self.work / name for name in ("model", "out", "receipt.json", "err"))
        shutil.rmtree(out, ignore_errors=True)
        receipt.unlink(missing_ok=True)
        command = [self.options.lode, "prepare", model, out, "--target", row.target, "--load-threads", row.threads,
                   "--memory", ALLOWANCE, "--receipt", receipt, *(["--online", row.online] if row.online else [])]
        memory_cgroup.drop_from_cache([model])
        with open(err, "wb") as file:
            report = memory_cgroup.run([str(word) for word in command], ALLOWANCE, [model],
                                       streams={1: file.fileno(), 2: file.fileno()})
        for name in ("peak_bytes", "limit_hits", "high_water_bytes", "cached_bytes", "seconds", "limited_by"):
            setattr(row, name, getattr(report, name))
        told = json.loads(receipt.read_text()) if report.exit_status == 0 else {}
        row.output_bytes = told.get("output_bytes", 0)
        row.wrong = list(check_row(row, report, told))
        if row.wrong:
            row.wrong.append(err.read_text()[-2000:])
        self.rows.append(row)
        held = max(row.peak_bytes or 0, row.high_water_bytes)
        print(f"{row.name()}: {held / MIB:.1f} of {ALLOWANCE / MIB:.0f} MiB for {row.output_bytes / MIB:.0f}, "
              f"{row.seconds:.2f} s" + "".join(f"\n    WRONG: {what}" for what in row.wrong), flush=True)

    def threads(self):
        return THREADS if self.options.full else (THREADS[len(self.rows) % len(THREADS)],)

    def run(self):
        size = (1000 if self.options.full else 72) * MIB
        for name in FORMATS:
            make_model(self.options.synth, self.work / "model", name, size)
            for target in TARGETS:
                if not self.takes(target):
                    self.refused += 1
                    continue
                for threads in self.threads():
                    self.prepare(Row(name, target, threads))
            if name != "bf16":
                continue
            for scheme, target in ONLINE.items():
                for threads in self.threads():
                    self.prepare(Row(name, target, threads, scheme))
        for name, target, scheme in LARGE + (LARGE_WITH_FULL if self.options.full else []):
            make_model(self.options.synth, self.work / "model", name, 0)
            for threads in self.threads():
                self.prepare(Row(f"large {name}", target, threads, scheme))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    near = {"lode": os.environ.get("LODE"), "synth": os.environ.get("LODE_SYNTH")}
    for name in ("lode", "synth"):
        parser.add_argument("--" + name, default=near[name], required=not near[name])
    parser.add_argument("--full", action="store_true", default=os.environ.get("LODE_FULL_TESTS") == "1")
    parser.add_argument("--only", default="", metavar="TEXT", help='only what has this in its name, such as "to marlin, 16"')
    parser.add_argument("--json", help="all rows into this file")
    parser.add_argument("--work", help="folder for models and results, a few gigabytes; default: a temporary one")
    return parser.parse_args()


def main():
    options = arguments()
    if not os.access(options.synth, os.X_OK):
        print(f"there is no {options.synth}")
        sys.exit(77)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.work, prefix="lode-targets-") as work:
        pairs = Pairs(options, work)
        pairs.run()
    wrong = [row for row in pairs.rows if row.wrong]
    if {row.limited_by for row in pairs.rows} - {"memory cgroup v1", "memory cgroup v2"}:
        print("NO MEMORY CGROUP HERE: limited by RLIMIT_DATA, judged by VmHWM and page cache only")
    most = max((max(row.peak_bytes or 0, row.high_water_bytes) for row in pairs.rows), default=0)
    print(f"{len(pairs.rows)} preparations in {time.monotonic() - began:.0f} s, {pairs.refused} pairs that are not valid, "
          f"at most {most / MIB:.1f} MiB, {len(wrong)} wrong")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps([dataclasses.asdict(row) for row in pairs.rows], indent=1) + "\n")
    sys.exit(1 if wrong or not pairs.rows else 0)


if __name__ == "__main__":
    main()
