# ruff: noqa: PTH104, PTH123, PTH208
# pathlib would double the time that this process takes to start.
"""The small process above each process that iriscw starts, so that nothing of it can outlive its order to
stop.

Theory of operation. A program may start children, children may leave its process group and session, and
whoever started the program (a controller, a worker) may be killed at any moment. So each program gets a
supervisor of its own:

* It declares itself *child subreaper*: a descendant whose parent dies becomes the supervisor's child,
  whatever session it is in. "No children left" is then the same as "nothing left", and the kernel answers
  that exactly.
* It is in a session of its own and needs nobody: it goes on when its starter dies, and it writes down who
  runs (``identity.json``) and how it ended (``exit.json``), so that a restarted starter can adopt the
  program and still learn its exit code.
* It ends only after everything below it has ended. Whoever waits for the supervisor knows that nothing runs.

* With a lease (see :mod:`iriscw.processes.lease`) it does not even need its starter to end the program: when the
  lease has run out and was not renewed, it kills the program, whoever is left to want it.

States: STARTING -(exec succeeded)-> RUNNING -(SIGTERM)-> STOPPING -(program ended, or grace over)-> SWEEPING
-> end. RUNNING goes to SWEEPING as well when the program ends by itself, and from everywhere when the lease is over;
SIGUSR1 says that it may be over sooner than was read. SWEEPING kills all descendants with SIGKILL and reaps them. A
supervisor that is itself killed takes the program with it (parent-death signal); what the program had started is then
found by the marker in its environment (see :mod:`iriscw.processes.sweep`).

Output goes to files directly, so that no descriptor ties a program to anybody. A program whose log is bounded writes
into a pipe instead, and a thread here keeps the last of it: nobody else can bound a file that others write.

This file is run by path (``python -I -S supervisor.py``) with nothing but the standard library, so that it
starts in milliseconds and no package of the user can break it. The order comes as one JSON object on
standard input, because a command line and an environment are readable by others on the machine; the report
goes to standard output as one line.

Waiting is ``sigtimedwait``: no polling.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_WAITED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1)
_SHIELDED = (*_WAITED, signal.SIGINT, signal.SIGHUP)
_FAILED_EXEC_CODE = 127
_LONGEST_WAIT_S = 1e9  # the kernel's and Python's types of time end a little further on
_LEASE_READS = 100
_PIECE_BYTES = 64 << 10
_FLUSH_S = 5.0  # for what is left in the pipe when nothing of the program runs: 64 KiB at most


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def _write(folder: str, name: str, content: dict[str, Any]) -> None:
    """Give ``folder/name`` its content as a whole, on the disk, readable by nobody else."""
    temporary = f"{folder}/.iriscw-{os.getpid()}-{name}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, json.dumps(content).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, f"{folder}/{name}")


def _start_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="surrogateescape") as file:
        return int(file.read().rpartition(") ")[2].split()[19])


def _process(pid: int) -> dict[str, int]:
    return {"pid": pid, "start_ticks": _start_ticks(pid)}


def _oom_kills() -> int:
    """Count the kernel's out-of-memory kills in this process's memory group; 0 where that is not told."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        groups = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in groups:
        name = {"": f"/sys/fs/cgroup{path}/memory.events"}.get(controllers)
        if controllers == "memory":
            name = f"/sys/fs/cgroup/memory{path}/memory.oom_control"
        if name is None:
            continue
        try:
            with open(name, encoding="utf-8") as file:
                for line in file:
                    word, _, count = line.partition(" ")
                    if word == "oom_kill":
                        return int(count)
        except OSError:
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
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        step = "signals"
        for reset in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two
            signal.signal(reset, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
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


def _start(order: dict[str, Any], outputs: list[_Output]) -> tuple[int, dict[str, Any] | None]:
    """Start the program; give its process number and, if it did not become the program, why not."""
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(order, parent, outputs[0].descriptor, outputs[-1].descriptor, writing)
    os.close(writing)
    for output in outputs:
        output.begin()
    with open(reading, "rb") as file:
        failure = file.read()
    if not failure:
        return pid, None
    os.waitpid(pid, 0)
    return pid, json.loads(failure)


class _Lease:
    """Until when the program may run; without a file, for ever.

    The file stays open: whoever renews it writes in place.
    """

    def __init__(self, path: str | None) -> None:
        self._file = None if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def left_s(self) -> float:
        """Give how long it lasts; 0 or less when it is over, and when the file says nothing that can be read."""
        if self._file is None:
            return _LONGEST_WAIT_S
        for _ in range(_LEASE_READS):  # the two times differ while they are being written
            words = os.pread(self._file, 128, 0).split()
            if len(words) == 3 and words[1] == words[2]:
                return (int(words[1]) - time.monotonic_ns()) / 1e9
        return 0.0


def _descendants() -> list[int]:
    """List all processes below this one, by one pass over ``/proc``."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="surrogateescape") as file:
                parent = int(file.read().rpartition(") ")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    edge = [os.getpid()]
    while edge:
        below = children.get(edge.pop(), [])
        found += below
        edge += below
    return found


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

    def run(self, folder: str, grace_s: float, lease: _Lease) -> tuple[bool, bool]:
        """Wait until the program ended, or was told to and its grace is over, or its lease is.

        Give whether it was told to, and whether the lease was over.
        """
        deadline: float | None = None
        while self.status is None:
            left_s = lease.left_s()
            if left_s <= 0:
                return deadline is not None, True
            if deadline is not None:
                left_s = min(left_s, deadline - time.monotonic())
            if left_s <= 0:
                break
            taken = signal.sigtimedwait(_WAITED, min(left_s, _LONGEST_WAIT_S))
            if taken is None:
                continue
            self.reap(wait=False)
            if taken.si_signo == signal.SIGTERM and self.status is None:
                ordered = time.monotonic() + _ordered_grace_s(folder, grace_s)
                if deadline is None:
                    _signal_group(self.pid)
                deadline = ordered if deadline is None else min(deadline, ordered)
        return deadline is not None, False

    def sweep(self) -> None:
        """Kill and reap everything below, until the kernel says that there are no children."""
        while self.reap(wait=False):
            for pid in _descendants():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if not self.reap(wait=True):
                return


def _ordered_grace_s(folder: str, default_s: float) -> float:
    try:
        with open(f"{folder}/stop.json", encoding="utf-8") as file:
            return float(json.load(file)["grace_s"])
    except FileNotFoundError:
        return default_s


def _signal_group(pid: int) -> None:
    """Ask the program's process group to end; its number is the program's, as setsid made it."""
    try:
        os.killpg(pid, signal.SIGTERM)
    except ProcessLookupError:
        return


def _report(content: dict[str, Any]) -> None:
    """Tell the starter, who may be gone already: then the files are what it finds."""
    try:
        os.write(1, json.dumps(content).encode() + b"\n")
    except BrokenPipeError:
        pass
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)


def main() -> int:
    """Carry out the order on standard input."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SHIELDED)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    order = json.load(sys.stdin)
    folder = order["folder"]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot_id = file.read().strip()
    identity = {"boot_id": boot_id, "supervisor": _process(os.getpid()), "target": None}
    _write(folder, "identity.json", identity)
    oom_kills_before = _oom_kills()
    outputs: list[_Output] = []
    try:
        lease = _Lease(order["lease"])
        if lease.left_s() > 0:
            outputs = _outputs(order)
            pid, failure = _start(order, outputs)
        else:
            pid, failure = 0, {"step": "lease", "errno": 0, "text": "its lease was over before it began"}
    except OSError as error:
        pid, failure = 0, {"step": "spawn", "errno": error.errno or errno.EIO, "text": str(error)}
    if failure is not None:
        _write(folder, "exit.json", {"started": False, "failure": failure})
        _report({"failure": failure})
        return 0
    program = _Program(pid)
    # The program cannot be reaped before run(): its number stays its own until then, even if it ended
    # already.
    identity["target"] = _process(pid)
    _write(folder, "identity.json", identity)
    _report({"identity": identity})
    told, lease_over = program.run(folder, order["grace_s"], lease)
    ended_alone = program.status is not None
    program.sweep()
    for output in outputs:
        output.finish()
    status = program.status
    assert status is not None, "sweep ends only when the program was reaped"
    by_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    ending = {
        "started": True,
        "code": None if by_signal else os.WEXITSTATUS(status),
        "signal": by_signal,
        "stopped": told or lease_over,
        "killed": not ended_alone,
        "lease_over": lease_over,
        "out_of_memory": by_signal == signal.SIGKILL and ended_alone and _oom_kills() > oom_kills_before,
        "max_rss_bytes": program.max_rss_bytes,
    }
    _write(folder, "exit.json", ending)
    return 0


if __name__ == "__main__":
    sys.exit(main())
