#!/usr/bin/env python3
"""How near `lode prepare` is to the disk: beside a plain copy of the same files, in turn with it, past the page cache.

    bench/streamed_prepare.py --lode build/release/lode --synth build/dev/lode-synth --work FOLDER
        [--rounds 5] [--only FORMAT:TARGET ...] [--json FILE]

A preparation reads a checkpoint and writes about as many bytes, so the disk's roof is a copy: four threads that read
2 MiB and write them, O_DIRECT, room taken before, brought to the disk at the end. FOLDER is on the disk to be
measured, with 10 GB free; sources are out of the page cache before each run. Prints a table for
docs/budget.md: medians of the rounds and of their ratios.
"""
import argparse
import concurrent.futures
import contextlib
import json
import mmap
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

CHUNK = 2 << 20
WORKERS = 4
PAIRS = [("nvfp4", "marlin"), ("nvfp4", "flashinfer-cutlass"), ("nvfp4", "flashinfer-trtllm"), ("mxfp4", "marlin"),
         ("mxfp4", "deepgemm"), ("fp8-block", "marlin"), ("fp8-block", "deepgemm"),
         ("fp8-block", "flashinfer-trtllm"), ("gpt-oss", "marlin"), ("gpt-oss", "flashinfer-trtllm")]
QWEN = ["--preset", "qwen3-30b-a3b-layers", "--random-codes", "--layers", "4"]
RECIPES = {"nvfp4": [*QWEN, "--format", "nvfp4"], "mxfp4": [*QWEN, "--format", "mxfp4"],
           "fp8-block": [*QWEN, "--format", "fp8-block"],
           "gpt-oss": ["--preset", "gpt-oss-20b-layers", "--format", "mxfp4", "--storage", "interleaved",
                       "--random-codes"]}


def drop_from_cache(folder):
    for path in pathlib.Path(folder).iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_in(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).iterdir())


@contextlib.contextmanager
def direct(path, flags):
    descriptor = os.open(path, flags | os.O_DIRECT, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def copy_file(source, place, workers):
    """Past the page cache; the last part of a page is written as a whole one, as the blocks of a disk are."""
    size = source.stat().st_size
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    with direct(source, os.O_RDONLY) as reading, direct(place, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as writing:
        os.posix_fallocate(writing, 0, pages)

        def copy_share(worker):
            buffer = mmap.mmap(-1, CHUNK)
            for offset in range(worker * CHUNK, size, WORKERS * CHUNK):
                os.preadv(reading, [buffer], offset)
                os.pwritev(writing, [memoryview(buffer)[:min(CHUNK, pages - offset)]], offset)

        list(workers.map(copy_share, range(WORKERS)))
        os.fdatasync(writing)


def copied(folder, out):
    """Seconds of a plain copy."""
    drop_from_cache(folder)
    out.mkdir()
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as workers:
        for path in sorted(folder.iterdir()):
            copy_file(path, out / path.name, workers)
    return time.monotonic() - began


def prepared(lode, folder, out, target):
    """Seconds, and those of processors, of a preparation."""
    drop_from_cache(folder)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run([lode, "prepare", folder, out, "--target", target, "--progress", "none"],
                          capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"streamed_prepare.py: {target}: status {done.returncode}\n{done.stderr[-3000:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(options, name, targets):
    work = pathlib.Path(options.work)
    folder, out = work / "source", work / "result"
    rows = {target: [] for target in targets}
    try:
        subprocess.run([options.synth, "--force", "--out", folder, *RECIPES[name]], check=True, stdout=subprocess.DEVNULL)
        for _ in range(options.rounds):
            for target in targets:
                shutil.rmtree(out, ignore_errors=True)
                copy_seconds = copied(folder, out)
                shutil.rmtree(out)
                seconds, cpu_seconds = prepared(options.lode, folder, out, target)
                rows[target].append({"copy_seconds": copy_seconds, "seconds": seconds, "cpu_seconds": cpu_seconds,
                                     "bytes_read": bytes_in(folder), "bytes_written": bytes_in(out)})
    finally:
        for made in (folder, out):
            shutil.rmtree(made, ignore_errors=True)
    return rows


def moved(row):
    return row["bytes_read"] + row["bytes_written"]


def of_copy(row):
    """Speed over that of the copy; a copy writes what it reads, a target may need other bytes than its source."""
    return moved(row) / row["seconds"] / (2 * row["bytes_read"] / row["copy_seconds"])


def printed(name, target, rows):
    def middle(number, scale=1.0):
        return statistics.median(number(row) for row in rows) * scale

    ratios = sorted(of_copy(row) for row in rows)
    print(f"| {name} | {target} | {rows[0]['bytes_read'] / 1e9:.2f} | {middle(lambda row: row['seconds']):.2f} | "
          f"{middle(lambda row: row['cpu_seconds']):.2f} | "
          f"{middle(lambda row: 2 * row['bytes_read'] / row['copy_seconds'], 1e-9):.2f} | "
          f"{middle(lambda row: moved(row) / row['seconds'], 1e-9):.2f} | "
          f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lode", required=True)
    parser.add_argument("--synth", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], metavar="FORMAT:TARGET")
    parser.add_argument("--json")
    options = parser.parse_args()
    pairs = [tuple(pair.split(":")) for pair in options.only] or PAIRS
    print("| source | target | GB | seconds | of processors | copy, GB/s moved | prepare, GB/s moved | of the copy |\n"
          "|---|---|---|---|---|---|---|---|", flush=True)
    told = {}
    for name in dict.fromkeys(name for name, _ in pairs):
        rows = measured(options, name, [target for of, target in pairs if of == name])
        for target, each in rows.items():
            printed(name, target, each)
            told[f"{name}:{target}"] = each
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
