#!/usr/bin/env python3
"""Decode and prefill speed of Lode beside llama.cpp: the same shapes, the same threads, in turns.

    bench/against_llama.py --lode build/release/lode --lode-model DIR \
        --llama-bench PATH/llama-bench --gguf FILE.gguf [--rounds 5] [--threads 2]

DIR is a checkpoint that `lode-synth` made, FILE a GGUF of the same shapes (bench/METHOD.md names both).
Each round runs Lode, then llama.cpp; a round's ratio is between neighbours in time, so a neighbour that
disturbs the machine disturbs both. Printed: the median of the ratios with the least and the largest,
and the bytes a decoded token reads over what this machine's memory gives in the same run.
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys


def json_lines(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def run_lode(options, extra):
    command = [options.lode, "bench", options.lode_model, "-t", str(options.threads), "-p",
               str(options.prompt), "-n", str(options.new), "-r", "1", "--json", *extra]
    return {line["tag"]: line for line in json_lines(command)}


def run_llama(options):
    command = [options.llama_bench, "-m", options.gguf, "-t", str(options.threads), "-p",
               str(options.prompt), "-n", str(options.new), "-r", "1", "-o", "jsonl"]
    speeds = {}
    for line in json_lines(command):
        tag = f"pp{line['n_prompt']}" if line["n_prompt"] else f"tg{line['n_gen']}"
        speeds[tag] = line["avg_ts"]
    return speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lode", required=True)
    parser.add_argument("--lode-model", required=True)
    parser.add_argument("--lode-options", default="", help="more options of `lode bench`, in one string")
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=64)
    options = parser.parse_args()

    rounds = []
    for number in range(options.rounds):
        lode = run_lode(options, shlex.split(options.lode_options))
        llama = run_llama(options)
        rounds.append((lode, llama))
        for tag in llama:
            print(f"round {number + 1} {tag}: lode {lode[tag]['tok_s']:.1f} llama {llama[tag]:.1f} "
                  f"ratio {lode[tag]['tok_s'] / llama[tag]:.2f}", flush=True)
    for tag in rounds[0][1]:
        ratios = [lode[tag]["tok_s"] / llama[tag] for lode, llama in rounds]
        ours = statistics.median(lode[tag]["tok_s"] for lode, _ in rounds)
        theirs = statistics.median(llama[tag] for _, llama in rounds)
        line = (f"{tag}: lode {ours:.1f} tok/s, llama.cpp {theirs:.1f}; ratio {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f}-{max(ratios):.2f})")
        shares = [lode[tag]["bandwidth_share"] for lode, _ in rounds]
        shares = [share for share in shares if share is not None]
        if shares:
            line += f"; {statistics.median(shares):.0%} of the measured read bandwidth"
        print(line)


if __name__ == "__main__":
    main()
