"""The counter of tools/count_tests.py, fed reports as the runners write them."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import count_tests  # noqa: E402

GTEST = """{"tests": 4, "testsuites": [{"name": "A", "testsuite": [
  {"name": "Good", "status": "RUN", "result": "COMPLETED"},
  {"name": "Bad", "status": "RUN", "result": "COMPLETED", "failures": [{"failure": "x"}]},
  {"name": "Skipped", "status": "RUN", "result": "SKIPPED"},
  {"name": "DISABLED_Off", "status": "NOTRUN", "result": "SUPPRESSED"}]}]}"""
JUNIT = """<testsuite tests="3"><testcase name="a" status="run"/><testcase name="b" status="fail"/>
  <testcase name="c" status="notrun"/></testsuite>"""


class Counts(unittest.TestCase):
    def count(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            if text is not None:
                path.write_text(text)
            return count_tests.count(path)

    def test_of_gtest(self):
        self.assertEqual(self.count("r.json", GTEST), (1, 1, ["A.Skipped", "A.DISABLED_Off"]))

    def test_of_ctest(self):
        self.assertEqual(self.count("r.xml", JUNIT), (1, 1, ["c"]))

    def test_of_unittest(self):
        log = "...\nRan 5 tests in 1.0s\n\nFAILED (failures=1, errors=1, skipped=1)\n"
        self.assertEqual(self.count("r.log", log), (2, 2, ["of unittest"]))
        self.assertEqual(self.count("r.log", "Ran 1 test in 0.1s\n\nOK\n"), (1, 0, []))

    def test_a_missing_or_cut_report_is_a_failure(self):
        self.assertEqual(self.count("r.json", None), (0, 1, []))
        self.assertEqual(self.count("r.json", GTEST[:100]), (0, 1, []))
        self.assertEqual(self.count("r.xml", JUNIT[:50]), (0, 1, []))
        self.assertEqual(self.count("r.log", "Traceback\n"), (0, 1, []))


if __name__ == "__main__":
    unittest.main()
