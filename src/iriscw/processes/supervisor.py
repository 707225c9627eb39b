# ruff: noqa: PTH104, PTH108, PTH123, PTH208
# pathlib would double the time that this process takes to start.
"""The small process above each one that iriscw starts, so that nothing of it can outlive its order to stop.

Theory of operation. A program may start children, children may leave its process group and session, and whoever
started the program (a controller, a worker) may be killed at any moment. So each program gets a supervisor of its own:

* It declares itself *child subreaper*: a descendant whose parent dies becomes the supervisor's child, whatever session
  it is in. "No children left" is then the same as "nothing left", and the kernel answers that exactly.
* It is in a session of its own and needs nobody: it goes on when its starter dies, and it writes down who runs
  (``identity.json``) and how it ended (``exit.json``), so that a restarted starter can adopt the program and still
  learn its exit code (see :mod:`iriscw.processes.status`).
* It ends only after everything below it has ended. Whoever waits for the supervisor knows that nothing runs.
* A full disk changes none of that. The program's process is made first, identified on the disk, and only then let go
  to become the program: without an ``identity.json`` nothing was executed. The room for the end is taken before, too.
* With a *filter* (see :mod:`iriscw.processes.syscall_filter`) the kernel refuses the program some calls from its start.
* With a lease (see :mod:`iriscw.processes.lease`) it does not even need its starter to end the program: when the
  lease has run out and was not renewed, it kills the program, whoever is left to want it.
* It may be frozen with all below it, and brought back twice, or when the program was begun elsewhere. So if it finds
  itself brought back it goes on only with a *grant* for this one thaw (see :mod:`iriscw.processes.grants`). Without one
  it kills all below it and ends. It is in its folder, and holds no file open elsewhere: its old owner's may be gone.

States: STARTING -(exec succeeded)-> RUNNING -(SIGTERM)-> STOPPING -(program ended, or grace over)-> SWEEPING
-> end. RUNNING goes to SWEEPING as well when the program ends by itself, and from everywhere when the lease is over;
SIGUSR1 says that it may be over sooner than was read. SIGCONT wakes it: that is how who was brought back begins.
SWEEPING kills all descendants with SIGKILL and reaps them. A supervisor that is itself killed takes the program with it
(parent-death signal); what that had started is found by its environment's marker (:mod:`iriscw.processes.sweep`).

Output goes to files directly, so that no descriptor ties a program to anybody. A program whose log is bounded writes
into a pipe instead, and a thread here keeps the last of it: nobody else can bound a file that others write.

This file is run by path (``python -I -S supervisor.py``) with nothing but the standard library, so that it starts in
milliseconds and no package of the user can break it. The order comes as one JSON object on standard input, because a
command line and an environment are readable by others on the machine; the report goes to standard output as one line.

*In a container* (``supervisor.py FOLDER/order.json``) it is the first process of all, and shares nothing with whoever
wants the program but its folder and the kernel (see :mod:`iriscw.processes.contained`). So the order is a file, which
is taken by renaming it: once, and not any more if it was withdrawn. The report is ``report.json``. The order to stop is
the file ``stop`` alone, and a lease may end sooner than was read without anybody saying so: the kernel tells of writes
to both (inotify), by a signal. What the image says of the environment is kept below what the order says.

Waiting is ``sigtimedwait``. In a container it looks every few seconds as well: not every sandbox passes on all writes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import stat
import struct
import sys
import threading
import time
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_WAITED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGIO, signal.SIGCONT)
_SHIELDED = (*_WAITED, signal.SIGINT, signal.SIGHUP)
_LONGEST_WAIT_S = 1e9  # the kernel's and Python's types of time end a little further on
_LEASE_READS = 100
_LEASE_PATIENCE_NS = 10 * 10**9  # for its writer, who renews it every few seconds, to put a file back that is gone
_PIECE_BYTES = 64 << 10
_FLUSH_S = 5.0  # for what is left in the pipe when nothing of the program runs: 64 KiB at most
_RECORD_BYTES = 512  # of identity.json and exit.json, which hold half of that: room for all of it is taken beforehand
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_ROOM_RETRY_S = 1.0
_ROOM_PATIENCE_S = 3600.0  # for a disk that copies what is overwritten, and was full all that time
_LOOK_S = 5.0  # in a container, between two looks at the files for which nobody gave a signal
_NO_ORDER_CODE, _NO_GRANT_CODE, _FAILED_EXEC_CODE = 66, 67, 127
_KERNEL_TRIES, _KERNEL_RETRY_S = 100, 0.1
_FILE_BYTES, _STOP_LINE_BYTES = 64 << 10, 64
_TICKS_OFF = 2  # what rounding makes of a time in another clock
_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x2, 0x80, 0x100


def _prctl(option: int, value: int, third: int | bytes = 0) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, third, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def install_filter(program: bytes) -> None:
    """Have the kernel ask this program (classic BPF) about each system call from now on, of what is started as well."""
    code = ctypes.create_string_buffer(program, len(program))
    whole = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
    try:
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, whole)
    except PermissionError:  # without CAP_SYS_ADMIN only those may who can gain no rights
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, whole)


def _clear(path: str) -> None:
    """Have nothing of this name: a file goes, a folder that a program made is moved aside."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        os.rename(path, f"{path}.aside")


