#!/usr/bin/env python3
"""`lode bench prepare` and the same steps by torch on the CPU, in turns: time, and bytes beside source and result.

    bench/prepare_peer.py --lode build/release/lode [--experts 16] [--hidden 7168] [--intermediate 2048] [--threads 2]
                          [--rounds 3] [--markdown]

The steps are what an engine's loader does in Python, by two ways: a list with a tensor for each expert, joined at the
end, and a result that is there before. Where the engine has a kernel for the GPU (Marlin tiles, FP8), torch does the
arithmetic. Before it is timed each answer is held against what the engines' own code made (tests/golden), byte for
byte. A peak is what a fresh process held at most beside source and result, in the kernel's count (VmHWM).

torch and numpy are needed for torch's columns only: without them these say that it was not measured.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

try:
    import torch
    torch.arange(2).numpy()  # wants numpy
    NO_TORCH = ""
except (ImportError, RuntimeError) as fault:
    torch = None
    NO_TORCH = f"not measured: no torch ({fault})"

MIB = 1 << 20
EVICTED_BYTES = 64 * MIB
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "tests" / "golden" / "weight_layouts"


# ---- what is done to one expert ---------------------------------------------------------------------------------


def marlin_4_bit(codes):
    """[N, K/2] bytes, two k each, as int32 [K/16, 2N]: a word is of one thread, 2 by 2 bytes of rows 8 and k 8 apart."""
    rows, k = codes.shape[0], codes.shape[1] * 2
    by_place = codes.view(rows // 64, 4, 2, 8, k // 16, 2, 4)  # column block, warp, row half, row, k block, k half, pair
    words = torch.zeros(k // 16, rows // 64, 8, 4, 4, dtype=torch.int32)
    for row_half in range(2):
        for k_half in range(2):
            pairs = by_place[:, :, row_half, :, :, k_half].permute(3, 0, 2, 4, 1).to(torch.int32)
            shift = 4 * (2 * row_half + k_half)
            words |= (pairs & 15) << shift
            words |= (pairs >> 4) << (shift + 16)
    return words.view(k // 16, 2 * rows)


def marlin_8_bit(codes):
    """[N, K] bytes as int32 [K/16, 4N]: bytes change places and nothing else."""
    rows, k = codes.shape
    by_place = codes.view(torch.uint8).view(rows // 64, 4, 2, 8, k // 16, 2, 4, 2)
    return by_place.permute(4, 0, 3, 6, 1, 2, 7, 5).reshape(k // 16, 16 * rows).view(torch.int32)


def marlin_nvfp4_scales(scales, factor):
    """[N, K/16] E4M3 as [K/16, N] bytes without sign, the exponent one wider."""
    turned = scales.to(torch.float16).t().contiguous()
    groups, rows = turned.shape
    turned = turned.view(groups, rows // 64, 8, 8).transpose(2, 3).reshape(-1, 4)[:, [0, 2, 1, 3]]
    larger = (turned.float() * factor).to(torch.float16) * 128
    larger[larger < 2] = 0
    return (larger.view(torch.int16) << 1).view(torch.uint8).view(groups, rows, 2)[..., 1].contiguous()


def scales_128x4(scales):
    rows, columns = scales.shape
    padded = torch.zeros(-(-rows // 128) * 128, -(-columns // 4) * 4, dtype=torch.uint8)
    padded[:rows, :columns] = scales.view(torch.uint8)
    tiles = padded.view(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).contiguous().view(padded.shape)


def trtllm_rows(num_rows):
    """Rows of [gate; up] in turn, up first, then shuffled by 32."""
    row = torch.arange(num_rows)
    in_turn = row // 32 * 32 + row % 8 * 4 + row % 32 // 8
    return torch.where(in_turn % 2 == 0, num_rows // 2 + in_turn // 2, in_turn // 2)


def one_scale(codes, scales):
    """Gate and up of FP8, each with its scale, under the larger one."""
    largest = scales.max()
    half = codes.shape[0] // 2
    out = torch.empty_like(codes)
    for i in range(2):
        numbers = codes[i * half:(i + 1) * half].to(torch.float16) * scales[i]
        out[i * half:(i + 1) * half] = (numbers.float() * (1 / largest)).clamp(-448, 448).to(torch.float8_e4m3fn)
    return out


# ---- the two ways over a layer ----------------------------------------------------------------------------------


def as_list(step):
    def run(*tensors):
        return torch.stack([step(*expert) for expert in zip(*tensors)])
    return run


def into_result(step):
    def run(*tensors):
        out = None
        for i, expert in enumerate(zip(*tensors)):
            made = step(*expert)
            if out is None:
                out = torch.empty(tensors[0].shape[0], *made.shape, dtype=made.dtype)
            out[i] = made
        return out
    return run


def swap_by_cat(codes):
    half = codes.shape[1] // 2
    return torch.cat([codes[:, half:], codes[:, :half]], dim=1)


def swap_by_chunks(codes):
    """In place, 64 MiB at a time; a chunk is the same rows of all experts."""
    half = codes.shape[1] // 2
    chunk = max(1, min(half, 64 * MIB // (codes.numel() // codes.shape[1])))
    for first in range(0, half, chunk):
        upper = codes[:, first:min(first + chunk, half)]
        lower = codes[:, half + first:half + min(first + chunk, half)]
        kept = lower.clone()
        lower.copy_(upper)
        upper.copy_(kept)
    return codes


def rows_as_list(codes):
    rows = trtllm_rows(codes.shape[1])
    return torch.stack([expert[rows] for expert in codes])


def rows_into_result(codes):
    rows = trtllm_rows(codes.shape[1])
    out = torch.empty_like(codes)
    for expert, made in zip(codes, out):
        torch.index_select(expert, 0, rows, out=made)
    return out


def scales_factor(scales):
    largest = scales.to(torch.float32).max()
    return torch.full((scales.shape[0],), float(2.0 ** torch.floor(torch.log2(448 / largest))) if largest < 448 else 1.0)


def with_factor(way):
    """One factor for all experts of the tensor, found first."""
    return lambda scales: way(scales, scales_factor(scales))


# ---- the cases --------------------------------------------------------------------------------------------------


def random_bytes(*shape):
    """Numbers that are finite and above zero in every format, as `lode bench prepare` has them."""
    piece = torch.randint(1, 64, (MIB,), dtype=torch.uint8)
    count = 1
    for extent in shape:
        count *= extent
    return piece.repeat(-(-count // MIB))[:count].clone().view(shape)


def layer_of(size, what):
    experts, rows, k = size.experts, 2 * size.intermediate, size.hidden
    if what == "fp4":
        return (random_bytes(experts, rows, k // 2),)
    if what == "scales":
        return (random_bytes(experts, rows, k // 16).view(torch.float8_e4m3fn),)
    fp8 = random_bytes(experts, rows, k).view(torch.float8_e4m3fn)
    if what == "fp8":
        return (fp8,)
    return fp8, torch.tensor([[0.0078125, 0.015625]]).repeat(experts, 1)


def ways_of(step):
    return {"list": as_list(step), "result": into_result(step)}


# Transform as `lode bench prepare` calls it; what it is made of; the ways; the golden file, its inputs and output.
def cases():
    swap = {"cat": swap_by_cat, "in place": swap_by_chunks}
    rows = {"list": rows_as_list, "result": rows_into_result}
    nvfp4_scales = {way: with_factor(run) for way, run in ways_of(marlin_nvfp4_scales).items()}
    four_bit = ("fp4", ways_of(marlin_4_bit), ("nvfp4_marlin_moe_gated", ["w13"], "w13"))
    eight_bit = ("fp8", ways_of(marlin_8_bit), ("fp8_marlin_moe_block64", ["w13"], "w13"))
    return {
        "in place: halves swapped, FP4 w13": ("fp4", swap, ("reorder_w1w3_to_w3w1", ["w13"], "w13")),
        "in place: rows shuffled for TRT-LLM, FP4 w13": ("fp4", rows, ("nvfp4_trtllm_gated", ["w13"], "w13")),
        "in place: Marlin tiles, 4-bit w13": four_bit,
        "in place: Marlin tiles, 8-bit w13": eight_bit,
        "marlin nvfp4 w13_weight": four_bit,
        "marlin fp8-block w13_weight": eight_bit,
        "marlin nvfp4 w13_weight_scale": ("scales", nvfp4_scales,
                                          ("nvfp4_marlin_moe_gated", ["w13_scale"], "w13_scale")),
        "vllm-cutlass nvfp4 w13_weight_scale": ("scales", ways_of(scales_128x4), ("swizzle_blockscale", ["a"], "a")),
        "vllm-cutlass fp8-tensor w13_weight": ("fp8 pair", ways_of(one_scale),
                                               ("fp8_tensor_moe_requant", ["w13", "w13_scale"], "w13")),
    }


def read_golden(name):
    """The tensors of a safetensors file."""
    data = (GOLDEN / f"{name}.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    kinds = {"U8": torch.uint8, "I32": torch.int32, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn}
    tensors = {}
    for key, entry in json.loads(data[8:begin]).items():
        if entry.get("dtype") not in kinds:
            continue
        first, end = (begin + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(data[first:end]), dtype=torch.uint8)
        tensors[key] = flat.view(kinds[entry["dtype"]]).view(entry["shape"])
    return tensors


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).flatten()


def check_answers():
    for name, (_, ways, (golden, inputs, output)) in cases().items():
        for way, run in ways.items():
            tensors = read_golden(golden)
            made = run(*(tensors[f"in.{key}"] for key in inputs))
            if not torch.equal(bytes_of(made), bytes_of(tensors[f"out.{output}"])):
                raise SystemExit(f"{name}, {way}: other bytes than those of {golden}")


# ---- measuring --------------------------------------------------------------------------------------------------


def seconds_of(run, inputs):
    torch.zeros(EVICTED_BYTES, dtype=torch.uint8).fill_(1)  # something else is in the caches
    begin = time.perf_counter()
    made = run(*inputs)
    passed = time.perf_counter() - begin
    del made
    return passed


def status_bytes(field):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {field}")


def print_peak(options, name, way):
    """In a process of its own: bytes held at most beside source and result."""
    kind, ways, _ = cases()[name]
    torch.set_num_threads(options.threads)
    small = argparse.Namespace(experts=1, hidden=512, intermediate=256)
    ways[way](*layer_of(small, kind))  # what torch takes once
    inputs = layer_of(options, kind)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = status_bytes("VmRSS")
    made = ways[way](*inputs)
    in_place = made.data_ptr() == inputs[0].data_ptr()
    result = 0 if in_place else made.numel() * made.element_size()
    print(max(0, status_bytes("VmHWM") - before - result))


def peak_of(options, name, way):
    environment = dict(os.environ, MALLOC_MMAP_THRESHOLD_="1048576", MALLOC_TRIM_THRESHOLD_="1048576")
    command = [sys.executable, __file__, *size_words(options), "--peak", name, way]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def size_words(options):
    return ["--experts", str(options.experts), "--hidden", str(options.hidden), "--intermediate",
            str(options.intermediate), "--threads", str(options.threads)]


def lode_round(options):
    command = [options.lode, "bench", "prepare", "--json", "--rounds", "1", *size_words(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return {row["transform"]: row for row in map(json.loads, done.stdout.splitlines())}


def measure(options):
    """For each transform lode's rows, and torch's seconds for each way, a round at a time."""
    lode, peer = [], {}
    if torch:
        check_answers()
        torch.set_num_threads(options.threads)
    for round_idx in range(options.rounds + 1 if torch else options.rounds):
        lode.append(lode_round(options))
        for name, (kind, ways, _) in cases().items() if torch else ():
            inputs = layer_of(options, kind)
            for way, run in ways.items():
                seconds = seconds_of(run, inputs)
                if round_idx > 0:
                    peer.setdefault(name, {}).setdefault(way, []).append(seconds)
    return lode[1:] if torch else lode, peer


# ---- what is printed --------------------------------------------------------------------------------------------


def human(count):
    return f"{count / MIB:.1f} MiB" if count >= MIB else f"{count / 1024:.1f} KiB" if count else "0"


def rows_of(options, lode, peer):
    for name in lode[0]:
        speed = statistics.median(row[name]["bytes_per_second"] for row in lode)
        size, scratch = lode[0][name]["bytes"], lode[0][name]["scratch_bytes"]
        share = statistics.median(row[name]["of_memcpy"] for row in lode)
        ours = [name, f"{speed / 1e9:.2f}", f"{share:.2f}", human(scratch)]
        if name not in peer:
            if options.all:
                yield [*ours, "no such step" if torch else "not measured: no torch", "", "", ""]
            continue
        for way, seconds in peer[name].items():
            longer = statistics.median(s * row[name]["bytes_per_second"] / size for s, row in zip(seconds, lode))
            yield [*ours, way, f"{size / statistics.median(seconds) / 1e9:.2f}", f"{longer:.1f}",
                   human(peak_of(options, name, way))]
            ours = [""] * len(ours)


def print_table(rows, markdown):
    head = ["transform", "GB/s", "of memcpy", "scratch", "torch", "GB/s", "times as long", "peak beside"]
    rows = [head, *rows]
    if markdown:
        rows.insert(1, ["---"] * len(head))
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lode", default="lode")
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--intermediate", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all", action="store_true", help="also transforms that torch is not timed for")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        return print_peak(options, *options.peak)
    options.all = options.all or not torch
    lode, peer = measure(options)
    print_table(list(rows_of(options, lode, peer)), options.markdown)
    if NO_TORCH:
        print(NO_TORCH)


if __name__ == "__main__":
    main()
