"""A shell with job control on a terminal of its own, and somebody who types."""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))  # for real_trees

from real_trees import PATIENCE_S

from iriscw.processes.identity import ProcessGone, read_stat
from waiting import block_until

PROMPT = "ready> "
IN_FRONT = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"


class Terminal:
    """A terminal with a program that leads its session; bash, if none is named."""

    def __init__(self, environment: dict[str, str], *argv: str, rows: int = 24, columns: int = 100) -> None:
        self._ours, its = os.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        words = {**environment, "TERM": "dumb", "PS1": PROMPT, "PS2": "", "HISTFILE": ""}
        shell = ("bash", "--norc", "--noprofile", "-i")
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", IN_FRONT, *(argv or shell)],
            stdin=its,
            stdout=its,
            stderr=its,
            env=words,
            start_new_session=True,
        )
        os.close(its)
        if not argv:
            self.until(re.escape(PROMPT))

    def type(self, keys: str) -> None:
        """Type something."""
        os.write(self._ours, keys.encode())

    def until(self, pattern: str) -> str:
        """Read what is on the screen until there is something; give all that came with it."""
        said, end = "", time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, said)):
            left = end - time.monotonic()
            assert left > 0, f"{pattern!r} never came; this did: {said!r}"
            if select.select([self._ours], [], [], left)[0]:
                try:
                    said += os.read(self._ours, 1 << 16).decode(errors="replace")
                except OSError as error:  # nobody has the other side any more
                    raise AssertionError(f"{pattern!r} never came; this did: {said!r}") from error
        return said[: found.end()]

    def run(self, line: str) -> str:
        """Have the shell do something, and give what it says."""
        self.type(f"{line}\r")
        return self.until(rf"\n(?s:.*){re.escape(PROMPT)}")

    def fg(self) -> None:
        """Have the shell bring its job to the front, and wait until it is there: keys would still go to the shell."""
        self.type("fg\r")
        self.until("iriscw restore")
        block_until(lambda: os.tcgetpgrp(self._ours) != self.process.pid, "the job is in front")

    def cooked(self) -> bool:
        """Whether lines are edited by the terminal, as a shell leaves it to a command."""
        said = self.run("stty -a")
        return " icanon" in said and " echo " in said

    def close(self) -> None:
        """Close the terminal: the kernel tells everybody who is in front to hang up."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def end(self) -> None:
        """Close it, and end all that is in its session."""
        self.close()
        for each in Path("/proc").iterdir():
            if each.name.isdigit() and _session(int(each.name)) == self.process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(each.name), signal.SIGKILL)
        self.process.kill()
        self.process.wait(PATIENCE_S)


def _session(pid: int) -> int:
    try:
        return read_stat(pid).session_id
    except ProcessGone:
        return 0
