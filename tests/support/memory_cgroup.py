"""Runs a command below a limit that the kernel keeps: a child memory cgroup, of version 1 or 2.

`run(command, limit_bytes)` gives a Report: the most that was charged, how often the limit was hit,
the high water of the process, what of some files lies in the page cache, how it ended. Where no
cgroup can be made there is a weaker limit (RLIMIT_DATA), and the report says so.
"""
import ctypes
import dataclasses
import errno
import itertools
import mmap
import os
import resource
import signal
import sys
import time

PAGE_BYTES = mmap.PAGESIZE
WINDOW_BYTES = 256 << 20
SWAP_BYTES = 4 << 20
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
         "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class NoCgroup(Exception):
    """No memory cgroup can be made here; says why, and what would help."""


def parse_bytes(text):
    """12GiB, 1.5 GB or 4096 as a number of bytes."""
    number = text.strip().rstrip("BbIiKkMmGgTt").strip()
    unit = text.strip()[len(number):].strip().upper()
    try:
        scale = UNITS[unit]
        bytes_ = int(number) * scale if number.isdigit() else int(float(number) * scale)
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"{text!r} is no number of bytes, such as 12GiB") from None
    if bytes_ <= 0:
        raise ValueError(f"{text!r}: a limit is above 0")
    return bytes_


def human(number):
    if number is None:
        return "unknown"
    return f"{number:>15}  {number / (1 << 20):.1f} MiB"


class Kernel:
    """The few things that are done to a tree of cgroups, so that a test can do them to a folder."""

    def mkdir(self, path):
        os.mkdir(path)

    def rmdir(self, path):
        os.rmdir(path)

    def read(self, path):
        with open(path, encoding="ascii") as file:
            return file.read()

    def write(self, path, text):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)

    def pids(self, path):
        return [int(word) for word in self.read(f"{path}/cgroup.procs").split()]

    def exists(self, path):
        return os.path.exists(path)

    def children(self, path):
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


@dataclasses.dataclass
class Place:
    """Where this process stands among the memory cgroups."""
    version: int
    folder: str


def find_place(cgroup_text, mountinfo_text):
    """From /proc/self/cgroup and /proc/self/mountinfo. Raises NoCgroup where there is none."""
    lines = [line.split(":", 2) for line in cgroup_text.splitlines() if line.count(":") >= 2]
    first = next((path for _, names, path in lines if "memory" in names.split(",")), None)
    second = next((path for number, names, path in lines if number == "0" and not names), None)
    version, path = (1, first) if first is not None else (2, second)
    if path is None:
        raise NoCgroup("this process is in no memory cgroup")
    for line in mountinfo_text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if version == 1 and (kind[0] != "cgroup" or "memory" not in kind[2].split(",")):
            continue
        if version == 2 and kind[0] != "cgroup2":
            continue
        root = "" if fields[3] == "/" else fields[3]
        below = path == root or path.startswith(root + "/")
        inside = path[len(root):] if below else "/"
        return Place(version, (fields[4] + inside).rstrip("/"))
    raise NoCgroup(f"no mounted tree of memory cgroups of version {version}")


HINT = "try: systemd-run --user --scope -p Delegate=yes COMMAND (or, as root, without --user)"