def _take_room(path: str, size: int) -> int:
    """Make a file (0600) that needs no more room to be written."""
    _clear(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.posix_fallocate(descriptor, 0, size)
    return descriptor


class _Record:
    """A status file that is there as a whole or not at all, and whose room on the disk is taken beforehand."""

    def __init__(self, folder: str, name: str) -> None:
        self._path = f"{folder}/{name}"
        self._temporary = f"{folder}/.iriscw-{os.getpid()}-{name}"
        self._file = _take_room(self._temporary, _RECORD_BYTES)

    def write(self, content: dict[str, Any]) -> None:
        """Give the file its content, on the disk."""
        if not self._in_place():  # the program spoilt it, and has to take its chance
            self._file = _take_room(self._temporary, _RECORD_BYTES)
        data = json.dumps(content).encode().ljust(_RECORD_BYTES)
        if os.pwrite(self._file, data, 0) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._temporary)
        os.fsync(self._file)
        try:
            os.rename(self._temporary, self._path)
        except IsADirectoryError:
            _clear(self._path)
            os.rename(self._temporary, self._path)

    def _in_place(self) -> bool:
        try:
            found = os.lstat(self._temporary)
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._file))


def _stat(pid: int | str, field: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="surrogateescape") as file:
        return int(file.read().rpartition(") ")[2].split()[field])


def _patiently(look: Any) -> Any:
    """Look at what is always there: for a moment the kernel may have no room for another open file."""
    for _ in range(_KERNEL_TRIES):
        try:
            return look()
        except OSError:
            signal.sigtimedwait((), _KERNEL_RETRY_S)
    return look()


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _process(pid: int) -> dict[str, int]:
    return {"pid": pid, "start_ticks": _stat(pid, 19)}


