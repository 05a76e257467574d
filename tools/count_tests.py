#!/usr/bin/env python3
"""Prints "PASSED FAILED SKIPPED" of one run, then a line with the name of each skipped test.

count_tests.py FILES: of each part of it GoogleTest's JSON, ctest's JUnit XML, or the log of Python's unittest. A file that
is missing or cut off is one failure: the program died before it could say."""
import json
import pathlib
import re
import sys
import xml.etree.ElementTree


def of_gtest(text):
    cases = [(suite["name"], test) for suite in json.loads(text).get("testsuites", [])
             for test in suite["testsuite"]]
    skipped = [f"{suite}.{test['name']}" for suite, test in cases
               if test["status"] == "NOTRUN" or test.get("result") == "SKIPPED"]
    failed = sum(1 for _, test in cases if test.get("failures"))
    return len(cases) - failed - len(skipped), failed, skipped


def of_junit(text):
    cases = xml.etree.ElementTree.fromstring(text).iter("testcase")
    said = [(case.get("name"), case.get("status")) for case in cases]
    skipped = [name for name, status in said if status in ("notrun", "disabled")]
    passed = sum(1 for _, status in said if status == "run")
    return passed, len(said) - passed - len(skipped), skipped


def of_unittest(text):
    ran = int(re.search(r"^Ran (\d+) tests?", text, re.M)[1])
    counts = {word: int(number) for word, number in re.findall(r"(\w+)=(\d+)", text.splitlines()[-1])}
    failed, skipped = counts.get("failures", 0) + counts.get("errors", 0), counts.get("skipped", 0)
    return ran - failed - skipped, failed, ["of unittest"] * skipped


def count(path):
    try:
        text = path.read_text().strip()
        return {".json": of_gtest, ".xml": of_junit}.get(path.suffix, of_unittest)(text)
    except (OSError, ValueError, TypeError, KeyError, xml.etree.ElementTree.ParseError):
        return 0, 1, []


if __name__ == "__main__":
    parts = [count(pathlib.Path(path)) for path in sys.argv[1:]]
    names = [name for _, _, skipped in parts for name in skipped]
    print(sum(passed for passed, _, _ in parts), sum(failed for _, failed, _ in parts), len(names))
    print("\n".join(names))
