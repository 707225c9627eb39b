"""An entry of the catalogue: a program or a shape, how it is begun and looked at, and what a freeze makes of it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))  # for strange_programs
sys.path.insert(0, str(Path(__file__).parents[2] / "agent"))  # for real_trees

from real_trees import session_of
from strange_programs import Missing, Program, fetched

from iriscw.freeze.drivers.processes.reading import descendants
from iriscw.processes.identity import ProcessGone, ProcessIdentity, identify, is_alive, pidfd_of, read_stat

PATIENCE_S = 20.0
"""For anything to come to be that takes far less than a second on a machine that is not loaded."""

POLL_S = 0.005


@attrs.frozen
class Whole:
    """It is frozen, its processes are gone, it comes back and goes on."""


@attrs.frozen
class Refused:
    """It is not frozen, and runs on; the error holds each of these words."""

    words: tuple[str, ...]


@attrs.frozen
class Without:
    """It comes back and goes on, and lacks what CRIU does not bring back, for a reason that is written down."""

    lacks: frozenset[str] = attrs.field(converter=frozenset)
    """What differs afterwards: names of attributes, or ``state``."""


WHOLE = Whole()


def refused(*words: str) -> Refused:
    """Return the verdict that names a gate or an error, and no more prose than tells it from others."""
    return Refused(words)


class Lost(AssertionError):
    """It was frozen and ended, and is not what it was."""


class Unavailable(Exception):
    """What an entry needs is not on this machine; the text says what."""


class NotFetched(Unavailable):
    """It is not among the programs that were fetched for the tests, where it should be."""


_patience_s = [PATIENCE_S]


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Wait no longer than this inside: for what decides nothing."""
    _patience_s.append(seconds)
    try:
        yield
    finally:
        _patience_s.pop()


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until it holds."""
    end = time.monotonic() + _patience_s[-1]
    while not holds():
        assert time.monotonic() < end, f"it never came to this: {what}"
        time.sleep(POLL_S)


def number_is_free(pid: int) -> bool:
    """Whether nobody has this process number, not even a zombie."""
    try:
        read_stat(pid)
    except ProcessGone:
        return True
    return False


@attrs.define
class Live:
    """A program that runs: its first process, what it holds, and that it goes on."""

    pid: int
    state: Callable[[], object]
    """What a freeze may not change; two calls without a freeze between them give equal values."""
    goes_on: Callable[[], None]
    """Ask it for something, or wait until it has done something; raises when it does not."""
    at_rest: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """Have it do nothing for as long as it is looked at, if it can be asked to: what it opens for a moment is shut."""


class Stage:
    """Where an entry runs: a folder, and all that was started or opened for it, which is ended afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held = contextlib.ExitStack()
        self._started: list[subprocess.Popen] = []
        self.threads: list[int] = []
        """The threads of the process that was looked at last, as they were then."""
        self._seen: set[ProcessIdentity] = set()

    def program(self, name: str) -> Program:
        """Find a program.

        Raises:
            Unavailable: it is not on this machine.
        """
        try:
            return Program(name)
        except Missing as error:
            raise (Unavailable if fetched() is None else NotFetched)(str(error)) from error

    def start(self, arguments: Iterable[str | Path], environment: dict | None = None, **words) -> subprocess.Popen:
        """Start a program as servers are: in a session of its own, its output in the file ``output``."""
        with (self.folder / "output").open("ab") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            process = subprocess.Popen(
                [str(each) for each in arguments],
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.folder), **(environment or {})},
                **{"cwd": self.folder, "start_new_session": True, **streams, **words},
            )
        self._started.append(process)
        return process

    def run(self, name: str, *arguments: str | Path, environment: dict | None = None, **words) -> subprocess.Popen:
        """Find a program and start it."""
        program = self.program(name)
        return self.start([program.path, *arguments], {**program.environment, **(environment or {})}, **words)

    def output(self) -> str:
        """Return what was written to the file ``output`` so far."""
        return (self.folder / "output").read_text(errors="replace")

    def ready(self, process: subprocess.Popen, holds: Callable[[], object], what: str) -> None:
        """Wait until it holds; a program that has ended shows what it said."""

        def so() -> object:
            assert process.poll() is None, f"it has ended: {self.output()}"
            return holds()

        until(so, what)

    def reap(self) -> None:
        """Wait for children of ours that have ended: their numbers are free afterwards."""
        for each in self._started:
            each.poll()

    def numbers(self, pid: int) -> list[int]:
        """Return the numbers of a tree's processes, those of zombies too."""
        found = [pid]
        for each in found:  # it grows
            for thread in Path(f"/proc/{each}/task").glob("*/children"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    found += map(int, thread.read_text().split())
        return found

    def tree(self, pid: int) -> list[ProcessIdentity]:
        """Return the processes of a tree that run, the first one first; they are ended with the stage."""
        with contextlib.suppress(FileNotFoundError):
            self.threads = sorted(int(each.name) for each in Path(f"/proc/{pid}/task").iterdir())
        found = []
        for each in (pid, *(task.pid for task in descendants(pid))):
            with contextlib.suppress(ProcessGone):
                if not read_stat(each).ended:
                    found.append(identify(each))
        self._seen.update(found)
        return found

    def _ours(self) -> Iterator[int]:
        """Yield the processes that were started with the stage's folder as their home, wherever they are by now."""
        mark = os.fsencode(f"HOME={self.folder}\0")
        for each in Path("/proc").iterdir():
            with contextlib.suppress(FileNotFoundError, PermissionError, ProcessLookupError):
                if each.name.isdigit() and mark in (each / "environ").read_bytes():
                    yield int(each.name)

    def _kill(self) -> bool:
        """Kill all of it that is found, and say whether there was any: who is left may start another one meanwhile."""
        for pid in self._ours():
            for each in (pid, *session_of(pid)):
                self.tree(each)
        for each in self._started:
            if each.poll() is None:
                each.kill()  # also where its first thread has ended, and nobody can read its environment
        left = [each for each in self._seen if is_alive(each)]
        for each in left:
            with contextlib.suppress(ProcessLookupError), pidfd_of(each) as descriptor:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return bool(left)

    def end(self) -> None:
        """End what was started, thawed or not, and all that came of it; then close what was opened."""
        while self._kill():
            time.sleep(POLL_S)
        for each in self._started:
            each.wait(PATIENCE_S)
        self.held.close()


def free_port(*kinds: int) -> int:
    """Return a port that nobody has at the moment, for sockets of each of these kinds; by default of TCP."""
    while True:
        port = 0
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):  # it is free for one kind alone
            for kind in kinds or (socket.SOCK_STREAM,):
                channel = held.enter_context(socket.socket(socket.AF_INET, kind))
                channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                channel.bind(("127.0.0.1", port))
                port = channel.getsockname()[1]
            return port


