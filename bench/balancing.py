#!/usr/bin/env python3
"""Skewed traffic over ranks with and without balancing, and the predicted time of a pass beside the measured.

    bench/balancing.py DIR [--lode build/release/lode] [--ranks 2 4] [--tokens 512] [--distinct-ids 2]

For each number of ranks, threads of one process with one thread each: a prompt of few distinct ids (so that few experts are
asked for) with experts dealt out; the same while `--balance best` moves them; the same on maps that `lode balance plan` makes
from what the first run counted and measured. The plan's prediction is held against the third run. Prints a table in Markdown
and writes what it came from to --out.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile


def lode(options, *arguments):
    return subprocess.run([options.lode, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def bench(options, ranks, report, *more):
    """Tokens a second, and the account of balancing."""
    line = lode(options, "bench", options.folder, "-p", options.tokens, "-n", 0, "-r", options.repeats, "--json", "-t", 1,
                "--chunk", options.tokens, "--ranks", ranks, "--distinct-ids", options.distinct_ids, "--memory", options.memory,
                "--balance-report", report, *more)
    return json.loads(line)["best_tok_s"], json.loads(pathlib.Path(report).read_text())


def pass_ms(report):
    """Of the rank whose passes took longest, which is all of them but for noise."""
    return max(rank["passes_us"] for rank in report["by_rank"]) / report["passes"] / 1e3


def balancedness(report):
    rows = [layer["rows"] for layer in report["by_layer"]]
    return sum(sum(layer) / len(layer) for layer in rows) / sum(max(layer) for layer in rows)


def measure(options, ranks, folder):
    still = ["--balance", "identity"]  # counts and measures; maps that are dealt out are what it wants
    first, counted = bench(options, ranks, folder / "counted.json", *still)
    eager = ["--balance", "best", "--balance-interval", 4, "--balance-half-life", 4, "--balance-bandwidth", "4GB"]
    moving, moved = bench(options, ranks, folder / "moved.json", *eager)
    costs = counted["costs"]
    flags = ["--row-us", costs["row_us"], "--expert-us", costs["expert_us"], "--layer-us", costs["layer_us"]]
    plan = json.loads(lode(options, "balance", "plan", folder / "counted.json", "--ranks", ranks, "--out", folder / "maps.json",
                           "--json", *flags))
    planned, after = bench(options, ranks, folder / "after.json", "--expert-map", folder / "maps.json", *still)
    return {"ranks": ranks, "dealt_tok_s": first, "balancing_tok_s": moving, "planned_tok_s": planned,
            "dealt_balancedness": balancedness(counted), "planned_balancedness": balancedness(after),
            "layers_moved": moved["layers_moved"], "moved_bytes": moved["received_bytes"], "looks": moved["looks"],
            "predicted_before_ms": plan["step_seconds_before"] * 1e3, "measured_before_ms": pass_ms(counted),
            "predicted_after_ms": plan["step_seconds_after"] * 1e3, "measured_after_ms": pass_ms(after), "costs": costs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--lode", default="build/release/lode")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--distinct-ids", type=int, default=2)
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    results = []
    print("| ranks | dealt out, tokens/s | while moving | on planned maps | balancedness | pass predicted / measured, ms | off by |")
    print("|---|---|---|---|---|---|---|")
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            one = measure(options, ranks, pathlib.Path(folder))
        results.append(one)
        error = one["predicted_after_ms"] / one["measured_after_ms"] - 1
        print(f"| {ranks} | {one['dealt_tok_s']:.0f} | {one['balancing_tok_s']:.0f} | {one['planned_tok_s']:.0f} "
              f"| {one['dealt_balancedness']:.3f} -> {one['planned_balancedness']:.3f} "
              f"| {one['predicted_after_ms']:.1f} / {one['measured_after_ms']:.1f} | {100 * error:+.1f} % |", flush=True)
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
