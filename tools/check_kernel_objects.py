#!/usr/bin/env python3
"""Fails when an object compiled for a special instruction set (-mavx..., -mamx...) exports a weak code
symbol: the linker may hand that copy of an inline function to everyone, also to machines without it.

check_kernel_objects.py BUILD_DIR...: each with its compile_commands.json."""
import json
import pathlib
import re
import shlex
import subprocess
import sys

SPECIAL = re.compile(r"^-m(?:avx|amx|fma|f16c|sse4|bmi)")


def special_objects(build):
    """(source, object) of each file that may use more than the base instruction set."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry.get("command", "")) or entry.get("arguments", [])
        if any(SPECIAL.match(word) for word in words):
            yield entry["file"], pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]


def weak_code(path):
    """Names of defined weak symbols that are functions (data may be weak: it has no instructions)."""
    said = subprocess.run(["nm", "-C", "--defined-only", str(path)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return [line.split(maxsplit=2)[2] for line in said.splitlines() if line.split()[1] == "W"]


def check(build):
    seen = 0
    for source, path in special_objects(build):
        if not path.exists():  # a target nobody built
            continue
        seen += 1
        for name in weak_code(path):
            yield f"{source}: weak code symbol {name}"
    print(f"kernel objects: {seen} looked at in {build.name}")


if __name__ == "__main__":
    breaches = [breach for name in sys.argv[1:] for breach in check(pathlib.Path(name))]
    print("\n".join(breaches + [f"kernel objects: {len(breaches)} breaches"]))
    sys.exit(bool(breaches))