def _oom_kills() -> int:
    """Count the kernel's out-of-memory kills in this process's memory group; 0 where that is not told."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return 0
    for _, controllers, path in groups:
        files = {"": f"{path}/memory.events", "memory": f"/memory{path}/memory.oom_control"}
        if controllers in files:
            try:
                words = _read(f"/sys/fs/cgroup{files[controllers]}").split()
                return int(words[words.index(b"oom_kill") + 1])
            except (OSError, ValueError):
                continue
    return 0


def _become(order: dict[str, Any], parent: int, stdout: int, stderr: int, failure: int) -> NoReturn:
    """In the child: become the program, or write to ``failure`` at which step and why not."""
    step = "session"
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the supervisor died before the line above
            os._exit(_FAILED_EXEC_CODE)
        step = "workdir"
        os.chdir(order["workdir"])
        step = "limits"
        for name, value in order["limits"].items():
            number = getattr(resource, name)
            hard = resource.getrlimit(number)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (bound, bound))
        step = "output"
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        step = "signals"
        for ignored in (each for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_IGN):
            signal.signal(ignored, signal.SIG_DFL)  # Python ignores two, and a shell some for what is in the background
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        step = "filter"
        if filtered := bytes.fromhex(order.get("filter", "")):  # an order may be older than that word
            install_filter(filtered)
        step = "exec"
        os.execvpe(order["argv"][0], order["argv"], order["environment"])  # noqa: S606  # no shell is the point
    except BaseException as error:  # noqa: BLE001  # whatever it was, the parent reports it
        number = error.errno if isinstance(error, OSError) else 0
        os.write(failure, json.dumps({"step": step, "errno": number, "text": str(error)}).encode())
    os._exit(_FAILED_EXEC_CODE)


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


class _Output:
    """Where the program writes: a file. ``descriptor`` is what it is given."""

    def __init__(self, path: str) -> None:
        self.descriptor = _open_log(path)

    def begin(self) -> None:
        """The program has its copy of the descriptor, or was not started."""
        os.close(self.descriptor)

    def finish(self) -> None:
        """Nothing of the program runs any more."""


class _BoundedOutput(_Output):
    """A pipe, and a thread that keeps the last of what comes: at most ``limit`` bytes in ``path``, and as many of
    what came before them in ``path.1``.

    What a full disk does not take is lost, and the program goes on.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._file = _open_log(path)
        self._size = os.fstat(self._file).st_size
        self._reading, self.descriptor = os.pipe()
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def begin(self) -> None:
        os.close(self.descriptor)
        self._thread.start()  # only now: the program's process was forked from one without threads

    def finish(self) -> None:
        self._thread.join(_FLUSH_S)  # bounded: a stranger may have been passed the other end

    def _copy(self) -> None:
        while piece := os.read(self._reading, min(_PIECE_BYTES, self._limit)):
            try:
                self._take(piece)
            except OSError:
                continue

    def _take(self, piece: bytes) -> None:
        if self._size + len(piece) > self._limit:
            try:
                os.rename(self._path, f"{self._path}.1")
            except FileNotFoundError:  # it was renamed, and then the disk was full
                pass
            file = _open_log(self._path)
            os.close(self._file)
            self._file, self._size = file, 0
        while piece:
            written = os.write(self._file, piece)
            self._size += written
            piece = piece[written:]


def _outputs(order: dict[str, Any]) -> list[_Output]:
    """Open standard output and standard error: one or two."""
    limit = order["log_limit_bytes"]
    paths = dict.fromkeys((order["stdout"], order["stderr"]))
    return [_Output(path) if limit is None else _BoundedOutput(path, limit) for path in paths]


def _start(order: dict[str, Any], outputs: list[_Output]) -> tuple[int, dict[str, Any]]:
    """Start the program. Give its process number, and the report: who runs, or why it did not become the program."""
    folder = order["folder"]
    reading, writing = os.pipe()
    gate, opening = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(opening)
        if not os.read(gate, 1):  # the supervisor died, or could not write down who this is
            os._exit(_FAILED_EXEC_CODE)
        _become(order, parent, outputs[0].descriptor, outputs[-1].descriptor, writing)
    os.close(gate)
    os.close(writing)
    for output in outputs:
        output.begin()
    try:
        identity = {"boot_id": _boot_id(), "supervisor": _process(parent), "target": _process(pid)}
        _Record(folder, "identity.json").write(identity)
        os.write(opening, b"x")
    except BaseException:
        os.close(opening)
        os.waitpid(pid, 0)
        raise
    os.close(opening)
    with open(reading, "rb") as file:
        failure = file.read()
    if not failure:
        return pid, {"identity": identity}
    os.waitpid(pid, 0)
    os.unlink(f"{folder}/identity.json")
    return pid, {"failure": json.loads(failure)}


class _Lease:
    """Until when the program may run; without a file, for ever.

    The file is opened for each look and closed again: its writer may have had to make another one, and what is frozen
    must not hold it open. While it cannot be, what was read last counts, but not for long: it may be shorter by now.
    """

    def __init__(self, path: str | None) -> None:
        self._until_ns = 0
        self.move(path)

    def move(self, path: str | None) -> None:
        """Go by another file from now on, which must be there."""
        self._path = path
        if path is not None:
            self._until_ns = self._read(path)

    def left_s(self) -> float:
        """Return how long it lasts; 0 or less when it is over, and when the file says nothing that can be read."""
        if self._path is None:
            return _LONGEST_WAIT_S
        now_ns: int = time.monotonic_ns() - _patiently(lambda: _offset_ns("monotonic"))
        try:
            self._until_ns = self._read(self._path)
        except OSError:
            self._until_ns = min(self._until_ns, now_ns + _LEASE_PATIENCE_NS)
        return (self._until_ns - now_ns) / 1e9

    @staticmethod
    def _read(path: str) -> int:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "not a plain file", path)
            for _ in range(_LEASE_READS):  # the two times differ while they are being written
                words = os.pread(file, 128, 0).split()
                if len(words) == 3 and words[0] == _boot_id().encode() and words[1] == words[2] and words[1].isdigit():
                    return int(words[1])
        finally:
            os.close(file)
        return 0


