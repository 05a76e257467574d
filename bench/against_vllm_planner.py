#!/usr/bin/env python3
"""Times vLLM's planner of expert balancing beside `lode balance plan`, in turns, on the same loads.

    against_vllm_planner.py --wheel vllm-X.whl --lode build/release/lode

The wheel is not installed: its one file with the policy is read out of it. That file uses torch only to
take its input and to give its result, so where torch is missing a stand-in for those two calls does.
What is timed is the numpy part, `rebalance_experts_hierarchical`, and with it nothing that lode's figure
(`planning_us`: maps of all layers, one thread) would lack.
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import types
import zipfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np  # noqa: E402

LAYERS, EXPERTS, SLOTS, RANKS, NODES, GROUPS = 58, 256, 288, 32, 4, 8
POLICY = "vllm/distributed/eplb/policy/default.py"


def vllm_policy(wheel):
    try:
        import torch  # noqa: F401
    except ImportError:
        torch = types.ModuleType("torch")
        torch.Tensor = object
        sys.modules["torch"] = torch
    source = zipfile.ZipFile(wheel).read(POLICY).decode()
    source = source.replace("from .abstract import AbstractEplbPolicy", "AbstractEplbPolicy = object")
    scope = {"__name__": "vllm_policy"}
    exec(compile(source, POLICY, "exec"), scope)
    return scope["DefaultEplbPolicy"]


def loads_of(kind, seed):
    rng = random.Random(seed)
    if kind == "log-normal":
        return [[round(1000 * math.exp(rng.gauss(0, 1)), 3) for _ in range(EXPERTS)] for _ in range(LAYERS)]
    rows = []
    for _ in range(LAYERS):
        row = [round(10000 / n, 3) for n in range(1, EXPERTS + 1)]
        rng.shuffle(row)
        rows.append(row)
    return rows


def balancedness(maps, loads):
    mean = most = 0.0
    for row, load in zip(maps, loads):
        counts = np.bincount(row, minlength=EXPERTS)
        share = np.asarray(load, np.float32).astype(np.float64) / counts
        ranks = share[np.asarray(row)].reshape(RANKS, -1).sum(axis=1)
        mean += ranks.mean()
        most += ranks.max()
    return mean / most


def lode_plan(lode, folder, policy, loads):
    path, out = os.path.join(folder, "loads.json"), os.path.join(folder, "maps.json")
    with open(path, "w") as file:
        json.dump({"layers": LAYERS, "experts": EXPERTS, "loads": loads}, file)
    result = subprocess.run([lode, "balance", "plan", path, "--ranks", str(RANKS), "--slots", str(SLOTS),
                             "--nodes", str(NODES), "--groups", str(GROUPS), "--policy", policy,
                             "--out", out, "--json"], check=True, capture_output=True, text=True)
    with open(out) as file:
        return json.loads(result.stdout)["planning_us"] / 1000, json.load(file)["physical_to_logical"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", required=True)
    parser.add_argument("--lode", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    policy = vllm_policy(args.wheel)
    for kind in ("log-normal", "zipf"):
        loads = loads_of(kind, 1)
        times = {"vllm": [], "deepseek": [], "best": []}
        maps = {}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(args.rounds):
                start = time.perf_counter()
                maps["vllm"] = policy.rebalance_experts_hierarchical(
                    np.asarray(loads, np.float32), SLOTS, GROUPS, NODES, RANKS)
                times["vllm"].append((time.perf_counter() - start) * 1000)
                for name in ("deepseek", "best"):
                    taken, maps[name] = lode_plan(args.lode, folder, name, loads)
                    times[name].append(taken)
        for name, taken in times.items():
            print(f"{kind:10} {name:8} median {statistics.median(taken):7.2f} ms  least {min(taken):7.2f} ms  "
                  f"balancedness {balancedness(maps[name], loads):.4f}")
        same = int((np.asarray(maps["vllm"]) == np.asarray(maps["deepseek"])).all(axis=1).sum())
        print(f"{kind:10} layers whose map is vLLM's slot by slot: {same} of {LAYERS}")


if __name__ == "__main__":
    main()
