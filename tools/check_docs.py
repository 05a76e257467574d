#!/usr/bin/env python3
"""Fails when a public header lacks a label that a caller needs, or when a committed text speaks of
the machine it was written on."""
import pathlib
import re
import socket
import subprocess

import cpp_text

RESULT = re.compile(r"typename:(?:\w+::)*(?:Result<.*|Status)$")
TENSOR = re.compile(r"\bTensor(?:View|Span)\b|\bTensor\s*&&")
SOURCED = ("formats", "layout", "families")

# Written in two halves, so that this file does not breach itself.
ELSEWHERE = [r"\.\./sha" "red", r"(?<![\w.])/wo" r"rk/", r"(?<![\w.])/ho" r"me/\w", r"(?<![\w.])/ro" r"ot/\w"]
TEXT = {".h", ".cc", ".py", ".sh", ".md", ".txt", ".cmake", ".in", ".apt", ".json", ".yml", ".toml", ""}
MAX_TEXT_BYTES = 1 << 20

# Files that may say so: path -> reason.
EXEMPT = {}


def doc_above(lines, number):
    """The /// lines of the group of declarations that line `number` (from 1) stands in."""
    doc = []
    for line in reversed(lines[:number - 1]):
        if not line.strip() or re.match(r"\s*(?:public|protected|private):", line):
            break
        if "///" in line:
            doc.append(line)
    return "\n".join(doc)


def check_labels(root):
    headers = [path for path in cpp_text.files(root, ("lode",), (".h",)) if not cpp_text.is_test(path)]
    text = {path: (root / path).read_text() for path in headers}
    for path in headers:
        if path.parts[1] in SOURCED and "Source:" not in text[path]:
            yield f"{path}: no line \"Source:\" says where its facts come from"
    for tag in cpp_text.functions(root, headers, "fp"):
        path, number = tag["path"], int(tag["line"])
        lines = text[path].splitlines()
        statement = " ".join(lines[number - 1:int(tag.get("end", number + 2))]).split(";")[0]
        if tag.get("access") in ("private", "protected") or re.search(r"\b(?:friend|override)\b", statement):
            continue
        doc = doc_above(lines, number)
        if RESULT.search(tag.get("typeref", "")) and "Errors:" not in doc:
            yield f"{path}:{number}: {tag['name']} returns a Result and has no \"Errors:\""
        if path.parts[1] != "tensor" and TENSOR.search(tag.get("signature", "")) and "Shapes:" not in doc:
            yield f"{path}:{number}: {tag['name']} takes a tensor and has no \"Shapes:\""


def committed_texts(root):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=root, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if listed.returncode == 0 and listed.stdout else [
        str(path.relative_to(root)) for path in root.rglob("*")]
    for name in sorted(filter(None, names)):
        path = root / name
        if path.is_file() and path.suffix in TEXT and path.stat().st_size <= MAX_TEXT_BYTES:
            yield pathlib.Path(name), path.read_bytes().decode("utf-8", "replace")


def check_places(root):
    host = socket.gethostname()
    words = ELSEWHERE + ([rf"\b{re.escape(host)}\b"] if len(host) > 4 else [])
    pattern = re.compile("|".join(words))
    for path, text in committed_texts(root):
        if str(path) in EXEMPT:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if found := pattern.search(line):
                yield f"{path}:{number}: speaks of this machine: {found[0]}"


def check(root):
    yield from check_labels(root)
    yield from check_places(root)


if __name__ == "__main__":
    cpp_text.finish("docs", list(check(cpp_text.root_from_arguments())))
