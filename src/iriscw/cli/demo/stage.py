"""Where the demo's second act plays: a folder in memory, and in it the server with all that freezing writes.

All of it is in one folder of ``/dev/shm``, with a name of its own: no checkpoint of the user's is near it, and removing
it removes everything. Whoever owns such a folder holds a lock on it. The lock goes with the process, so the next demo
knows the folders of those that were killed, ends what runs in them, and removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import attrs

from iriscw.cli.demo import server
from iriscw.files import make_private_folder, remove_tree
from iriscw.processes.identity import ProcessGone, ProcessIdentity, identify, pidfd_of, send_signal

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # what is made there has mode 0700
PREFIX: Final = "iriscw-demo-"
PROGRAM: Final = Path(server.__file__)
PROGRAM_ENDS: Final = PROGRAM.parts[-4:]
"""How its path ends wherever iriscw is installed: a demo that was killed may have been that of another environment."""

ERRORS: Final = "server.err"
GONE_WITHIN_S: Final = 10.0
"""For a server that was killed: its memory has to be given back."""

MAX_TRIES: Final = 8
"""To make a folder, when others that begin at the same moment take it for an abandoned one."""

MAX_ERROR_BYTES: Final = 500


@attrs.define(eq=False)
class DemoStage:
    """The folder, and the server in it. Its methods block."""

    folder: Path
    _lock: int
    _process: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls, memory: Path = MEMORY) -> Self:
        """Make one, after what killed demos left was removed.

        Raises:
            OSError: as the file system says it; nothing is left.
        """
        remove_abandoned(memory)
        for _ in range(MAX_TRIES):
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory))
            lock = _locked(folder)
            if lock is not None:
                make_private_folder(folder / "server")
                return cls(folder, lock)
        raise FileNotFoundError(f"{folder} was removed by another demo, as each of {MAX_TRIES} before it")

    @property
    def state(self) -> Path:
        """Where operations are written down."""
        return self.folder / "state"

    @property
    def tier(self) -> Path:
        """Where checkpoints lie."""
        return self.folder / "memory"

    @property
    def repository(self) -> Path:
        """Where checkpoints are stored beyond this machine: here as well, in the demo."""
        return self.folder / "repository"

    def start(self, state_bytes: int) -> subprocess.Popen[bytes]:
        """Start the server, in a session of its own. It says its port on standard output when it answers."""
        with (self.folder / ERRORS).open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603  # a list of arguments
                [sys.executable, "-I", "-S", str(PROGRAM), str(self.folder), str(state_bytes)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self.folder / "server",
                start_new_session=True,
            )
        return self._process

    def errors(self) -> str:
        """Return the end of what the server said about its end."""
        return (self.folder / ERRORS).read_bytes()[-MAX_ERROR_BYTES:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        """End what runs in it, frozen, thawed or neither, and remove it.

        Raises:
            OSError: as the file system says it.
        """
        try:
            end_servers(self.folder)
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):  # that it is left is told by whoever looks
                    self._process.wait(GONE_WITHIN_S)
                if self._process.stdout is not None:
                    self._process.stdout.close()
            remove_tree(self.folder)
        finally:
            os.close(self._lock)


def remove_abandoned(memory: Path = MEMORY) -> list[Path]:
    """End and remove what killed demos of this user left; give the folders. What others own is left alone."""
    removed = []
    for folder in sorted(memory.glob(f"{PREFIX}*")):
        lock = _locked(folder)
        if lock is None:
            continue
        try:
            end_servers(folder)
            remove_tree(folder)
            removed.append(folder)
        finally:
            os.close(lock)
    return removed


def end_servers(folder: Path) -> None:
    """Kill the servers of this folder, and wait until they have ended."""
    for each in servers_of(folder):
        with contextlib.suppress(ProcessGone), pidfd_of(each) as descriptor:
            send_signal(each, signal.SIGKILL)
            select.select([descriptor], [], [], GONE_WITHIN_S)


def servers_of(folder: Path) -> Iterator[ProcessIdentity]:
    """Yield the processes that are the server of this folder: those who were started as one, and no others."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            identity = identify(int(entry.name))
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except (ProcessGone, FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended, is about to, or belongs to somebody else
        match [Path(os.fsdecode(each)) for each in arguments[3:5]]:
            case [program, place] if program.parts[-4:] == PROGRAM_ENDS and place == folder:
                yield identity


def _locked(folder: Path) -> int | None:
    """Take the lock of a folder that is there, and this user's; None if somebody has it, or it is gone or another's."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held, named = os.fstat(lock), folder.lstat()
        if named.st_uid == os.geteuid() and (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino):
            return lock
    except (BlockingIOError, FileNotFoundError):
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None