class _Watch:
    """Has the kernel send SIGIO when one of the files is written, or something is made in or moved to a folder."""

    def __init__(self, paths: list[str]) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._file = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1 failed")
        fcntl.fcntl(self._file, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        for path in paths:
            wanted = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE
            if library.inotify_add_watch(self._file, os.fsencode(path), ctypes.c_uint32(wanted)) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch failed", path)

    def empty(self) -> None:
        """Take what was told, so that more is told of. Before the files are read, not after."""
        try:
            while os.read(self._file, _PIECE_BYTES):
                continue
        except BlockingIOError:
            return


def _descendants() -> list[int]:
    """List all processes below this one, by one pass over ``/proc``."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            parent = _stat(entry, 1)
        except OSError:  # it has ended, or it is another user's and hidden: then it is none of ours
            continue
        children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    edge = [os.getpid()]
    while edge:
        below = children.get(edge.pop(), [])
        found += below
        edge += below
    return found


class _Refused(Exception):
    """It was brought back from its images, and nobody granted that: what it finds in its folder is another life's."""


class _Life:
    """Notices that the supervisor was brought back: it began at another time, by a clock that stood still meanwhile."""

    def __init__(self, order: dict[str, Any], identity: dict[str, Any], lease: _Lease) -> None:
        self._folder: str = order["folder"]
        self._target: int = identity["target"]["pid"]
        self._lease = lease
        self._known = self._now()

    def look(self) -> None:
        """Go on in the life that is known, or one that was granted, and write that down; in others, ``_Refused``."""
        now = _patiently(self._now)
        if now == self._known:
            return
        try:
            identity = self._told(now[1])
            record = _Record(self._folder, "identity.json")
            self._lease.move(_take_grant(self._folder))
            record.write(identity)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _Refused from error
        self._known = now

    @staticmethod
    def _now() -> tuple[str, int, str]:
        clock = os.readlink("/proc/self/ns/time") if os.path.lexists("/proc/self/ns/time") else ""  # noqa: PTH115
        return _boot_id(), _stat(os.getpid(), 19), clock

    def _told(self, ticks: int) -> dict[str, Any]:  # what the machine calls us, and when, only those outside can tell
        told = json.loads(_read(f"{self._folder}/thawed.json"))
        named = [{"pid": int(pid), "start_ticks": int(ticks)} for pid, ticks in told["tasks"]]
        tasks = dict(zip(told["numbers"], named, strict=True))  # by the numbers that we see: a namespace may be ours
        both = {"supervisor": tasks[os.getpid()], "target": tasks[self._target]}
        off = ticks - _offset_ns("boottime") * os.sysconf("SC_CLK_TCK") // 10**9 - both["supervisor"]["start_ticks"]
        if told["boot_id"] != _boot_id() or abs(off) > _TICKS_OFF:
            raise ValueError("it tells of another life")
        return {"boot_id": told["boot_id"], **both}


def _offset_ns(clock: str) -> int:
    """Read how far a clock of ours is ahead of the machine's: what was brought back has clocks that stood still."""
    path = "/proc/self/timens_offsets"
    if not os.path.exists(path):  # noqa: PTH110  # a kernel without such namespaces
        return 0
    with open(path, encoding="ascii") as file:
        offsets = {name: int(whole) * 10**9 + int(rest) for name, whole, rest in (line.split() for line in file)}
    return offsets.get(clock, 0)


def _read(path: str, size: int = _FILE_BYTES) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(file, size)
    finally:
        os.close(file)


def _take_grant(folder: str) -> str:
    """Take the grant in the folder, which nobody can then take or withdraw. Give the file of its lease."""
    os.rename(f"{folder}/grant.json", f"{folder}/grant.json.taken")
    return str(json.loads(_read(f"{folder}/grant.json.taken"))["lease"])


class _Program:
    """The program and how it ended: ``status`` is that of ``waitpid``, or None while it runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.max_rss_bytes = 0

    def reap(self, *, wait: bool) -> bool:
        """Reap what has ended; with ``wait``, one at least. Give False once there are no children at all."""
        options = 0 if wait else os.WNOHANG
        while True:
            try:
                pid, status, usage = os.wait4(-1, options)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = status
                self.max_rss_bytes = usage.ru_maxrss * 1024
            options = os.WNOHANG

    def run(self, order: dict[str, Any], lease: _Lease, watch: _Watch | None, life: _Life) -> tuple[bool, bool]:
        """Wait until the program ended, or was told to and its grace is over, or its lease is.

        With a ``watch`` the file is an order, too. Give whether it was told to, and whether the lease was over.
        """
        folder, longest_s = order["folder"], _LONGEST_WAIT_S if watch is None else _LOOK_S
        deadline: float | None = None
        said: float | None = None
        told = False
        while self.status is None:
            life.look()
            if watch is not None and (grace_s := _stop_file(folder)) != said and grace_s is not None:
                said, told = grace_s, True
            if told:
                told = False
                grace_s = _stop_file(folder)  # the program may have spoilt it, and then gets the default
                ordered = time.monotonic() + (order["grace_s"] if grace_s is None else grace_s)
                if deadline is None:
                    _signal_group(self.pid)
                deadline = ordered if deadline is None else min(deadline, ordered)
            left_s = lease.left_s()
            if left_s <= 0:
                return deadline is not None, True
            if deadline is not None:
                left_s = min(left_s, deadline - time.monotonic())
            if left_s <= 0:
                break
            taken = signal.sigtimedwait(_WAITED, min(left_s, longest_s))
            life.look()
            if watch is not None:
                watch.empty()
            if taken is None:
                continue
            self.reap(wait=False)
            told = taken.si_signo == signal.SIGTERM and self.status is None
        return deadline is not None, False

    def sweep(self) -> None:
        """Kill and reap everything below, until the kernel says that there are no children."""
        while self.reap(wait=False):
            for pid in _descendants():
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):  # it has another user's rights: it is waited for
                    continue
            if not self.reap(wait=True):
                return


def _stop_file(folder: str) -> float | None:
    """Read the order to stop; None if there is none, or none that can be read."""
    try:
        words = _read(f"{folder}/stop", _STOP_LINE_BYTES).split()
        grace_s = float(words[0]) if len(words) == 2 and words[0] == words[1] else -1.0
    except (OSError, ValueError):
        return None
    return grace_s if grace_s >= 0 else None


def _signal_group(pid: int) -> None:
    """Ask the program's process group to end; its number is the program's, as setsid made it."""
    try:
        os.killpg(pid, signal.SIGTERM)
    except ProcessLookupError:
        return


def _ending(program: _Program, *, told: bool, lease_over: bool, killed: bool) -> dict[str, Any]:
    status = program.status
    assert status is not None, "sweep ends only when the program was reaped"
    by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return {
        "code": None if by_signal else os.WEXITSTATUS(status),
        "signal": by_signal,
        "stopped": told or lease_over,
        "killed": killed,
        "lease_over": lease_over,
        "out_of_memory": False,
        "max_rss_bytes": program.max_rss_bytes,
    }


def _tell_end(record: _Record, ending: dict[str, Any], lease: _Lease, life: _Life) -> None:
    """Write down how it ended. Where a disk copies what is overwritten there may be no room: it is waited for."""
    deadline = time.monotonic() + _ROOM_PATIENCE_S
    while True:
        life.look()
        try:
            return record.write(ending)
        except OSError as error:
            if error.errno not in _NO_ROOM or min(lease.left_s(), deadline - time.monotonic()) <= 0:
                raise
        signal.sigtimedwait((signal.SIGUSR1,), _ROOM_RETRY_S)  # the lease may be over sooner


def _take_order(path: str) -> dict[str, Any] | None:
    """Take the order of a container, which nobody can then withdraw; None if there is none to take any more."""
    taken = f"{path}.taken"
    try:
        os.rename(path, taken)
    except FileNotFoundError:
        return None
    with open(taken, encoding="utf-8") as file:
        order: dict[str, Any] = json.load(file)
    return {**order, "environment": {**os.environ, **order["environment"]}}


def _tell(folder: str, report: dict[str, Any], *, contained: bool) -> None:
    """Tell whoever looks into the folder, or the starter. Who was not told finds ``identity.json``."""
    if contained:
        try:
            gpus, host = (os.environ.get(name, "") for name in ("NVIDIA_VISIBLE_DEVICES", "IRIS_ADVERTISE_HOST"))
            _Record(folder, "report.json").write({**report, "gpus": gpus, "host": host})
        except OSError as error:
            sys.stderr.write(f"the report could not be written: {error}\n")
        return
    try:
        os.write(1, json.dumps(report).encode() + b"\n")
    except BrokenPipeError:  # the starter is gone
        pass
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class _Run:
    """What is at hand while a program runs. ``watch`` is there in a container only."""

    def __init__(self, order: dict[str, Any], *, contained: bool) -> None:
        self.order = order
        for name in ("folder", "stdout", "stderr", "lease"):  # the program is not where we are
            order[name] = order[name] and os.path.abspath(order[name])  # noqa: PTH100
        self.folder: str = order["folder"]
        self.contained = contained
        self.lease = _Lease(order["lease"])
        self.watch: _Watch | None = None
        self.outputs: list[_Output] = []

    def begin(self) -> tuple[int, dict[str, Any]]:
        """Start the program if its lease lasts. Give its number, and the report."""
        if self.lease.left_s() <= 0:
            return 0, _failure("lease", 0, "its lease was over before it began")
        self.record = _Record(self.folder, "exit.json")
        os.close(_take_room(f"{self.folder}/stop", _STOP_LINE_BYTES))
        if self.contained:  # before the first look at what it tells of
            leases = [os.path.dirname(self.order["lease"])] if self.order["lease"] else []  # noqa: PTH120
            self.watch = _Watch([f"{self.folder}/stop", *leases])
        self.outputs = _outputs(self.order)
        return _start(self.order, self.outputs)


def _failure(step: str, number: int, text: str) -> dict[str, Any]:
    return {"failure": {"step": step, "errno": number, "text": text}}


def main() -> int:
    """Carry out the order on standard input, or in a container the one in the file that is named."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SHIELDED)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for name in os.listdir("/proc/self/fd"):  # whoever started us may have had some that are inherited
        os.closerange(max(3, int(name)), int(name) + 1)  # closes one; the one that lists them is closed already
    contained = len(sys.argv) > 1
    order = _take_order(sys.argv[1]) if contained else json.load(sys.stdin)
    if order is None:
        sys.stderr.write(f"{sys.argv[1]} is not there: it was withdrawn, or carried out\n")
        return _NO_ORDER_CODE
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    oom_kills_before = _oom_kills()
    try:
        run = _Run(order, contained=contained)
        pid, report = run.begin()
    except OSError as error:
        report = _failure("spawn", error.errno or errno.EIO, str(error))
    if "failure" in report:
        _tell(order["folder"], report, contained=contained)
        return 0
    os.chdir(run.folder)  # its starter's may be gone by the time that it is brought back
    program = _Program(pid)  # not reaped before run(): its number stays its own until then, even if it ended already
    try:
        life = _Life(order, report["identity"], run.lease)
        _tell(run.folder, report, contained=contained)
        told, lease_over = program.run(order, run.lease, run.watch, life)
        killed = program.status is None
        program.sweep()
        for output in run.outputs:
            output.finish()
        ending = _ending(program, told=told, lease_over=lease_over, killed=killed)
        if ending["signal"] == signal.SIGKILL and not killed and _oom_kills() > oom_kills_before:
            ending["out_of_memory" if contained else "perhaps_out_of_memory"] = True  # a group of its own, or shared
        _tell_end(run.record, ending, run.lease, life)
    except _Refused:
        return _NO_GRANT_CODE
    finally:
        program.sweep()
    return 0


if __name__ == "__main__":
    sys.exit(main())