def connect(port: int) -> socket.socket:
    """Connect to a server of this machine, with patience for each answer."""
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S)


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return False
    return True


@attrs.frozen
class Entry:
    """A program or a shape of the catalogue."""

    name: str
    begin: Callable[[Stage], Live]
    """Start it on the stage, and return when it is ready: when it said so, or answers."""
    verdict: Whole | Refused | Without = WHOLE
    freeze: tuple[str, ...] = ()
    """Options of the command that freezes it."""
    thaw: tuple[str, ...] = ()
    """Options of the command that thaws it."""
    bare: tuple[str, ...] = ()
    """Options of CRIU alone, beside those that it always has."""
    changing: frozenset[str] = attrs.field(default=frozenset(), converter=frozenset)
    """Attributes that the program itself changes while it runs: they are not compared."""
    settle: Callable[[Stage, Live], None] | None = None
    """What happens between the freeze and the thaw, if anything does."""
    quick: bool = False
    """Whether it belongs to the tests that run each time."""
    renumbered: bool = False
    """Whether it comes back in a PID namespace of its own: everybody else sees other numbers than it had."""
    soak: bool = False
    """Whether it takes too long for anything but long runs."""
    alone: str = ""
    """What on this machine it shares with others of this name: they are judged one after the other."""
    apart: bool = False
    """Whether the command runs as a process of its own, as users run it."""
    through: tuple[str, ...] = ()
    """A program, with its arguments, that starts the command, if it runs as a process of its own."""


LOW_TERMINALS = 16
"""So many others may open a terminal while one of the catalogue is frozen."""


def above(begin: Callable[[Stage], Live]) -> Callable[[Stage], Live]:
    """Have it get a terminal with a number that nobody gets soon: the lowest free one is given out first."""

    def begun(stage: Stage) -> Live:
        with contextlib.ExitStack() as low:
            for _ in range(LOW_TERMINALS):
                for end in os.openpty():
                    low.callback(os.close, end)
            return begin(stage)

    return begun


TERMINALS = "terminals"
"""Their numbers are those of the machine: who opens one gets the lowest that is free, be it one of a frozen tree."""
