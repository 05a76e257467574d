#!/usr/bin/env python3
"""The figures of docs/budget.md: the contract inside the kernel's limits, at full size, at the speed of the disk.

    bench/budget.py --lode build/release/lode --synth build/dev/lode-synth --driver build/dev/load_driver \\
        --work FOLDER [--parts matrix full giant speed prepared] [--quick] [--write docs/budget.md]

FOLDER is on the disk to be measured, with 40 GB free; models are made there one at a time and removed. Each part's
result is kept in FOLDER/budget.json, so that parts can be run one by one; --write puts what is there between the
marks of the document. --quick takes small models and is for trying the script out.
"""
import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import memory_cgroup  # noqa: E402

MIB = 1 << 20
GIB = 1 << 30
MARKS = ("<!-- bench/budget.py -->", "<!-- bench/budget.py end -->")
# About 400 GB in 180,624 tensors and 200 files, the codes holes.
GIANT = ["--family", "qwen3_moe", "--layers", "61", "--hidden", "7168", "--intermediate", "1664", "--experts", "328",
         "--top-k", "8", "--heads", "64", "--kv-heads", "8", "--head-dim", "128", "--vocab", "129280",
         "--format", "nvfp4", "--shards", "200", "--sparse"]
FULL = [("gpt-oss-20b, MXFP4", ["--preset", "gpt-oss-20b", "--format", "mxfp4", "--shards", "3"]),
        ("Qwen3-30B-A3B, NVFP4", ["--preset", "qwen3-30b-a3b", "--format", "nvfp4", "--shards", "4"])]
QUICK = {"full": ["--layers", "2", "--vocab", "32768"], "giant": ["--layers", "3", "--shards", "10"]}


def fail(text):
    sys.exit(f"budget.py: {text}")


def words(*parts):
    return [str(part) for part in parts]


