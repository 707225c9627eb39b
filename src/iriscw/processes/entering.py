# ruff: noqa: PTH123, PTH208
# pathlib would double the time that this program takes to start.
"""Run a command beside an attempt that runs: in its working folder, with its variables, for as long as it runs.

This file is run as ``python -I -S -c SOURCE MARK UID COMMAND...`` in the container in which the attempt is, which may
have another Python than ours, and no iriscw. So nothing is imported but the standard library, and no variable of the
attempt travels: they are read here. The attempt's program is the oldest process with its mark in its environment, and
with what only tasks are given: its supervisor has the mark alone, and what it started is younger.

When the attempt ends this ends too, and whoever attends it kills the command. If both are killed the command is, too
(parent-death signal), and what it had started is found by the marks of who attends it. What is said here, and not by
the command, follows the MARK on standard error: a kind and a reason.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys

UID_VARIABLE, TASK_VARIABLE = b"IRIS_ATTEMPT_UID", b"IRIS_TASK_ID"

MARKS = (b"IRISCW_POD_UID", b"IRISCW_COMMAND")
"""The variables of this process by which all that runs in a pod, or for a command, is found on the local platform."""

ABSENT, REFUSED, ENDED = "absent", "refused", "ended"
"""The kinds: there is no such attempt, the command cannot be started, the attempt has ended."""

CLEARING_S = 5.0
"""How long after the SIGKILL of a command its attempt's end is waited for: whoever ends an attempt kills both, and a
large process takes its time to be gone."""

NO_COMMAND_CODE = 125
SIGNAL_EXIT_BASE = 128

_PR_SET_PDEATHSIG = 1


def find(uid: bytes) -> tuple[int, dict[bytes, bytes]] | None:
    """Find the program of an attempt: its number, and its variables; None if there is none."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                pairs = (pair.partition(b"=") for pair in file.read().split(b"\0") if b"=" in pair)
                variables = {key: value for key, _, value in pairs}
            if variables.get(UID_VARIABLE) == uid and TASK_VARIABLE in variables:
                with open(f"/proc/{name}/stat", "rb") as file:
                    began = int(file.read().rpartition(b")")[2].split()[19])
                found.append((began, int(name), variables))
        except OSError:
            continue  # it has ended, or is somebody else's
    return min(found)[1:] if found else None


def tell(mark: str, kind: str, reason: str = "") -> int:
    """Say why there is no command, or not any more; give the exit code."""
    os.write(2, f"{mark}{kind} {reason}".encode())
    return NO_COMMAND_CODE


def begin_anew() -> None:
    """Become the same program from a file in memory: a list of processes, which many a command is, then shows one short
    line and not this source. Where that cannot be, go on as it is.
    """
    words = getattr(sys, "orig_argv", [])  # not in old Pythons
    if sys.argv[0] != "-c" or "-c" not in words:
        return
    at = words.index("-c")
    try:
        file = os.memfd_create("iriscw-exec", 0)
        with open(file, "wb", closefd=False) as source:
            source.write(words[at + 1].encode())
        os.execv(sys.executable, [*words[:at], f"/proc/self/fd/{file}", *words[at + 2 :]])  # noqa: S606 - no shell
    except (OSError, AttributeError):
        return


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(mark: str, uid: str, *command: str) -> int:
    """Run the command, and give its exit code."""
    program = find(uid.encode())
    if program is None:
        return tell(mark, ABSENT)
    number, variables = program
    try:
        watched = os.pidfd_open(number)
        os.chdir(f"/proc/{number}/cwd")
    except OSError:
        return tell(mark, ABSENT)
    variables.update({name: os.environb[name] for name in MARKS if name in os.environb})
    try:
        # No thread runs here, so a function may run between fork and exec.
        process = subprocess.Popen(  # noqa: S603 - to run what it is told is what it is for
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509
        )
    except (OSError, ValueError) as error:
        return tell(mark, REFUSED, getattr(error, "strerror", None) or str(error))
    running = os.pidfd_open(process.pid)
    while True:
        ready = select.select([running, watched], [], [])[0]
        if running in ready:
            code = process.wait()
            cleared_s = CLEARING_S if code == -signal.SIGKILL else 0
            if code < 0 and select.select([watched], [], [], cleared_s)[0]:
                return tell(mark, ENDED)  # whoever clears up after an attempt was here first
            return code if code >= 0 else SIGNAL_EXIT_BASE - code
        if watched in ready:
            return tell(mark, ENDED)


if __name__ == "__main__":
    begin_anew()
    sys.exit(main(*sys.argv[1:]))
