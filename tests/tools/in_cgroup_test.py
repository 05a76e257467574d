"""tools/in_cgroup: with trees of cgroups that are plain folders, and with the kernel's own where we may."""
import errno
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "in_cgroup"
sys.path.insert(0, str(ROOT / "tests" / "support"))
import memory_cgroup  # noqa: E402
from memory_cgroup import MemoryCgroup, NoCgroup, Place  # noqa: E402

V1_FILES = {"memory.limit_in_bytes": "max", "memory.memsw.limit_in_bytes": "max", "memory.swappiness": "60",
            "memory.max_usage_in_bytes": "4096\n", "memory.failcnt": "3\n",
            "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"}
V2_FILES = {"memory.max": "max", "memory.swap.max": "max", "memory.peak": "8192\n", "memory.current": "512\n",
            "memory.events": "low 0\nhigh 0\nmax 5\noom 2\noom_kill 1\noom_group_kill 0\n",
            "cgroup.subtree_control": "", "cgroup.controllers": "cpu memory\n"}


class FakeKernel(memory_cgroup.Kernel):
    """Folders for cgroups: new ones are born with the kernel's files, processes stand in a table."""

    def __init__(self, files):
        self.files = files
        self.members = {}
        self.refused = {}  # path -> errno
        self.written = {}

    def mkdir(self, path):
        super().mkdir(path)
        for name, text in self.files.items():
            pathlib.Path(path, name).write_text(text)

    def rmdir(self, path):
        if self.pids(path):
            raise OSError(errno.EBUSY, "busy", path)
        for name in self.files:
            pathlib.Path(path, name).unlink(missing_ok=True)
        super().rmdir(path)

    def write(self, path, text):
        if path in self.refused:
            raise OSError(self.refused[path], "refused", path)
        self.written[path] = text
        folder, name = os.path.split(path)
        if name == "cgroup.procs":
            for pids in self.members.values():
                pids.discard(int(text))
            self.members.setdefault(folder, set()).add(int(text))
            return
        busy = name == "cgroup.subtree_control" and text == "+memory" and self.pids(folder)
        if busy:
            raise OSError(errno.EBUSY, "busy", path)
        super().write(path, text)

    def pids(self, path):
        return sorted(self.members.get(path, ()))