def output(command):
    done = subprocess.run(words(*command), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{' '.join(words(*command))}: status {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def replaced(recipe, changes):
    """A recipe with other numbers for some of its flags."""
    recipe = list(recipe)
    for flag, number in zip(changes[::2], changes[1::2]):
        if flag in recipe:
            recipe[recipe.index(flag) + 1] = number
        else:
            recipe += [flag, number]
    return recipe


def knows(lode, command, flag):
    return flag in subprocess.run([lode, *command, "--help"], capture_output=True, text=True, check=False).stdout


class Budget:
    def __init__(self, options):
        self.options = options
        self.work = pathlib.Path(options.work)
        self.results = self.work / "budget.json"
        self.all = json.loads(self.results.read_text()) if self.results.exists() else {}

    def keep(self, part, result):
        result["date"] = datetime.date.today().isoformat()
        result["quick"] = self.options.quick
        self.all[part] = result
        self.results.write_text(json.dumps(self.all, indent=1) + "\n")
        print(f"{part}: {json.dumps(result)[:2000]}", flush=True)

    @contextlib.contextmanager
    def model(self, recipe, need_bytes):
        """A synthetic checkpoint, there for a while. Written out, and out of the page cache."""
        free = shutil.disk_usage(self.work).free
        if free < need_bytes + 4 * GIB:
            fail(f"{self.work} has {free / GIB:.0f} GiB free, {need_bytes / GIB + 4:.0f} are needed")
        folder = self.work / "model"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            print(output([self.options.synth, "--out", folder, *recipe]).strip(), flush=True)
            memory_cgroup.drop_from_cache([folder])
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def plan(self, folder, *flags):
        return json.loads(output([self.options.lode, "plan", folder, *flags, "--json"]))

    def limited(self, command, limit, folder):
        """Report of a cgroup and standard output of a command whose sources are not cached."""
        memory_cgroup.drop_from_cache([folder])
        out = self.work / "out"
        with open(out, "wb") as file:
            report = memory_cgroup.run(words(*command), limit, [folder], require=True, streams={1: file.fileno()})
        return report, out.read_text()

    # Parts.

    def matrix(self):
        options, out = self.options, self.work / "matrix.json"
        command = [sys.executable, ROOT / "tests/e2e/contract_matrix.py", "--lode", options.lode, "--synth",
                   options.synth, "--driver", options.driver, "--work", self.work, "--json", out, "--margins"]
        began = time.monotonic()
        done = subprocess.run(words(*command, *([] if options.quick else ["--full"])), check=False)
        told = json.loads(out.read_text())
        engines = sorted({row["engine"] for row in told["rows"]})
        self.keep("matrix", {"summary": told["summary"], "controls": told["controls"], "engines": engines,
                             "limited_by": told["limited_by"], "held": done.returncode == 0,
                             "seconds": time.monotonic() - began})

    def full_size(self, name, recipe):
        flags = ["--ctx", 512, "--chunk", 128]
        receipt = self.work / "receipt.json"
        rows = []
        small = QUICK["full"] if self.options.quick else []
        with self.model([*replaced(recipe, small), "--random-codes"], 2 * GIB if self.options.quick else 19 * GIB) as folder:
            plan = self.plan(folder, *flags)
            for inside in (False, True):
                limit = plan["peak_bytes"] if inside else memory_cgroup.parse_bytes("1000GiB")
                command = [self.options.lode, "bench", folder, "-p", 128, "-n", 32, "-r", 3, *flags, "--json",
                           "--memory", plan["peak_bytes"], "--receipt", receipt]
                report, text = self.limited(command, limit, folder)
                if report.exit_status != 0:
                    rows.append({"inside": inside, "exit_status": report.exit_status})
                    continue
                told = json.loads(receipt.read_text())
                speeds = {line["tag"]: line["tok_s"] for line in json_lines(text)}
                rows.append({"inside": inside, "exit_status": 0, "peak_bytes": report.peak_bytes,
                             "limit_hits": report.limit_hits, "high_water_bytes": report.high_water_bytes,
                             "cached_bytes": report.cached_bytes, "load_seconds": told["load_us"] / 1e6,
                             "source_bytes": told["source_bytes"], "weight_bytes": told["weight_bytes"],
                             "as_planned": told["as_planned"], "speeds": speeds})
        return {"name": name, "planned_peak_bytes": plan["peak_bytes"], "rows": rows}

    def full(self):
        self.keep("full", {"models": [self.full_size(name, recipe) for name, recipe in FULL]})

    def giant(self):
        options, rounds = self.options, []
        with self.model(replaced(GIANT, QUICK["giant"] if options.quick else []), GIB) as folder:
            for _ in range(5):
                report, text = self.limited([options.lode, "plan", folder, "--machine", "1TiB", "--json"], 64 * MIB,
                                            folder)
                rounds.append({"seconds": report.seconds, "high_water_bytes": report.high_water_bytes,
                               "peak_bytes": report.peak_bytes, "limit_hits": report.limit_hits,
                               "exit_status": report.exit_status})
            plan = json.loads(text) if report.exit_status == 0 else {}
            result = {"rounds": rounds, "source_bytes": plan.get("source_bytes"),
                      "files": len(list(folder.glob("*.safetensors"))), "sink": self.through_sink(folder)}
        self.keep("giant", result)

    def through_sink(self, folder):
        """The whole load, its slabs redirected into a sum: what remains is the transient."""
        command = [self.options.driver, folder, "stream", 2]
        report, text = self.limited(command, 128 * MIB, folder)
        return {"exit_status": report.exit_status, "high_water_bytes": report.high_water_bytes,
                "peak_bytes": report.peak_bytes, "limit_hits": report.limit_hits, "seconds": report.seconds,
                "cached_bytes": report.cached_bytes, "told": json_lines(text)}

    def speed(self):
        options = self.options
        if not knows(options.lode, ["bench", "load"], "--rounds"):
            fail("this lode has no `bench load`")
        layers = "1" if options.quick else "8"
        recipe = ["--preset", "qwen3-30b-a3b", "--layers", layers, "--vocab", "32768", "--random-codes"]
        result = {}
        for storage in ("nvfp4", "mxfp4", "fp8-block", "bf16"):
            count = 128 if storage in ("nvfp4", "mxfp4") else 64 if storage == "fp8-block" else 32
            with self.model([*recipe, "--format", storage, "--experts", str(count)], 4 * GIB) as folder:
                rounds = 1 if options.quick else 7
                text = output([options.lode, "bench", "load", folder, "--rounds", rounds, "--json"])
                result[storage] = json_lines(text)
        self.keep("speed", {"storages": result})

    def prepared(self):
        options = self.options
        if not knows(options.lode, [], "prepare"):
            fail("this lode has no `prepare`")
        recipe = ["--preset", "qwen3-30b-a3b", "--format", "nvfp4", "--random-codes", "--layers",
                  "1" if options.quick else "12"]
        out, receipt = self.work / "prepared", self.work / "receipt.json"
        shutil.rmtree(out, ignore_errors=True)
        try:
            with self.model(recipe, 12 * GIB) as folder:
                prepare = self.limited([options.lode, "prepare", folder, out], memory_cgroup.parse_bytes("1000GiB"),
                                       folder)[0]
            rows = {"prepare": dataclasses.asdict(prepare)}
            for name, command in (("verify", ["verify", out]),
                                  ("run", ["bench", out, "-p", 0, "-n", 8, "-r", 1, "--receipt", receipt])):
                report, _ = self.limited([options.lode, *command], memory_cgroup.parse_bytes("1000GiB"), out)
                rows[name] = dataclasses.asdict(report)
            if rows["run"]["exit_status"] == 0:
                rows["load_us"] = json.loads(receipt.read_text())["load_us"]
        finally:
            shutil.rmtree(out, ignore_errors=True)
        self.keep("prepared", rows)


# The document.


def mib(number):
    return "unknown" if number is None else f"{number / MIB:.1f} MiB"


def gib(number):
    return f"{number / GIB:.2f} GiB"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows] + [""]


def told_of(above, counts):
    return f"final + {above} MiB: " + (", ".join(f"{number} {what}" for what, number in counts.items()
                                                 if what != "loads") or "none") + f" of {counts['loads']}"


def matrix_text(part):
    told = part["summary"]
    breaches = "; ".join(f"{one['breach']}: {one['outcome']}" for one in part["controls"])
    low, high = told["total_error_bytes"]
    engines = ", ".join(part["engines"])
    return ["### The matrix", "",
            f"Six storages, engines {engines}, 1, 2, 4 and 16 load threads, four ways in which tensors lie; "
            f"`tests/e2e/contract_matrix.py`, limit kept by {', '.join(part['limited_by'])}. "
            + ("Everything that must hold held." if part["held"] else "NOT everything that must hold held."), "",
            *[f"- {told_of(above, told[above])}." for above in ("64", "48", "32")],
            "  Refused means: by the plan, before a byte of weights was read.",
            f"- Most above final, as charged or as high water: {mib(told['most_above_final_bytes'])}; the plan asks "
            f"for up to {mib(told['most_planned_above_final_bytes'])}. Least slack below + 64: "
            f"{mib(told['least_slack_bytes'])}.",
            f"- Sources left in the page cache: {told['most_cached_bytes']} bytes at most.",
            f"- Plan's total less high water at the peak of the load: {mib(low)} to {mib(high)}. Ledger and plan: "
            "0 bytes apart.",
            f"- Loads that break the contract, inside final + 64 MiB: {breaches}.", ""]


def full_text(part):
    rows = []
    planned = all(row.get("as_planned", True) for model in part["models"] for row in model["rows"])
    for model in part["models"]:
        for row in model["rows"]:
            where = "cgroup of the plan's figure" if row["inside"] else "no limit"
            if row["exit_status"] != 0:
                rows.append([model["name"], where, f"exit status {row['exit_status']}", *[""] * 6])
                continue
            speeds = ", ".join(f"{tag} {speed:.1f}" for tag, speed in row["speeds"].items())
            rows.append([model["name"], where, gib(model["planned_peak_bytes"]), gib(row["peak_bytes"]),
                         row["limit_hits"], gib(row["high_water_bytes"]),
                         f"{row['load_seconds']:.1f} s, {row['source_bytes'] / 1e9 / row['load_seconds']:.2f} GB/s",
                         f"{row['cached_bytes'] / MIB:.1f}", speeds])
    head = ["model", "inside", "plan", "charged at most", "limit hits", "high water", "cold load", "cache left, MiB",
            "tokens/s"]
    return ["### Full size", "", "Every layer, random codes; a prompt of 128 tokens (pp128), then 32 tokens one by one "
            "(tg32). " + ("The receipt of every run equals its plan." if planned else
                          "NOT every receipt equals its plan."), "", *table(head, rows)]


def giant_text(part):
    rounds = part["rounds"]
    lines = ["### 400 GB, 180,000 tensors", "",
             f"{(part['source_bytes'] or 0) / 1e9:.0f} GB in {part['files']} files, NVFP4, codes as holes. `lode plan` "
             f"inside a cgroup of 64 MiB, files not cached, five rounds: {statistics.median(r['seconds'] for r in rounds):.2f} s "
             f"({min(r['seconds'] for r in rounds):.2f} to {max(r['seconds'] for r in rounds):.2f}), high water "
             f"{mib(max(r['high_water_bytes'] for r in rounds))}, {sum(r['limit_hits'] for r in rounds)} limit hits."]
    sink = part.get("sink")
    if sink is None:
        return [*lines, "The load of it into a sink was not measured.", ""]
    return [*lines, f"The whole load with its slabs redirected into a checksum, inside 128 MiB: exit status "
            f"{sink['exit_status']}, {sink['seconds']:.0f} s, charged at most {mib(sink['peak_bytes'])}, high water "
            f"{mib(sink['high_water_bytes'])}, {sink['limit_hits']} limit hits, {mib(sink['cached_bytes'])} of cache.", ""]


def speed_text(part):
    rows = []
    for storage, lines in part["storages"].items():
        tests = {line["test"]: line for line in lines if "test" in line}
        ratios = {line["ratio"]: line for line in lines if "ratio" in line}

        def speed(name):
            return f"{tests[name]['bytes_per_second'] / 1e9:.2f}" if name in tests else "-"

        def ratio(name):
            line = ratios.get(name)
            return f"{line['median']:.2f} ({line['least']:.2f}-{line['most']:.2f})" if line else "-"

        cold = tests.get("cold", {})
        rows.append([storage, speed("raw"), speed("cold"), ratio("cold/raw"), ratio("cold/buffered"), speed("warm"),
                     speed("ring"), ratio("warm/ring"), speed("copy"), ratio("warm/copy"), f"{cold.get('cpu_seconds_per_gb', 0):.2f}", cold.get("io", "")])
    head = ["storage", "raw, GB/s", "cold, GB/s", "cold / raw", "cold / buffered", "warm, GB/s",
            "memcpy through the ring, GB/s", "warm / ring", "memcpy, GB/s", "warm / memcpy", "CPU s per GB, cold", "engine"]
    return ["### Speed of a load", "", "`lode bench load`, medians of the rounds and of their ratios; *raw* reads as many "
            "bytes past the page cache and throws them away, *cold* is the load with everything that is done to them.", "",
            *table(head, rows)]


def prepared_text(part):
    rows = []
    for name in ("prepare", "verify", "run"):
        row = part[name]
        rows.append([name, row["exit_status"], f"{row['seconds']:.1f}", f"{row['cpu_seconds']:.1f}",
                     mib(row["high_water_bytes"]), mib(row["cached_bytes"])])
    lines = ["### Prepared start", "", "Twelve layers of Qwen3-30B-A3B in NVFP4; *run* opens the prepared folder and makes "
             "eight tokens.", "",
             *table(["command", "exit status", "seconds", "of processors", "high water", "cache of its files"], rows)]
    if "load_us" in part:
        lines += [f"Until the weights were there: {part['load_us'] / 1e3:.0f} ms.", ""]
    return lines


TEXTS = {"matrix": matrix_text, "full": full_text, "giant": giant_text, "speed": speed_text, "prepared": prepared_text}


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def wrapped(lines):
    """Lines of prose broken at 118 columns, as the rest of the document; tables as they are."""
    for line in lines:
        indent = "  " if line.startswith(("- ", "  ")) else ""
        while len(line) > 118 and not line.startswith("|"):
            at = line.rfind(" ", 0, 118)
            if at <= len(indent):
                break
            yield line[:at]
            line = indent + line[at + 1:]
        yield line


def document(results):
    total = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) << 10
    dates = sorted({part["date"] for name, part in results.items() if name in TEXTS})
    lines = [f"Made by `bench/budget.py` on {', '.join(dates)}: {os.cpu_count()} processors ({processor()}), "
             f"{gib(total)} of memory, Linux {platform.release()}, one virtual disk with ext4. The machine is shared: "
             "figures are of that day, ratios say more than seconds.", ""]
    if any(part["quick"] for part in results.values()):
        lines += ["**A trial with small models (`--quick`): these are no results.**", ""]
    for name, text in TEXTS.items():
        if name in results:
            lines += text(results[name])
    return "\n".join(wrapped(lines)).rstrip() + "\n"


def write(path, results):
    page = path.read_text()
    if page.count(MARKS[0]) != 1 or page.count(MARKS[1]) != 1:
        fail(f"{path} does not have the marks {MARKS[0]} and {MARKS[1]} once each")
    before, rest = page.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    path.write_text(f"{before}{MARKS[0]}\n\n{document(results)}\n{MARKS[1]}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("lode", "synth", "driver", "work"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--parts", nargs="*", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", type=pathlib.Path, metavar="DOCUMENT")
    options = parser.parse_args()
    pathlib.Path(options.work).mkdir(parents=True, exist_ok=True)
    budget = Budget(options)
    for part in options.parts:
        began = time.monotonic()
        getattr(budget, part)()
        print(f"{part} took {time.monotonic() - began:.0f} s", flush=True)
    if options.write:
        write(options.write, budget.all)


if __name__ == "__main__":
    main()
