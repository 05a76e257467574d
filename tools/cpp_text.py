"""What the checkers share: our C++ files, and their text without comments, strings and characters."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("lode", "tests", "bench", "fuzz", "tools", "examples")

# Raw strings, comments, strings and characters; digit separators (1'000) are not characters.
_SKIP = re.compile(
    r'R"(?P<mark>[^(\s]{0,16})\((?:.|\n)*?\)(?P=mark)"'
    r"|//[^\n]*|/\*(?:.|\n)*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*'")
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]+[>"])', re.M)


def blank(text):
    """Comments and literals become spaces; lines stay where they were."""
    return _SKIP.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def is_test(path):
    """Tests, benchmarks, and what only they include: test_x.h, x_test_support.h."""
    stem = pathlib.PurePath(path).stem
    return stem.startswith("test_") or stem.endswith(("_test", "_bench", "_test_support"))


def includes(text):
    """(line number, '<name>' or '"name"') of each include."""
    return [(text.count("\n", 0, m.start(1)) + 1, m[1]) for m in _INCLUDE.finditer(text)]


def files(root, folders=FOLDERS, suffixes=(".h", ".cc")):
    """Our C++ files below `root`, sorted, as paths relative to it."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path.relative_to(root)


def finish(name, breaches):
    """Prints the breaches and a line of count, and exits with 1 if there are any."""
    for breach in breaches:
        print(breach)
    print(f"{name}: {len(breaches)} breaches")
    sys.exit(bool(breaches))


def root_from_arguments():
    """The tree to check: the first argument, else ours."""
    return pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT


def functions(root, paths, kinds):
    """What ctags says of each function (kind f) or prototype (p): dicts with path, name, line, end,
    access, signature and typeref, those that are there."""
    command = ["ctags", "-f", "-", "--sort=no", "--languages=C++", "--language-force=C++",
               f"--kinds-C++={kinds}", "--fields=aneSt", "--excmd=number", "-L", "-"]
    said = subprocess.run(command, cwd=root, input="\n".join(map(str, paths)), check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    for row in said.splitlines():
        name, path, _, *fields = row.split("\t")
        yield {"name": name, "path": pathlib.Path(path)} | dict(f.split(":", 1) for f in fields if ":" in f)
