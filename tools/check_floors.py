#!/usr/bin/env python3
"""Fails when a file under lode/ includes a room that is not on a lower floor (tools/floors.txt)."""
import re

import cpp_text

# Rooms that see less than their floor allows: kernels know no tensors, no threads, no JSON.
SEES_ONLY = {"kernels": {"base", "formats"}}


def read_floors(root):
    floors = {}
    for line in (root / "tools/floors.txt").read_text().splitlines():
        if line[:1].isdigit():
            number, *rooms = line.split()
            floors.update(dict.fromkeys(rooms, int(number)))
    return floors


def breach(floors, here, seen):
    if seen not in floors:
        return f"{seen} is no room of tools/floors.txt"
    if floors[seen] >= floors[here]:
        return f"{here} (floor {floors[here]}) may not see {seen} (floor {floors[seen]})"
    if here in SEES_ONLY and seen not in SEES_ONLY[here]:
        return f"{here} may see only {', '.join(sorted(SEES_ONLY[here]))}, not {seen}"
    return None


def check_support(root, floors, path, line, support):
    """A test may use tests/support/, but not to look over its floor."""
    if not (root / support).exists():
        return
    for _, name in cpp_text.includes((root / support).read_text()):
        room = re.match(r'"lode/(\w+)/', name)
        if room and room[1] != path.parts[1] and (why := breach(floors, path.parts[1], room[1])):
            yield f"{path}:{line}: through {support}: {why}"


def check(root):
    floors = read_floors(root)
    for path in cpp_text.files(root, ("lode",)):
        here = path.parts[1]
        if len(path.parts) == 2:  # lode/lode.h, the front door, may see all
            continue
        if here not in floors:
            yield f"{path}: {here} is no room of tools/floors.txt"
            continue
        for line, name in cpp_text.includes((root / path).read_text()):
            inner = name.strip('<>"')
            if cpp_text.is_test(inner) and name[0] == '"' and not cpp_text.is_test(path):
                yield f"{path}:{line}: {name} is for tests only"
            if inner.startswith("tests/support/") and cpp_text.is_test(path):
                yield from check_support(root, floors, path, line, inner)
                continue
            room = re.match(r"lode/(\w+)/", inner)
            if room and room[1] != here and (why := breach(floors, here, room[1])):
                yield f"{path}:{line}: {why}"
            elif path.name.endswith("_test.cc") and inner.startswith("tests/support/"):
                continue  # what tests of several rooms share
            elif not room and name[0] == '"' and inner != "lode/lode.h":
                yield f"{path}:{line}: {name} is not named from the root (\"lode/<room>/...\")"
            elif inner == "lode/lode.h":
                yield f"{path}:{line}: the front door is for those outside"


if __name__ == "__main__":
    cpp_text.finish("floors", list(check(cpp_text.root_from_arguments())))
