"""Running a program that may hang in NVIDIA's driver: its answers, its deadline, its kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from iriscw.freeze.model import CudaMissing, CudaOverdue, RightsMissing

CALLER: Final = Path(__file__).with_name("caller.py")
MAX_ANSWER_BYTES: Final = 8 << 20
"""Of all answers: those of sixteen GPUs with four thousand processes each are half of that."""

KILLED_S: Final = 5.0
"""For a program that was killed, to be gone. One that hangs in the driver is not; it is left to the kernel."""


PASSED_ON: Final = ("LD_LIBRARY_PATH",)
"""Variables that a program gets of ours: some machines have the driver where only this one says (GKE, NixOS)."""


def environment() -> dict[str, str]:
    """Return what a program that calls the driver finds in its environment.

    That is nothing that NVIDIA's libraries read.
    """
    passed = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **passed}


@attrs.frozen
class Said:
    """How a program ended: what it said on both outputs, and its exit code."""

    code: int
    text: str


async def run(argv: Sequence[str], order: str, within_ns: int, doing: str) -> Said:
    """Run a program to its end, in a session of its own, and give what it said.

    Args:
        argv: What to run.
        order: What it reads on standard input.
        within_ns: After that it is killed.
        doing: For people, such as ``lock process 12``.

    Raises:
        CudaOverdue: it did not end in time, or was ended by a signal. What it had done by then is unknown.
        CudaMissing: it is not there.
        RightsMissing: it may not be executed.
    """
    try:
        process = subprocess.Popen(  # noqa: S603, ASYNC220  # a list of arguments; it takes two milliseconds
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(),
        )
    except FileNotFoundError as error:
        raise CudaMissing(f"there is no {argv[0]}") from error
    except PermissionError as error:
        raise RightsMissing(f"{argv[0]} may not be executed") from error
    assert process.stdin is not None
    assert process.stdout is not None
    descriptor = os.pidfd_open(process.pid)
    ended = False
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(order.encode())
        with anyio.move_on_after(within_ns / 1e9):
            text = await _read(process.stdout.fileno())
            await anyio.wait_readable(descriptor)
            ended = True
    finally:
        if not ended:
            process.kill()
            with anyio.move_on_after(KILLED_S, shield=True):
                await anyio.wait_readable(descriptor)
                process.wait()
        os.close(descriptor)
        process.stdout.close()
    if not ended:
        seconds = within_ns / 1e9
        raise CudaOverdue(f"the driver did not {doing} within {seconds:g} s; the program that called it was killed")
    code = process.wait()
    if code < 0:
        name = signal.Signals(-code).name
        raise CudaOverdue(f"the program that should {doing} was ended by {name}: whether it did is not known")
    return Said(code, text)


async def _read(descriptor: int) -> str:
    os.set_blocking(descriptor, False)
    pieces: list[bytes] = []
    size = 0
    while True:
        await anyio.wait_readable(descriptor)
        piece = os.read(descriptor, 1 << 16)
        size += len(piece)
        if not piece or size > MAX_ANSWER_BYTES:
            return b"".join(pieces).decode(errors="replace")
        pieces.append(piece)


async def ask(order: dict[str, Any], within_ns: int, doing: str) -> list[dict[str, Any]]:
    """Have our own program call a library; give its answers, in order.

    Raises:
        CudaOverdue: as :func:`run`, and if it ended without an answer to each call.
    """
    argv = [sys.executable, "-I", "-S", str(CALLER)]
    said = await run(argv, json.dumps(order) + "\n", within_ns, doing)
    answers: list[dict[str, Any]] = []
    for line in said.text.splitlines():
        try:
            answers.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            continue  # a library that writes to standard output: its words are no answer
    if said.code or not answers:
        raise CudaOverdue(f"the program that should {doing} broke off: {said.text.strip()[-300:] or said.code}")
    return answers