class Fake(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.own = folder.name + "/own"

    def kernel(self, files, others=()):
        kernel = FakeKernel(files)
        kernel.mkdir(self.own)
        kernel.members[self.own] = {os.getpid(), *others}
        return kernel

    def only_own_is_left(self):
        self.assertEqual([entry.name for entry in os.scandir(os.path.dirname(self.own))], ["own"])
        self.assertEqual([entry for entry in os.scandir(self.own) if entry.is_dir()], [])


class Version1(Fake):
    def make(self):
        kernel = self.kernel(V1_FILES)
        return kernel, MemoryCgroup(1 << 20, Place(1, self.own), kernel)

    def test_the_limit_is_written_and_swap_is_no_way_out(self):
        kernel, cgroup = self.make()
        self.assertEqual(kernel.written[cgroup.folder + "/memory.limit_in_bytes"], str(1 << 20))
        # Its counter is asked first and may not count, so it is a little above.
        swap = int(kernel.written[cgroup.folder + "/memory.memsw.limit_in_bytes"])
        self.assertGreater(swap, 1 << 20)
        self.assertLess(swap, 16 << 20)
        cgroup.remove()
        self.only_own_is_left()

    def test_the_limit_is_whole_pages_and_not_less(self):
        kernel = self.kernel(V1_FILES)
        cgroup = MemoryCgroup((1 << 20) + 1, Place(1, self.own), kernel)
        self.assertEqual(cgroup.limit_bytes, (1 << 20) + memory_cgroup.PAGE_BYTES)
        cgroup.remove()

    def test_peak_hits_and_kills_are_read(self):
        _, cgroup = self.make()
        self.assertEqual((cgroup.peak_bytes(), cgroup.limit_hits(), cgroup.oom_kills()), (4096, 3, 1))
        cgroup.remove()

    def test_a_kernel_that_does_not_count_swap_is_no_failure(self):
        kernel = self.kernel({name: text for name, text in V1_FILES.items() if "memsw" not in name})
        MemoryCgroup(1 << 20, Place(1, self.own), kernel).remove()
        self.only_own_is_left()

    def test_a_refused_limit_says_so_and_leaves_nothing(self):
        kernel = self.kernel(V1_FILES)
        kernel.refused[f"{self.own}/lode_{os.getpid()}_9999/memory.limit_in_bytes"] = errno.EACCES
        MemoryCgroup.counter, old = iter([9999]), MemoryCgroup.counter
        self.addCleanup(setattr, MemoryCgroup, "counter", old)
        with self.assertRaisesRegex(NoCgroup, "the limit is refused"):
            MemoryCgroup(1 << 20, Place(1, self.own), kernel)
        self.only_own_is_left()

    def test_a_folder_that_cannot_be_made_says_so(self):
        with self.assertRaisesRegex(NoCgroup, "systemd-run"):
            MemoryCgroup(1, Place(1, "/nonexistent/cgroup"), FakeKernel(V1_FILES))

    def test_stragglers_are_killed_and_inner_cgroups_removed(self):
        kernel, cgroup = self.make()
        straggler = subprocess.Popen(["sleep", "600"])
        kernel.mkdir(cgroup.folder + "/inner")
        kernel.members[cgroup.folder + "/inner"] = {straggler.pid}
        kernel.pids, pids = lambda path: [pid for pid in pids(path) if straggler.poll() is None], kernel.pids
        cgroup.remove()
        self.assertEqual(straggler.wait(timeout=10), -signal.SIGKILL)
        kernel.pids = pids
        self.only_own_is_left()


class Version2(Fake):
    def test_where_the_controller_is_handed_down_a_child_is_enough(self):
        kernel = self.kernel(V2_FILES, others=[1])
        pathlib.Path(self.own, "cgroup.subtree_control").write_text("cpu memory\n")
        cgroup = MemoryCgroup(1 << 20, Place(2, self.own), kernel)
        self.assertEqual(kernel.written[cgroup.folder + "/memory.max"], str(1 << 20))
        self.assertEqual(kernel.written[cgroup.folder + "/memory.swap.max"], "0")
        self.assertEqual((cgroup.peak_bytes(), cgroup.limit_hits(), cgroup.oom_kills()), (8192, 5, 1))
        cgroup.remove()
        self.only_own_is_left()

    def test_alone_in_a_cgroup_we_move_into_a_leaf_and_back(self):
        kernel = self.kernel(V2_FILES)
        cgroup = MemoryCgroup(1 << 20, Place(2, self.own), kernel)
        self.assertIn(os.getpid(), kernel.pids(cgroup.leaf))
        self.assertEqual(kernel.written[self.own + "/cgroup.subtree_control"], "+memory")
        cgroup.remove()
        self.assertEqual(kernel.pids(self.own), [os.getpid()])
        self.assertEqual(kernel.written[self.own + "/cgroup.subtree_control"], "-memory")
        self.only_own_is_left()

    def test_others_are_not_moved(self):
        kernel = self.kernel(V2_FILES, others=[1, 2])
        with self.assertRaisesRegex(NoCgroup, "2 other processes; try: systemd-run"):
            MemoryCgroup(1 << 20, Place(2, self.own), kernel)
        self.only_own_is_left()

    def test_without_the_controller_it_says_so(self):
        kernel = self.kernel(V2_FILES | {"cgroup.controllers": "cpu\n"})
        with self.assertRaisesRegex(NoCgroup, "no memory controller"):
            MemoryCgroup(1 << 20, Place(2, self.own), kernel)

    def test_an_older_kernel_is_asked_often_instead(self):
        kernel = self.kernel({name: text for name, text in V2_FILES.items() if name != "memory.peak"})
        cgroup = MemoryCgroup(1 << 20, Place(2, self.own), kernel)
        for current in (512, 2048, 1024):
            pathlib.Path(cgroup.folder, "memory.current").write_text(str(current))
            cgroup.sample()
        self.assertEqual(cgroup.peak_bytes(), 2048)
        cgroup.remove()


class Places(unittest.TestCase):
    V1 = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    V2 = "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

    def test_version_1_wins_where_memory_is_there(self):
        place = memory_cgroup.find_place("4:memory:/a/b\n0::/c\n", self.V2 + self.V1)
        self.assertEqual(place, Place(1, "/sys/fs/cgroup/memory/a/b"))

    def test_version_2(self):
        self.assertEqual(memory_cgroup.find_place("0::/user.slice/x\n", self.V2),
                         Place(2, "/sys/fs/cgroup/user.slice/x"))

    def test_the_root_of_a_tree(self):
        self.assertEqual(memory_cgroup.find_place("0::/\n", self.V2), Place(2, "/sys/fs/cgroup"))

    def test_a_mount_of_a_part_of_the_tree(self):
        mount = self.V2.replace(" / ", " /docker/abc ")
        self.assertEqual(memory_cgroup.find_place("0::/docker/abc/x\n", mount), Place(2, "/sys/fs/cgroup/x"))

    def test_none(self):
        with self.assertRaises(NoCgroup):
            memory_cgroup.find_place("3:cpu:/\n", self.V2 + self.V1)
        with self.assertRaises(NoCgroup):
            memory_cgroup.find_place("0::/\n", "")


class Bytes(unittest.TestCase):
    def test_units(self):
        for text, number in (("4096", 4096), ("1KiB", 1024), ("1.5 GiB", 3 << 29), ("2MB", 2_000_000), ("7B", 7)):
            with self.subTest(text):
                self.assertEqual(memory_cgroup.parse_bytes(text), number)

    def test_nonsense_is_refused(self):
        for text in ("", "x", "GiB", "0", "-1", "1XiB", "nan", "inf"):
            with self.subTest(text), self.assertRaises(ValueError):
                memory_cgroup.parse_bytes(text)


class PageCache(unittest.TestCase):
    def test_pages_of_a_file_are_counted_and_dropped(self):
        with tempfile.TemporaryDirectory(dir=ROOT / "tests") as folder:
            path = pathlib.Path(folder, "file")
            path.write_bytes(b"x" * (1 << 20))
            self.assertEqual(memory_cgroup.cached_bytes_of_all([folder, path]), 1 << 20)
            memory_cgroup.drop_from_cache([folder])
            self.assertEqual(memory_cgroup.cached_bytes_of_all([folder]), 0)

    def test_an_empty_file_has_none(self):
        with tempfile.NamedTemporaryFile() as file:
            self.assertEqual(memory_cgroup.cached_bytes(file.name), 0)


def tool(*arguments):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True, check=False)


