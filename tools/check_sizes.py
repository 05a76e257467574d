#!/usr/bin/env python3
"""Prints the ten largest functions, parameter lists, nestings, files and lines, and fails over the
limits: function 60 lines (kernels 100), 6 parameters, nesting 3, header 300 lines, other file 500,
family 160, line 100 columns."""
import re

import cpp_text

# Single things that may be larger: (kind, path or path:name) -> reason.
EXEMPT = {}

CONTROL = re.compile(r"(?:^|[;{}]|\belse|\bconstexpr)\s*(?:else\s*)?(?:if|for|while|switch|do|else|try|catch)\b")
TESTS = re.compile(r"(?:TYPED_)?TEST(?:_[PF])?|RC_GTEST_PROP|BENCHMARK\w*|FUZZ_TEST")


def function_limit(path):
    return 100 if path.parts[:2] == ("lode", "kernels") else 60


def file_limit(path):
    if path.suffix == ".h":
        return 300
    family = path.parts[:2] == ("lode", "families") and not path.stem.endswith("_test")
    return 160 if family else 500


def count_parameters(signature):
    inner = signature[signature.find("(") + 1:signature.rfind(")")].replace("->", "")
    depth = commas = 0
    for character in inner:
        depth += {"(": 1, "<": 1, "[": 1, "{": 1, ")": -1, ">": -1, "]": -1, "}": -1}.get(character, 0)
        commas += character == "," and depth == 0
    return 0 if inner.strip() in ("", "void") else commas + 1


def nesting(body):
    """How deep if, for, while, switch, do and try stand inside each other, braces counted."""
    stack, deepest, head = [], 0, 0
    for at, character in enumerate(body):
        if character == "{":
            stack.append(bool(CONTROL.search(body[head:at])))
            deepest = max(deepest, sum(stack))
        elif character == "}" and stack:
            stack.pop()
        if character in "{}":
            head = at + 1
    return deepest


def measure(root):
    """(kind, size, limit, where, exemption key) of everything that has a size."""
    paths = list(cpp_text.files(root))
    lines = {path: cpp_text.blank((root / path).read_text()).splitlines() for path in paths}
    for path in paths:
        raw = (root / path).read_text().splitlines()
        kind = "header" if path.suffix == ".h" else "file"
        yield kind, len(raw), file_limit(path), path, str(path)
        number, width = max(((n, len(line)) for n, line in enumerate(raw, 1)), default=(0, 0),
                            key=lambda pair: pair[1])
        yield "line", width, 100, f"{path}:{number}", str(path)
    for tag in cpp_text.functions(root, paths, "f"):
        if "end" not in tag or tag["name"].startswith("__anon"):
            continue
        path, first, last = tag["path"], int(tag["line"]), int(tag["end"])
        where, key = f"{path}:{first} {tag['name']}", f"{path}:{tag['name']}"
        yield "function", last - first + 1, function_limit(path), where, key
        yield "nesting", nesting("\n".join(lines[path][first - 1:last])), 3, where, key
        if not TESTS.fullmatch(tag["name"]):
            yield "parameters", count_parameters(tag.get("signature", "()")), 6, where, key


def check(root):
    by_kind = {}
    for kind, size, limit, where, key in measure(root):
        by_kind.setdefault(kind, []).append((size, limit, where, key))
    for kind, rows in by_kind.items():
        rows.sort(key=lambda row: (-row[0], str(row[2])))
        print(f"largest {kind}: " + ", ".join(f"{size} {where}" for size, _, where, _ in rows[:10]))
    for kind, rows in by_kind.items():
        for size, limit, where, key in rows:
            if size > limit and (kind, key) not in EXEMPT:
                yield f"{where}: {kind} {size} > {limit}"


if __name__ == "__main__":
    cpp_text.finish("sizes", list(check(cpp_text.root_from_arguments())))