class MemoryCgroup:
    """A child of the cgroup of this process, with a limit; `remove` takes it away, with whoever is
    still in it."""
    counter = itertools.count()

    def __init__(self, limit_bytes, place, kernel=None):
        self.kernel = kernel or Kernel()
        self.version = place.version
        self.own = place.folder
        self.limit_bytes = -(-limit_bytes // PAGE_BYTES) * PAGE_BYTES  # the kernel would round down
        self.leaf = None
        self.most_seen = 0
        name = f"lode_{os.getpid()}_{next(self.counter)}"
        self.folder = f"{self.own}/{name}"
        try:
            if self.version == 2:
                self.open_subtree(name)
            self.kernel.mkdir(self.folder)
        except OSError as fault:
            self.close_subtree()
            raise NoCgroup(f"{fault.strerror or fault}: {fault.filename or self.folder}; "
                           f"{HINT}") from fault
        try:
            self.limit()
        except OSError as fault:
            self.remove()
            raise NoCgroup(f"the limit is refused: {fault.strerror or fault}; {HINT}") from fault

    def open_subtree(self, name):
        """Version 2 keeps no processes beside cgroups with controllers: where we are alone we move
        into a leaf of our own."""
        control = f"{self.own}/cgroup.subtree_control"
        if "memory" in self.kernel.read(control).split():
            return
        if "memory" not in self.kernel.read(f"{self.own}/cgroup.controllers").split():
            raise NoCgroup(f"{self.own} has no memory controller; {HINT}")
        try:
            self.kernel.write(control, "+memory")
            return
        except OSError as fault:
            if fault.errno != errno.EBUSY:
                raise
        others = [pid for pid in self.kernel.pids(self.own) if pid != os.getpid()]
        if others:
            raise NoCgroup(f"{self.own} holds {len(others)} other processes; {HINT}")
        self.leaf = f"{self.own}/{name}_leaf"
        self.kernel.mkdir(self.leaf)
        self.kernel.write(f"{self.leaf}/cgroup.procs", str(os.getpid()))
        self.kernel.write(control, "+memory")

    def close_subtree(self):
        if self.leaf is None:
            return
        for step in (lambda: self.kernel.write(f"{self.own}/cgroup.subtree_control", "-memory"),
                     lambda: self.kernel.write(f"{self.own}/cgroup.procs", str(os.getpid())),
                     lambda: self.kernel.rmdir(self.leaf)):
            try:
                step()
            except OSError:
                pass
        self.leaf = None

    def limit(self):
        if self.version == 1:
            self.kernel.write(f"{self.folder}/memory.limit_in_bytes", str(self.limit_bytes))
            self.try_write("memory.swappiness", "0")
            # No swap beside it; but not as low as the limit, for this counter is asked first, and
            # on newer kernels it does not count how often it refused.
            self.try_write("memory.memsw.limit_in_bytes", str(self.limit_bytes + SWAP_BYTES))
        else:
            self.kernel.write(f"{self.folder}/memory.max", str(self.limit_bytes))
            self.try_write("memory.swap.max", "0")

    def try_write(self, name, text):
        if not self.kernel.exists(f"{self.folder}/{name}"):
            return
        try:
            self.kernel.write(f"{self.folder}/{name}", text)
        except OSError:
            pass  # a kernel without swap accounting

    def join(self, pid):
        self.kernel.write(f"{self.folder}/cgroup.procs", str(pid))

    def number(self, name):
        return int(self.kernel.read(f"{self.folder}/{name}").strip())

    def fields(self, name):
        words = self.kernel.read(f"{self.folder}/{name}").split()
        return {key: int(value) for key, value in zip(words[::2], words[1::2])}

    def sample(self):
        """Where the kernel keeps no high water (version 2 before Linux 5.19), often is as good."""
        if self.version == 2 and not self.kernel.exists(f"{self.folder}/memory.peak"):
            self.most_seen = max(self.most_seen, self.number("memory.current"))

    def peak_bytes(self):
        if self.version == 1:
            return self.number("memory.max_usage_in_bytes")
        if self.kernel.exists(f"{self.folder}/memory.peak"):
            return self.number("memory.peak")
        return self.most_seen

    def limit_hits(self):
        if self.version == 2:
            return self.fields("memory.events").get("max", 0)
        return self.number("memory.failcnt")

    def oom_kills(self):
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return self.fields(name).get("oom_kill", 0)

    def kill_all(self, folder):
        """Whoever is still inside. Bounded: what cannot be killed does not hold us up for ever."""
        for _ in range(200):
            for child in self.kernel.children(folder):
                self.kill_all(child)
                self.kernel.rmdir(child)
            pids = [pid for pid in self.kernel.pids(folder) if pid != os.getpid()]
            if not pids:
                return
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)

    def remove(self):
        try:
            if self.kernel.exists(self.folder):
                self.kill_all(self.folder)
                for _ in range(100):
                    try:
                        self.kernel.rmdir(self.folder)
                        break
                    except OSError as fault:
                        if fault.errno != errno.EBUSY:
                            raise
                        time.sleep(0.01)
        finally:
            self.close_subtree()


