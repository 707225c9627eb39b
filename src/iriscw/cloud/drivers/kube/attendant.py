# ruff: noqa: PTH123, PTH208
# pathlib would double the time that this program takes to start.
"""The small program above each command that is run in a pod: so that nothing of it outlives whoever wanted it.

Theory of operation. A container runtime ends a command's standard input when its connection ends, and does nothing else
to it: a command that does not read would go on for ever. So what is run in the container is this program; it runs the
command, and its own standard input is a lifeline. It kills the command, with all that it started, when

* the lifeline ends, or brings the byte :data:`KILL`;
* the lifeline brings nothing for the length of the lease: whoever is there sends a byte now and then;
* the command's time is over;
* the command itself has ended: what it left running goes with it.

It is a *child subreaper*, so a descendant whose parent dies becomes its child whatever session it is in, and "no
children left" is "nothing left". It ends only then, with the command's exit code (128 and the signal's number if a
signal killed it). If it is itself killed, the command is, too (parent-death signal); what the command had started may
escape then, and only then, until the pod ends.

The order comes on standard input, its length (eight digits) and then JSON: what stands in the arguments of ``exec`` is
in the API server's audit log and in the node's list of processes, and there are secrets in environments. For the same
reason the program itself comes that way (:mod:`iriscw.cloud.drivers.kube.exec`), so an image needs an interpreter, and
none of iriscw; and both ends of the conversation are always of one version. It keeps to the standard library of old
Pythons.

Before it reads anything, the notes' mark (the first argument) is on standard error: whoever sees it knows that it runs,
and that the command does not yet. The mark with a reason behind it says that the command could not be started.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

KILL = b"k"
"""On the lifeline: end the command now. Every other byte says that somebody is there."""

LENGTH_DIGITS = 8
"""How the order begins: with its length in bytes, in so many decimal digits."""

NOT_STARTED_CODE = 125
"""The exit code if the command could not be started; the reason is on standard error. Docker's own has the same."""

SIGNAL_EXIT_BASE = 128
SWEEP_PAUSE_S = 0.02
"""Between two rounds of killing: a process may fork faster than it is found."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """Return the processes below one, children before their own."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [*children.get(root, ())]
    for each in found:
        found.extend(children.get(each, ()))
    return found


class AttendedCommand:
    """The command that runs.

    Args:
        order: What to run, as it came: ``argv``, ``environment``, and ``timeout_s`` and ``lease_s``, 0 for none.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        now = time.monotonic()
        self.lease_s = order["lease_s"]
        self.until = now + order["timeout_s"] if order["timeout_s"] else float("inf")
        self.lease = now + self.lease_s if self.lease_s else float("inf")
        self.code: int | None = None
        self.killing = False
        self.lifeline = True
        added = {_encoded(name): _encoded(value) for name, value in order["environment"].items()}
        # No thread runs here, so a function may run between fork and exec.
        self.process = subprocess.Popen(  # noqa: S603 - to run what it is told is what it is for
            [_encoded(word) for word in order["argv"]],
            env={**os.environb, **added},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )

    def attend(self, wake: int) -> int:
        """Wait until nothing is left, and give the exit code. ``wake`` becomes readable when a child has ended."""
        while self._reap():
            if self.code is not None:
                self.killing = True
            if self.killing:
                for each in descendants(os.getpid()):
                    _kill(each)
            pause = min(self.until, self.lease) - time.monotonic()
            wanted = [wake, 0] if self.lifeline else [wake]
            limit = SWEEP_PAUSE_S if self.killing else max(0.0, pause) if pause < float("inf") else None
            ready = select.select(wanted, [], [], limit)[0]
            if wake in ready:
                os.read(wake, 4096)
            if 0 in ready:
                self._listen()
            if time.monotonic() >= min(self.until, self.lease):
                self.killing = True
        return SIGNAL_EXIT_BASE + signal.SIGKILL if self.code is None else self.code

    def _listen(self) -> None:
        said = os.read(0, 4096)
        if not said or KILL in said:
            self.killing = True
        if not said:
            self.lifeline = False
            return
        if self.lease_s:
            self.lease = time.monotonic() + self.lease_s

    def _reap(self) -> bool:
        """Take note of who has ended; give whether somebody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.process.pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = self.process.returncode = code if code >= 0 else SIGNAL_EXIT_BASE - code


def _exactly(count: int) -> bytes:
    """Read that many bytes, and none of what comes after them; nothing if the input ends before."""
    data = b""
    while len(data) < count:
        piece = os.read(0, count - len(data))
        if not piece:
            return b""
        data += piece
    return data


def _encoded(text: str) -> bytes:
    """Return what the caller's machine would write: UTF-8, whatever this container's locale is."""
    return text.encode("utf-8", "surrogateescape")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended meanwhile
    except PermissionError:
        pass  # it has become another user: the pod's end is its end


def main() -> int:
    """Run the command of the order on standard input, and give the exit code."""
    order = _exactly(int(_exactly(LENGTH_DIGITS) or b"0"))
    if not order:
        return NOT_STARTED_CODE  # whoever wanted something went away before it was said
    wake, ring = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _control(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        command = AttendedCommand(json.loads(order))
    except OSError as problem:
        sys.stderr.write(sys.argv[1] + (problem.strerror or str(problem)))
        return NOT_STARTED_CODE
    return command.attend(wake)


if __name__ == "__main__":
    sys.exit(main())
