"""Snapshots of a hosted actor: what its class keeps of it, so that a later process begins where this one was.

A class that has ``snapshot(self)`` and ``restore(self, state)`` takes part. ``snapshot`` is called in its turn, like a
method that somebody calls, when calls have ended since the last one and ``snapshot_every`` seconds are over; what it
returns is pickled in that turn, and stored while calls go on. ``restore`` is called once, after the object was made and
before anybody can call it. With the state go the answers to calls with keys, so that what a state has in it is not
done again.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterable
from typing import Any, Final, Protocol

from iriscw.hosted.errors import SnapshotTooLarge
from iriscw.hosted.keys import KeptAnswer, KeptAnswers
from iriscw.hosted.model import MAX_STATE_BYTES
from iriscw.task.framing import frame, unframe
from iriscw.task.passing import passed_whole

EVERY_S: Final = 30.0
"""Between two snapshots, if nobody says it."""

ANSWER_BYTES: Final = 8 << 20
"""Of the latest answers that go with a snapshot; of the others it is known that their calls ran."""

_MAGIC: Final = b"IRISSNAP"


class StateKeeping(Protocol):
    """Keeps the snapshots of one job."""

    async def load(self) -> bytes | None:
        """Return the latest one; None: there is none.

        Raises:
            OperationError: it cannot be had, or is damaged.
        """

    async def save(self, number: int, data: bytes) -> None:
        """Keep one, in place of those before it.

        Args:
            number: which one of this attempt it is, from 1 on.
            data: its bytes.

        Raises:
            SnapshotTooLarge: it is larger than any may be.
            OperationError: it cannot be kept now.
        """


def keeps_state(kind: object) -> bool:
    """Whether a class takes part."""
    return isinstance(kind, type) and all(inspect.isroutine(getattr(kind, name, None)) for name in _HOOKS)


_HOOKS: Final = ("snapshot", "restore")


def snapshot_bytes(state: object, answers: Iterable[tuple[str, KeptAnswer]]) -> bytes:
    """Return what is stored of a state, and of answers to calls with keys, from the oldest on.

    Raises:
        NotPicklable: the state cannot be pickled.
        SnapshotTooLarge: it is larger than any may be.
    """
    kept = [
        (key, each.method, each.failed, each.parts and tuple(bytes(part) for part in each.parts))
        for key, each in answers
    ]
    data = frame(_MAGIC, {"answers": len(kept)}, passed_whole((state, kept)))
    if len(data) > MAX_STATE_BYTES:
        raise SnapshotTooLarge(f"the snapshot has {len(data)} bytes, more than {MAX_STATE_BYTES}")
    return data


def read_snapshot(data: bytes) -> tuple[Any, KeptAnswers]:
    """Return the state, and the answers. Only of the same job: it is unpickled.

    Raises:
        FrameCorrupt, UnknownFormat: it is damaged, or of a later version; nothing was unpickled.
        PythonMismatch: another Python wrote it; nothing was unpickled.
        Exception: what the pickle raises.
    """
    found = unframe(_MAGIC, data)
    found.check_python()
    state, kept = pickle.loads(found.body)  # noqa: S301 - an earlier attempt of this very job wrote it
    answers = KeptAnswers()
    for key, method, failed, parts in kept:
        answers.keep(key, method, failed=failed, parts=parts)
    return state, answers