def report_of(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        run = tool("--json", "--out", folder + "/report", *arguments)
        return run, json.loads(pathlib.Path(folder, "report").read_text())


class Command(unittest.TestCase):
    def test_output_and_exit_status_are_the_commands(self):
        run = tool("--limit", "1GiB", "--", "sh", "-c", "echo out; exit 7")
        self.assertEqual((run.returncode, run.stdout), (7, "out\n"))
        self.assertIn("exit status                            7", run.stderr)

    def test_a_signal_is_128_and_its_number(self):
        self.assertEqual(tool("--limit", "1GiB", "--", "sh", "-c", "kill -TERM $$").returncode, 143)

    def test_what_it_cannot_do_has_its_own_status(self):
        for status, arguments in ((125, ["--limit", "x", "--", "true"]), (125, ["--limit", "1GiB"]),
                                  (125, ["--limit", "1GiB", "--files", "/nonexistent", "--", "true"]),
                                  (127, ["--limit", "1GiB", "--", "/nonexistent"]),
                                  (126, ["--limit", "1GiB", "--", "/etc/passwd"])):
            with self.subTest(arguments):
                run = tool(*arguments)
                self.assertEqual(run.returncode, status, run.stderr)
                self.assertTrue(run.stderr.startswith("in_cgroup: "), run.stderr)

    def test_the_high_water_is_the_commands(self):
        _, small = report_of("--limit", "1GiB", "--", "true")
        code = "x = bytearray(b'x' * (100 << 20))"
        _, large = report_of("--limit", "1GiB", "--", sys.executable, "-c", code)
        self.assertLess(small["high_water_bytes"], 16 << 20)
        self.assertGreater(large["high_water_bytes"], 100 << 20)

    def test_a_signal_to_it_reaches_the_command(self):
        run = subprocess.Popen([TOOL, "--limit", "1GiB", "--", "sh", "-c", "trap 'exit 9' TERM; echo here; sleep 60 & wait"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertEqual(run.stdout.readline(), b"here\n")
        run.terminate()
        self.assertEqual(run.wait(timeout=20), 9)
        run.stdout.close()


class WithoutCgroup(unittest.TestCase):
    """The weaker limit, as where there are no rights."""

    def run_without(self, command, require=False):
        def refuse(_):
            raise NoCgroup("no rights here")
        made, memory_cgroup.make_cgroup = memory_cgroup.make_cgroup, refuse
        self.addCleanup(setattr, memory_cgroup, "make_cgroup", made)
        return memory_cgroup.run(command, 200 << 20, require=require)

    def test_the_report_says_which_limit_it_was(self):
        report = self.run_without(["true"])
        self.assertEqual((report.limited_by, report.why_no_cgroup, report.peak_bytes, report.limit_hits),
                         ("RLIMIT_DATA", "no rights here", None, None))
        self.assertIn("NO CGROUP: no rights here", report.as_text())

    def test_it_limits_all_the_same(self):
        code = "import sys\ntry: x = bytearray(300 << 20)\nexcept MemoryError: sys.exit(5)"
        self.assertEqual(self.run_without([sys.executable, "-c", code]).exit_status, 5)

    def test_require_refuses(self):
        with self.assertRaises(NoCgroup):
            self.run_without(["true"], require=True)


def may_make_cgroups():
    try:
        memory_cgroup.make_cgroup(1 << 30).remove()
        return True
    except NoCgroup:
        return False


@unittest.skipUnless(may_make_cgroups(), "no memory cgroup can be made here")
class RealCgroup(unittest.TestCase):
    def test_a_byte_too_much_is_killed_and_counted(self):
        run, report = report_of("--limit", "64MiB", "--", sys.executable, "-c", "x = bytearray(b'x' * (100 << 20))")
        self.assertEqual(run.returncode, 137)
        self.assertGreater(report["limit_hits"], 0)
        self.assertLessEqual(report["peak_bytes"], 64 << 20)

    def test_page_cache_counts_and_its_reclaim_is_a_hit(self):
        with tempfile.TemporaryDirectory(dir=ROOT / "tests") as folder:
            path = folder + "/file"
            with open(path, "wb") as file:
                file.write(b"x" * (48 << 20))
            arguments = ["--limit", "32MiB", "--drop", "--files", path, "--", "cat", path]
            run, report = report_of(*arguments)
        self.assertEqual(run.returncode, 0)
        self.assertGreater(report["limit_hits"], 0)
        self.assertEqual(report["cached_before_bytes"], 0)
        self.assertGreater(report["cached_bytes"], 8 << 20)

    def test_what_the_command_leaves_behind_ends_with_it(self):
        run = tool("--limit", "1GiB", "--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
        pid = int(run.stdout)
        for _ in range(100):
            if not os.path.exists(f"/proc/{pid}") or " Z " in pathlib.Path(f"/proc/{pid}/stat").read_text():
                break
            time.sleep(0.02)
        else:
            self.fail("it sleeps on")

    def test_no_cgroup_stays(self):
        tool("--limit", "1GiB", "--", "true")
        cgroup = memory_cgroup.make_cgroup(1 << 30)
        own = cgroup.own
        cgroup.remove()
        self.assertEqual([name for name in os.listdir(own) if name.startswith(f"lode_{os.getpid()}_")], [])


if __name__ == "__main__":
    unittest.main()
