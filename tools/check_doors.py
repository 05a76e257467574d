#!/usr/bin/env python3
"""Fails when an outside library comes in by another door than its own, or a word is used outside
the rooms that may use it."""
import re

import cpp_text

# (include, where it may stand: prefixes of paths, suffixes that begin with *, or TESTS)
TESTS = "tests"
DOORS = (
    (r"<nlohmann/", ("lode/json/json.cc",)),
    (r"<fmt/", ("lode/base/fmt.h",)),
    (r"<(immintrin|x86intrin|.*intrin)\.h>", ("lode/kernels/avx2/", "lode/kernels/avx512",
                                              "lode/kernels/amx/")),
    (r"<cpuid\.h>", ("lode/kernels/cpu.cc",)),
    (r"<utf8proc\.h>|<pcre2\.h>", ("lode/text/",)),
    (r"<(openssl/|isa-l)", ("lode/io/checksum.cc",)),
    (r"<liburing", ("lode/io/uring.cc",)),
    (r"<mpi\.h>", ("lode/comm/mpi_group.cc",)),
    (r"<(CLI/|spdlog/)", ("lode/cli/",)),
    (r"<httplib", ("lode/serve/http_server.cc",)),
    (r"<prometheus/", ("lode/serve/metrics.cc",)),
    (r"<sys/mman\.h>", ("lode/memory/", TESTS)),
    (r"<(thread|future|pthread\.h)>", ("lode/parallel/", "lode/serve/", TESTS)),
    (r"<iostream>", ("lode/cli/", TESTS)),
    (r"<(gtest|gmock|rapidcheck)", (TESTS,)),
    (r"<benchmark/", ("*_bench.cc",)),
)

# (what, expression, where it may stand). Comments and strings do not count.
WORDS = (
    ("reinterpret_cast", r"\breinterpret_cast\b", ("lode/memory/", "lode/kernels/")),
    ("const_cast", r"\bconst_cast\b", ("lode/memory/", "lode/kernels/")),
    ("new", r"\bnew\b(?!\s*=)", ("lode/memory/",)),
    ("delete", r"(?<!=)(?<!= )\bdelete\b", ("lode/memory/",)),
    ("malloc and its kin", r"\b(?:malloc|calloc|realloc|aligned_alloc|posix_memalign|free)\s*\(",
     ("lode/memory/",)),
    ("the library never prints", r"\bstd::(?:cout|cerr|clog|puts|printf|fprintf)\b|\bf?printf\s*\(",
     ("lode/cli/", TESTS)),
    ("the library never exits", r"\b(?:exit|_exit|quick_exit|abort|terminate)\s*\(",
     ("lode/cli/", TESTS)),
    ("throw", r"\bthrow\b", ()),
    ("-ffast-math", r"__FAST_MATH__|optimize\s*\(", ()),
)

# Single files that may do what their room may not: (path, include or word) -> reason.
EXEMPT = {
    ("lode/base/result.cc", "the library never prints"): "a broken promise of ours is said, then",
    ("lode/base/result.cc", "the library never exits"): "the process ends: LODE_CHECK",
    ("lode/io/checksum.cc", "const_cast"): "ISA-L reads through a pointer that lacks a const",
}


def allowed(path, doors):
    def through(door):
        if door is TESTS:
            return cpp_text.is_test(path)
        return path.endswith(door[1:]) if door[0] == "*" else path.startswith(door)
    return any(map(through, doors))


def check(root):
    for relative in cpp_text.files(root, ("lode",)):
        path, text = str(relative), (root / relative).read_text()
        for line, name in cpp_text.includes(text):
            for include, doors in DOORS:
                if re.match(include, name) and not (
                        allowed(path, doors) or (path, name) in EXEMPT):
                    yield f"{path}:{line}: {name} comes in through {' '.join(doors)} only"
        for number, line in enumerate(cpp_text.blank(text).splitlines(), 1):
            if line.lstrip().startswith("#include"):
                continue
            for word, expression, doors in WORDS:
                if re.search(expression, line) and not (
                        allowed(path, doors) or (path, word) in EXEMPT):
                    yield f"{path}:{number}: {word} (allowed: {' '.join(doors) or 'nowhere'})"


if __name__ == "__main__":
    cpp_text.finish("doors", list(check(cpp_text.root_from_arguments())))
