"""bench/budget.py: what it writes into the document, from results like those of a run."""
import importlib.util
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("budget", ROOT / "bench" / "budget.py")
budget = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(budget)

MIB, GIB = 1 << 20, 1 << 30
RUN = {"inside": True, "exit_status": 0, "peak_bytes": 12 * GIB, "limit_hits": 0, "high_water_bytes": 11 * GIB,
       "cached_bytes": 0, "load_seconds": 8.0, "source_bytes": 12 * 10**9, "weight_bytes": 12 * GIB,
       "as_planned": True, "speeds": {"pp128": 100.0, "tg32": 20.5}}
DONE = {"exit_status": 0, "seconds": 1.5, "cpu_seconds": 2.0, "high_water_bytes": 60 * MIB, "cached_bytes": 0}
RESULTS = {
    "matrix": {"summary": {"64": {"loads": 288, "passed": 288}, "48": {"loads": 288, "passed": 288},
                           "32": {"loads": 288, "passed": 200, "refused": 88},
                           "most_above_final_bytes": 28 * MIB, "least_slack_bytes": 36 * MIB,
                           "most_cached_bytes": 0, "most_planned_above_final_bytes": 33 * MIB,
                           "total_error_bytes": [MIB, 7 * MIB]},
               "controls": [{"breach": "tensor", "outcome": "killed", "held": True}], "engines": ["uring"],
               "limited_by": ["memory cgroup v1"], "held": True},
    "full": {"models": [{"name": "a model", "planned_peak_bytes": 12 * GIB,
                         "rows": [RUN, {"inside": False, "exit_status": 10}]}]},
    "giant": {"rounds": [{"seconds": 1.5, "high_water_bytes": 42 * MIB, "limit_hits": 0, "exit_status": 0}] * 3,
              "source_bytes": 4 * 10**11, "files": 200, "sink": DONE | {"peak_bytes": 58 * MIB, "limit_hits": 0}},
    "speed": {"storages": {"nvfp4": [
        {"test": "raw", "bytes_per_second": 2e9}, {"test": "cold", "bytes_per_second": 1.96e9,
                                                    "cpu_seconds_per_gb": 0.4, "io": "uring, direct"},
        {"ratio": "cold/raw", "median": 0.98, "least": 0.9, "most": 1.01}]}},
    "prepared": {"prepare": DONE, "verify": DONE, "run": DONE, "load_us": 41000},
}
for part in RESULTS.values():
    part |= {"date": "2026-11-29", "quick": False}


class Document(unittest.TestCase):
    def test_every_part_is_told_with_its_figures(self):
        text = budget.document(RESULTS)
        for figure in ("final + 32 MiB: 200 passed, 88 refused of 288", "28.0 MiB", "tensor: killed",
                       "| a model | cgroup of the plan's figure | 12.00 GiB | 12.00 GiB | 0 |", "exit status 10",
                       "1.50 GB/s", "pp128 100.0", "400 GB in 200 files", "0.98 (0.90-1.01)", "41 ms"):
            with self.subTest(figure):
                self.assertIn(figure, text.replace("\n", " "))
        self.assertNotIn("these are no results", text)

    def test_lines_of_prose_are_not_too_wide(self):
        wide = [line for line in budget.document(RESULTS).splitlines() if len(line) > 118 and line[0] != "|"]
        self.assertEqual(wide, [])

    def test_a_trial_says_so(self):
        text = budget.document({"giant": RESULTS["giant"] | {"quick": True}})
        self.assertIn("these are no results", text)

    def test_what_did_not_hold_is_told(self):
        text = budget.document({"matrix": RESULTS["matrix"] | {"held": False}})
        self.assertIn("NOT everything", text)

    def test_a_ledger_that_was_not_the_plan_is_told(self):
        other = {"models": [{"name": "m", "planned_peak_bytes": GIB, "rows": [RUN | {"as_planned": False}]}]}
        self.assertIn("NOT every", budget.document({"full": RESULTS["full"] | other}))
        self.assertNotIn("NOT every", budget.document({"full": RESULTS["full"]}))

    def test_only_what_lies_between_the_marks_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text(f"before\n{budget.MARKS[0]}\nwhat was there\n{budget.MARKS[1]}\nafter\n")
            budget.write(page, RESULTS)
            text = page.read_text()
            self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"))
            self.assertNotIn("what was there", text)
            budget.write(page, RESULTS)
            self.assertEqual(page.read_text(), text)
            page.write_text("no marks")
            with self.assertRaises(SystemExit):
                budget.write(page, RESULTS)

    def test_the_document_has_the_marks(self):
        text = (ROOT / "docs" / "budget.md").read_text()
        self.assertEqual([text.count(mark) for mark in budget.MARKS], [1, 1])


class Recipes(unittest.TestCase):
    def test_changes_replace_and_add(self):
        self.assertEqual(budget.replaced(["--a", "1", "--b", "2"], ["--b", "3", "--c", "4"]),
                         ["--a", "1", "--b", "3", "--c", "4"])


if __name__ == "__main__":
    unittest.main()
