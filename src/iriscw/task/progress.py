"""How far a task is, in its own words: ``iriscw.progress(done, total, text)``.

The task writes it to a file beside its result, at most twice a second, and always the latest. Its worker sees the file
change and passes it on; nothing waits for anybody, and nothing of it is kept on a disk of the controller's.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import threading
import time
from numbers import Integral, Real
from pathlib import Path
from typing import Final

import attrs

from iriscw._errors import InvalidArgument
from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.rpc.limits import MAX_PROGRESS_CHARS, MAX_PROGRESS_MILLI
from iriscw.task.context import NotInTask, context
from iriscw.task.environment import PRIVATE_FOLDER

log = logging.getLogger("iriscw.task")

PROGRESS_FILE: Final = "progress"

INTERVAL_S: Final = 0.5
"""Between two writes: people read no faster."""

MAX_NUMBER: Final = MAX_PROGRESS_MILLI // 1000

MAX_FILE_BYTES: Final = 4096

MAX_REPORTERS: Final = 256
"""Tasks of one process that report: as many as a worker runs, where these are its threads."""


@attrs.frozen
class TaskProgress:
    """How far a task is, in thousandths of what it counts. ``total_milli`` is 0 where nobody knows it."""

    done_milli: int = 0
    total_milli: int = 0
    text: str = ""

    @classmethod
    def of(cls, done: float, total: float, text: str) -> TaskProgress:
        """Check what a task says.

        Raises:
            InvalidArgument: a number is none, is negative or larger than ``MAX_NUMBER``; the text is none.
        """
        if not isinstance(text, str):
            raise InvalidArgument(f"text: {type(text).__name__} is not a string")
        cut = text if len(text) <= MAX_PROGRESS_CHARS else f"{text[: MAX_PROGRESS_CHARS - 1]}\N{HORIZONTAL ELLIPSIS}"
        text = cut.encode(errors="replace").decode()
        return cls(_milli("done", done), _milli("total", total), text)

    def check(self) -> TaskProgress:
        """Return it, if a task can have said so.

        Raises:
            InvalidArgument: none can.
        """
        for number in (self.done_milli, self.total_milli):
            if type(number) is not int or not 0 <= number <= MAX_PROGRESS_MILLI:
                raise InvalidArgument(f"progress: {number!r:.64} is not a number of thousandths")
        if type(self.text) is not str or not _is_unicode(self.text) or len(self.text) > MAX_PROGRESS_CHARS:
            raise InvalidArgument(f"progress: the text is longer than {MAX_PROGRESS_CHARS} characters, or is none")
        return self


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _milli(name: str, value: object) -> int:
    # steps and losses are often NumPy's numbers, and eight bits of these do not hold their thousandths
    number = -1 if isinstance(value, bool) else int(value) if isinstance(value, Integral) else _as_float(value)
    if not 0 <= number <= MAX_NUMBER:
        raise InvalidArgument(f"{name}: {value!r:.64} is not a number from 0 to {MAX_NUMBER}")
    return round(number * 1000)


def _as_float(value: object) -> float:
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:  # a fraction may be larger than any float
        return math.inf


def progress(done: float, total: float | None = None, text: str = "") -> None:
    """Say how far this task is; ``iriscw jobs``, ``iriscw job``, ``Job.tasks()`` and ``Job.watch()`` show it.

    Call it as often as you like: it is told once a second at most, the latest wins, and nobody is waited for. A task
    that is tried again begins with none. Outside of a task it does nothing.

    Args:
        done: how much is done, in any unit.
        total: of how much; None: nobody knows.
        text: what else is worth a line; 200 characters, the rest is cut.

    Raises:
        InvalidArgument: a number is negative, not finite or above 2**53, or the text is none.
    """
    said = TaskProgress.of(done, 0.0 if total is None else total, text)
    try:
        folder = context().workdir / PRIVATE_FOLDER
    except NotInTask:
        return
    with _lock:
        reporter = _reporters.pop(folder, None) or _Reporter(folder / PROGRESS_FILE)
        _reporters[folder] = reporter  # the latest is the last
        while len(_reporters) > MAX_REPORTERS:
            del _reporters[next(iter(_reporters))]
    reporter.say(said)


def flush() -> None:
    """Write what waits for its turn: the process ends."""
    with _lock:
        reporters = list(_reporters.values())
    for each in reporters:
        each.write()


class _Reporter:
    """Writes one task's file, at once or when the interval is over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._latest: TaskProgress | None = None
        self._written_s = -math.inf
        self._timer: threading.Timer | None = None
        self._warned = False

    def say(self, said: TaskProgress) -> None:
        with self._lock:
            self._latest = said
            wait_s = self._written_s + INTERVAL_S - time.monotonic()
            if wait_s > 0:
                if self._timer is None:
                    self._timer = threading.Timer(wait_s, self.write)
                    self._timer.daemon = True
                    self._timer.start()
                return
        self.write()

    def write(self) -> None:
        with self._lock:
            self._timer = None
            said, self._latest = self._latest, None
            if said is None:
                return
            self._written_s = time.monotonic()
            try:
                write_atomic(self._path, json.dumps(attrs.astuple(said)).encode(), durable=False)
            except OSError as error:  # a full disk must not end a task that would have gone on
                if not self._warned:
                    log.warning("iriscw: the task's progress cannot be told: %s", error)
                self._warned = True


_lock = threading.Lock()
_reporters: dict[Path, _Reporter] = {}


def _forked() -> None:
    """Begin anew in a child: another thread may have held the locks, and writes no more."""
    global _lock  # noqa: PLW0603 - as it is for this process
    _lock = threading.Lock()
    _reporters.clear()


os.register_at_fork(after_in_child=_forked)
atexit.register(flush)


def read_progress(attempt: Path, work: Path) -> TaskProgress | None:
    """Return what an attempt has said last; None: nothing that can be read. Blocks.

    Args:
        attempt: its folder, below which no link is followed.
        work: its working folder.
    """
    try:
        said = decode_json(read_bounded(work / PRIVATE_FOLDER / PROGRESS_FILE, MAX_FILE_BYTES, below=attempt))
        return TaskProgress(*said).check() if isinstance(said, list) and len(said) == 3 else None
    except (OSError, ValueError, InvalidArgument):  # a program may put there what it likes
        return None
