"""What runs first in a task that has steps: each of them, and then the program, in whose place it was started.

It is copied into the attempt's folder and begun there with ``python3 -I -S``, in a container with the image's own
Python: so it imports nothing but the standard library. Its order is in ``setup.json`` beside it. Its output is the
task's, and so are its variables, user and limits; whatever it starts is of the task, and ends with it.

When a step fails, or the program cannot be executed, ``setup-failed.json`` says so by name, and the exit code is that
of the step (128 and the number of a signal), 124 for one that took too long or printed too much, and 127 for a program
that is not there.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FAILED_FILE = "setup-failed.json"
MAX_OUTPUT_BYTES = 64 << 20
"""Of one step: a build of PyTorch prints 10 MB."""

LOOK_S = 0.5
SHOWN_LINES, SHOWN_BYTES = 20, 4 << 10

EXIT_TOO_MUCH = 124
EXIT_NO_PROGRAM = 127


def main() -> int:
    """Run the steps, and become the program."""
    private = Path(__file__).parent
    order = json.loads((private / "setup.json").read_text())
    steps, timeout_s = order["steps"], order["timeout_s"]
    for number, step in enumerate(steps, 1):
        _say(f"iriscw: setup, step {number} of {len(steps)}: {shlex.join(step)[:500]}")
        before, begun = _written(), time.monotonic()
        kind, said, code = _run(step, before, timeout_s)
        if code:
            text = f"step {number} of {len(steps)} of its setup ({shlex.join(step)[:200]}) {said}"
            return _fail(private, kind, text, code, _last_lines(before))
        _say(f"iriscw: setup, step {number} of {len(steps)} took {time.monotonic() - begun:.1f} s")
    argv = order["argv"]
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, os.environ)  # noqa: S606 - no shell, and the user's own program
    except OSError as error:
        return _fail(private, "ProgramMissing", f"{argv[0]!r} cannot be executed: {error.strerror}", EXIT_NO_PROGRAM)


def _run(step: list[str], before: int, timeout_s: float) -> tuple[str, str, int]:
    """Run one step; give how it failed, in a word and in a few, and a code that is not 0."""
    try:
        process = subprocess.Popen(step, start_new_session=True)  # noqa: S603 - no shell, and the user's own program
    except OSError as error:
        return "SetupFailed", f"cannot be executed: {error.strerror}", EXIT_NO_PROGRAM
    ends = time.monotonic() + timeout_s
    ended = os.pidfd_open(process.pid)
    try:
        while not select.select([ended], [], [], max(0.0, min(LOOK_S, ends - time.monotonic())))[0]:
            printed = _written() - before
            if time.monotonic() >= ends or printed > MAX_OUTPUT_BYTES:
                _kill(process)
                if printed > MAX_OUTPUT_BYTES:
                    return "SetupFailed", f"printed more than {MAX_OUTPUT_BYTES} bytes", EXIT_TOO_MUCH
                return "SetupTimeout", f"took longer than {timeout_s:g} s", EXIT_TOO_MUCH
    finally:
        os.close(ended)
    code = process.wait()
    if code < 0:
        return "SetupFailed", f"was killed by signal {-code}", 128 - code
    return "SetupFailed", f"ended with exit code {code}", code


def _kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)  # what escaped it ends with the task
    process.wait()


def _written() -> int:
    """Return the length of the log; 0 if it is not a file."""
    return os.fstat(1).st_size


def _last_lines(before: int) -> list[str]:
    """Return the last lines that were printed; none if the log cannot be read."""
    try:
        with Path("/proc/self/fd/1").open("rb") as log:
            log.seek(max(before, os.fstat(log.fileno()).st_size - 4 * SHOWN_BYTES))
            lines = log.read(4 * SHOWN_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line[:SHOWN_BYTES] for line in lines if line.strip()][-SHOWN_LINES:]


def _fail(private: Path, kind: str, text: str, code: int, lines: Sequence[str] = ()) -> int:
    """Say how it failed: what was printed last, and then a sentence with the last line of that."""
    _say(f"iriscw: setup: {text}")
    text = "\n".join((*lines, f"{text}: {lines[-1]}" if lines else text))
    (private / FAILED_FILE).write_text(json.dumps({"kind": kind, "text": text}))
    return code


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
