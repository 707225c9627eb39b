"""What every operation of a CRIU is bound by, whoever calls it: its folders, its deadline, and what ends it early."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio

from iriscw._errors import OperationError
from iriscw.freeze.criu_rpc import NotUnderstood
from iriscw.freeze.model import CriuFailed, CriuOverdue, DumpRequest, RestoreRequest, UnsafeRequest

T = TypeVar("T")

MAX_WORD = 200
"""Characters of a line of a log that are shown."""


def check_bounds(request: DumpRequest | RestoreRequest) -> Path:
    """Check folders and deadline of a request, and give the folder to work in.

    Raises:
        UnsafeRequest: a folder is not there, or nothing could be done in that time.
    """
    for folder in (request.images, request.work):
        if not Path(folder).is_absolute() or not Path(folder).is_dir():
            raise UnsafeRequest(f"{folder or 'nothing'} is not an absolute folder that is there")
    if request.within_ns <= 0:
        raise UnsafeRequest("a deadline that is not positive")
    return Path(request.work)


async def within(within_ns: int, doing: Callable[[], Awaitable[T]]) -> T:
    """Do something until a deadline.

    Raises:
        TimeoutError: it is not done by then.
    """
    with anyio.fail_after(within_ns / 1e9):
        return await doing()


def broken_off(error: BaseException, who: str, work: Path, within_ns: int) -> BaseException:
    """Return the error to raise for one that broke an operation off.

    Args:
        error: That one.
        who: Did not do it, for people.
        work: The folder with its logs, which is removed when all is over.
        within_ns: What it had.
    """
    if isinstance(error, TimeoutError):
        return CriuOverdue(f"{who} did not end within {within_ns / 1e9:g} s and was killed{_last_word(work)}")
    if isinstance(error, NotUnderstood):
        return CriuFailed(f"{who} said what it never says: {error}")
    if isinstance(error, OSError) and not isinstance(error, OperationError):
        return CriuFailed(f"{who} could not be spoken to: {error}")
    return error


def _last_word(work: Path) -> str:
    """Return the last line of the newest log, for people; empty if there is none."""
    try:
        logs = sorted(work.glob("*.log"), key=lambda log: log.stat().st_mtime_ns)
        lines = logs[-1].read_text(encoding="utf-8", errors="replace").splitlines() if logs else []
    except OSError:
        return ""
    return f"; the last that it said: {lines[-1].strip()[:MAX_WORD]}" if lines else ""