def make_cgroup(limit_bytes):
    """A cgroup below that of this process. Raises NoCgroup, saying why."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            cgroup_text = file.read()
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            place = find_place(cgroup_text, file.read())
    except OSError as fault:
        raise NoCgroup(f"{fault.strerror}: {fault.filename}") from fault
    return MemoryCgroup(limit_bytes, place)


def files_below(paths):
    """Regular files of these files and folders, each once."""
    found = {}
    for path in paths:
        names = [path]
        if os.path.isdir(path):
            names = [os.path.join(folder, name) for folder, _, files in os.walk(path)
                     for name in files]
        for name in names:
            if os.path.isfile(name):
                found.setdefault(os.path.realpath(name))
    return sorted(found)


def cached_bytes(path):
    """Bytes of a file in the page cache; None where the kernel does not tell, as it does not about
    files that are another user's and cannot be written."""
    status = os.stat(path)
    if status.st_uid != os.geteuid() and not os.access(path, os.W_OK):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                          ctypes.c_int, ctypes.c_long]
    resident = 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for offset in range(0, status.st_size, WINDOW_BYTES):
            length = min(WINDOW_BYTES, status.st_size - offset)
            address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, offset)
            if address in (None, ctypes.c_void_p(-1).value):
                return None
            pages = ctypes.create_string_buffer((length + PAGE_BYTES - 1) // PAGE_BYTES)
            window = ctypes.c_void_p(address)
            told = libc.mincore(window, ctypes.c_size_t(length), pages)
            libc.munmap(window, ctypes.c_size_t(length))
            if told != 0:
                return None
            resident += (len(pages.raw) - pages.raw.count(0)) * PAGE_BYTES
    finally:
        os.close(descriptor)
    return resident


def cached_bytes_of_all(paths):
    each = [cached_bytes(path) for path in files_below(paths)]
    return None if None in each else sum(each)


def drop_from_cache(paths):
    """Asks the kernel to forget the pages of these files, written out first."""
    for path in files_below(paths):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@dataclasses.dataclass
class Report:
    limit_bytes: int
    limited_by: str  # "memory cgroup v1", "memory cgroup v2" or "RLIMIT_DATA"
    why_no_cgroup: str
    peak_bytes: int | None  # charged to the cgroup: page tables and page cache too
    limit_hits: int | None
    oom_kills: int | None
    high_water_bytes: int  # VmHWM, of the command itself
    cached_before_bytes: int | None  # of the named files, in the page cache
    cached_bytes: int | None
    seconds: float
    cpu_seconds: float
    exit_status: int  # of the command; 128 + signal where one ended it

    def as_text(self):
        lines = [f"in_cgroup: limit {self.limit_bytes} bytes kept by {self.limited_by}"]
        if self.why_no_cgroup:
            lines.append(f"  NO CGROUP: {self.why_no_cgroup}")
        lines += [f"  peak charged             {human(self.peak_bytes)}",
                  f"  times the limit was hit  {self.word(self.limit_hits)}",
                  f"  killed by the limit      {self.word(self.oom_kills)}",
                  f"  high water (VmHWM)       {human(self.high_water_bytes)}",
                  f"  named files cached       {human(self.cached_bytes)}",
                  f"  seconds                  {self.seconds:>15.2f}  "
                  f"{self.cpu_seconds:.2f} of processors",
                  f"  exit status              {self.exit_status:>15}"]
        return "\n".join(lines) + "\n"

    @staticmethod
    def word(number):
        return "unknown" if number is None else f"{number:>15}"


def high_water_of(pid):
    """VmHWM of a living process, else 0."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return 0


def start(command, enter, streams, mask):
    """Forks, enters the limit, becomes the command with that signal mask. The pid; OSError of exec where it cannot."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        number = errno.EINVAL
        try:
            for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(name, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for number, stream in streams.items():
                os.dup2(stream, number)
            enter(os.getpid())
            os.execvp(command[0], command)
        except OSError as fault:
            number = fault.errno or errno.EINVAL
        finally:
            os.write(writing, number.to_bytes(4, "little"))
            os._exit(127)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        fault = pipe.read()
    if fault:
        os.waitpid(pid, 0)
        number = int.from_bytes(fault, "little")
        raise OSError(number, os.strerror(number), command[0])
    return pid


def wait(pid, sample):
    """Wait status, usage and polled high water of a child."""
    most, pause = 0, 0.001
    while True:
        most = max(most, high_water_of(pid))
        sample()
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage, most
        time.sleep(pause)
        pause = min(0.02, pause * 1.2)


def forwarding(pid):
    """Signals that are meant for the command go there; what restores the old ways."""
    def forward(number, _):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    # A terminal's Ctrl-C reaches the command by itself.
    actions = {signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: forward, signal.SIGHUP: forward}
    try:
        old = {name: signal.signal(name, action) for name, action in actions.items()}
    except ValueError:  # not in the main thread
        return lambda: None
    return lambda: [signal.signal(name, action) for name, action in old.items()]


def begin(command, enter, streams):
    """Starts the command, to which signals are forwarded from its first instant on. The pid, and what restores the
    old ways. A signal that came between the fork and the forwarding would end us and leave the command alone."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        pid = start(command, enter, streams, mask)
        return pid, forwarding(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def run(command, limit_bytes, files=(), *, drop=False, require=False, streams=None, cgroup=None):
    """Runs `command` (a list) below the limit and gives a Report.

    `files`: files and folders whose page cache is looked at, and with `drop` emptied before.
    `require`: NoCgroup is raised where there is none, instead of the weaker limit being used.
    `streams`: {1: descriptor, ...} for the command. `cgroup`: use this one, which is removed.
    OSError is raised where the command cannot be executed.
    """
    why = ""
    if drop:
        drop_from_cache(files)
    cached_before = cached_bytes_of_all(files) if files else None
    if cgroup is None:
        try:
            cgroup = make_cgroup(limit_bytes)
        except NoCgroup as fault:
            if require:
                raise
            why = str(fault)

    def enter(pid):
        if cgroup is not None:
            cgroup.join(pid)
        else:
            resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

    ours = high_water_of(os.getpid())  # wait4 tells the larger of this and the command's own
    try:
        began = time.monotonic()
        pid, restore = begin(command, enter, streams or {})
        try:
            status, usage, polled = wait(pid, cgroup.sample if cgroup is not None else lambda: None)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        finally:
            restore()
        seconds = time.monotonic() - began
        told = usage.ru_maxrss << 10
        code = os.waitstatus_to_exitcode(status)
        return Report(
            limit_bytes=cgroup.limit_bytes if cgroup is not None else limit_bytes,
            limited_by=f"memory cgroup v{cgroup.version}" if cgroup is not None else "RLIMIT_DATA",
            why_no_cgroup=why,
            peak_bytes=cgroup.peak_bytes() if cgroup is not None else None,
            limit_hits=cgroup.limit_hits() if cgroup is not None else None,
            oom_kills=cgroup.oom_kills() if cgroup is not None else None,
            high_water_bytes=max(told, polled) if told > ours else polled,
            cached_before_bytes=cached_before,
            cached_bytes=cached_bytes_of_all(files) if files else None,
            seconds=seconds,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            exit_status=code if code >= 0 else 128 - code)
    finally:
        if cgroup is not None:
            cgroup.remove()
