#!/usr/bin/env python3
"""Writes lode/text/unicode_tables.cc from tests/golden/text/tokenizers/unicode.json.

The golden file lists the members of each character class as the reference tokeniser sees them. The
code space becomes runs of code points with the same set of classes, each run one letter (which set)
and its length in decimal digits (left out when it is 1).
"""
import json
import pathlib
import string

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tests/golden/text/tokenizers/unicode.json"
TARGET = ROOT / "lode/text/unicode_tables.cc"
# In the order of the bits of CharClass (lode/text/unicode_classes.h); the last bit is kReorders.
CLASSES = [r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{N}", r"\p{P}",
           r"\p{S}", r"\p{Han}", r"\s", r"\w"]
CODE_POINTS = 0x110000
LINE = 90


def masks(golden):
    lists = [golden["classes"][name] for name in CLASSES] + [golden["nfc_nonzero_combining_class"]]
    result = [0] * CODE_POINTS
    for bit, ends in enumerate(lists):
        for first, last in zip(ends[::2], ends[1::2]):
            for code_point in range(first, last + 1):
                result[code_point] |= 1 << bit
    return result


def runs(values):
    result = []
    for value in values:
        if result and result[-1][0] == value:
            result[-1][1] += 1
        else:
            result.append([value, 1])
    return result


def wrapped(text):
    return [f'    "{text[start:start + LINE]}"' for start in range(0, len(text), LINE)]


def main():
    golden = json.loads(SOURCE.read_text())
    all_runs = runs(masks(golden))
    sets = sorted({value for value, _ in all_runs})
    letters = dict(zip(sets, string.ascii_letters, strict=False))
    text = "".join(letters[value] + (str(n) if n > 1 else "") for value, n in all_runs)
    lines = [
        "// Made by tools/make_unicode_tables.py from tests/golden/text/tokenizers/unicode.json;",
        f"// class members are those of {golden['made_with']} (Unicode 16). Do not edit.",
        '#include "lode/text/unicode_tables.h"',
        "",
        "namespace lode::text {",
        "",
        "// clang-format off",
        "const std::uint16_t kClassSets[] = {",
        *(f"    0x{value:04X},  // {letters[value]}" for value in sets),
        "};",
        f"const std::size_t kNumClassSets = {len(sets)};",
        "",
        "const std::string_view kClassRuns =",
        *wrapped(text)[:-1],
        wrapped(text)[-1] + ";",
        "// clang-format on",
        "",
        "}  // namespace lode::text",
        "",
    ]
    TARGET.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
