"""Real processes that count into a file, and the command that freezes them."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

from iriscw.cli import main
from iriscw.freeze.drivers.criu.ability import probe
from iriscw.freeze.model import CriuMissing, CriuUnfit, RightsMissing
from iriscw.processes.identity import ProcessGone, identify, read_stat
from waiting import block_until

PATIENCE_S = 60.0

MAIN = "import sys, iriscw.cli; sys.exit(iriscw.cli.main())"

COUNTING = """
import os, sys, time
children = int(sys.argv[2])
ballast = bytearray(b"x") * (int(sys.argv[3]) << 20)
name = sys.argv[1]
for each in range(children):
    if os.fork() == 0:
        name = f"{name}.{each}"
        break
file = open(name, "a", buffering=1)
number = 0
while True:
    number += 1
    file.write(f"{number}\\n")
    time.sleep(0.005)
"""


def why_not() -> str:
    """Say why nothing can be frozen here; empty if it can."""
    try:
        probe()
    except (CriuMissing, CriuUnfit, RightsMissing) as error:
        return str(error)
    return ""


class Counting:
    """A tree of processes that count, each into a file of its own."""

    def __init__(self, folder: Path, children: int = 0, ballast_mib: int = 1, within: tuple[str, ...] = ()) -> None:
        """``within`` is a program, with its arguments, that starts it."""
        self.file = folder / "count"
        self.files = [self.file, *(folder / f"count.{each}" for each in range(children))]
        self.process = subprocess.Popen(
            [*within, sys.executable, "-c", COUNTING, str(self.file), str(children), str(ballast_mib)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self.process.pid
        self.counts_on()

    def count(self, file: Path) -> int:
        """Return how far one of them is."""
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        return int(lines[-2]) if len(lines) > 1 else 0

    def counts(self) -> list[int]:
        """Return how far they are."""
        return [self.count(file) for file in self.files]

    def counts_on(self) -> None:
        """Wait until each has counted further than it is now."""
        before = self.counts()
        block_until(lambda: all(now > was for now, was in zip(self.counts(), before, strict=True)), "they count on")

    def unbroken(self, children: bool = True) -> bool:
        """Whether no number was left out or written twice: by the first process, and by its children unless told."""
        for file in self.files if children else self.files[:1]:
            numbers = [int(line) for line in file.read_bytes().split(b"\n")[:-1]]
            if numbers != [*range(1, len(numbers) + 1)]:
                return False
        return True

    def alive(self) -> bool:
        """Whether the first process runs; a zombie of ours is reaped."""
        self.process.poll()
        try:
            return not read_stat(self.pid).ended
        except ProcessGone:
            return False

    def kill(self) -> None:
        """End the tree, frozen, thawed or neither."""
        self.process.poll()
        for pid in {self.pid, *session_of(self.pid)}:
            try:
                identify(pid)
                os.kill(pid, signal.SIGKILL)
            except (ProcessGone, ProcessLookupError):
                continue
        self.process.wait(PATIENCE_S)


def session_of(leader: int) -> list[int]:
    """Return the processes of a session."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                stat = read_stat(int(each.name))
            except (ProcessGone, ValueError):
                continue
            if stat.session_id == leader and not stat.ended:
                found.append(stat.pid)
    return found


class Command:
    """The command line, with a state and tiers of its own: those of this user may hold what others have frozen."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.ram = folder / "ram"
        self.environment = {**os.environ, "IRISCW_STATE_DIR": str(self.state), "IRISCW_RAM_DIR": str(self.ram)}

    def start(self, *arguments: str, program: str = MAIN, within: tuple[str, ...] = ()) -> subprocess.Popen:
        """Start it; its standard error is read line by line. ``within`` is a program that becomes it."""
        return subprocess.Popen(
            [*within, sys.executable, "-c", program, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Run it to its end, in this process: it takes as long to start one as to freeze."""
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.dict(os.environ, IRISCW_RAM_DIR=str(self.ram)),
        ):
            code = main([*arguments, "--state-dir", str(self.state)])
        return code, out.getvalue(), err.getvalue()

    def apart(self, *arguments: str) -> tuple[int, str]:
        """Run it to its end, in a process of its own; give its code and what it said on standard error."""
        process = self.start(*arguments)
        _, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, err
