#!/usr/bin/env python3
"""clang-tidy over our sources, as many at once as there are processors. What passed once is not looked at
again while its preprocessed text and .clang-tidy are the same (stamps in BUILD_DIR/tidy).

run_clang_tidy.py BUILD_DIR [--all] [--since REV]: --all takes tests, benchmarks and tools too; --since only what
changed after a commit (everything where git does not know it)."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import cpp_text

TIDY = "clang-tidy-14"
FINDING = re.compile(r"(?m)^(?=\S+:\d+:\d+: (?:error|warning):)")


PRECOMPILED = re.compile(r" -Winvalid-pch| -include \S+cmake_pch\.hxx")


def entries(build, everything):
    """The compile commands of our own files, each file once, and in BUILD_DIR/tidy for clang-tidy: which cannot read what
    g++ has precompiled."""
    seen = {}
    commands = json.loads((build / "compile_commands.json").read_text())
    for entry in commands:
        entry["command"] = PRECOMPILED.sub("", entry["command"])
    (build / "tidy" / "compile_commands.json").write_text(json.dumps(commands))
    for entry in commands:
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(cpp_text.ROOT) or path.name.startswith("cmake_pch"):
            continue
        path = path.relative_to(cpp_text.ROOT)
        if everything or (path.parts[0] == "lode" and not re.search(r"_(test|bench)$", path.stem)):
            seen.setdefault(str(path), entry)
    return seen


def changed_since(rev):
    """Our files that differ from a commit, or None where git does not know it."""
    run = subprocess.run(["git", "diff", "--name-only", rev], cwd=cpp_text.ROOT, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, check=False)
    return set(run.stdout.split()) if run.returncode == 0 else None


def stamp(build, path, entry, config):
    """Where it is remembered that this text passed under this configuration."""
    words = [w for w in shlex.split(entry["command"]) if "ccache" not in w]
    at = words.index("-o")
    del words[at:at + 2]
    words[words.index("-c")] = "-E"
    # Comments are kept: a NOLINT is one.
    text = subprocess.run(words + ["-C"], cwd=entry["directory"], stdout=subprocess.PIPE, check=False).stdout
    digest = hashlib.sha256(config + path.encode() + text).hexdigest()
    return build / "tidy" / digest


def tidy(build, path, entry, config):
    passed = stamp(build, path, entry, config)
    if passed.exists():
        return ""
    run = subprocess.run([TIDY, "--quiet", "-p", str(build / "tidy"), "--extra-arg=-Wno-unknown-warning-option", path],
                         cwd=cpp_text.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                         check=False)
    if run.returncode == 0 and "warning:" not in run.stdout and "error:" not in run.stdout:
        passed.touch()
        return ""
    return run.stdout or f"{path}: {TIDY} failed\n"


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    (build / "tidy").mkdir(exist_ok=True)
    config = (cpp_text.ROOT / ".clang-tidy").read_bytes()
    todo = entries(build, "--all" in sys.argv)
    changed = changed_since(sys.argv[sys.argv.index("--since") + 1]) if "--since" in sys.argv else None
    if changed is not None:
        todo = {path: entry for path, entry in todo.items() if path in changed}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda item: tidy(build, *item, config), sorted(todo.items())))
    # A finding in a header is said by every file that includes it.
    found = dict.fromkeys(part for text in said for part in FINDING.split(text) if part.strip())
    print("".join(found) + f"clang-tidy: {len(todo)} files, {len(found)} findings")
    sys.exit(any(said))


if __name__ == "__main__":
    main()
