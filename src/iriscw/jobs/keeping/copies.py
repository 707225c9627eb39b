"""The checkpoints that are made of an attempt while it runs, and kept: what is known of them. Pure.

A job with ``checkpoint_every`` has each of its running attempts *copied* every so often: the attempt is held while its
memory and its folder are written, and runs on. The newest few are kept. An attempt that is to be tried again may *go
back* to one of them instead of beginning from nothing: the same attempt lives once more, from where the copy was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from iriscw.jobs.keeping.messages import CopiesView
from iriscw.jobs.keeping.records import (
    CheckpointPassedOver,
    CopiesKept,
    CopyBegan,
    CopyFailed,
    CopyKept,
    CopyMade,
    WentBack,
)
from iriscw.jobs.suspension.effects import DropCheckpoint

_COPY = "copy-"

MAX_TOLD = 8
"""Of the times an attempt went back, the newest that are told: how often it did all told is a count."""


@attrs.frozen
class Home:
    """What its worker says of an attempt that runs, and whoever brings a copy of it back has to know."""

    folder: str
    ports: tuple[tuple[str, int], ...] = ()
    host: str = ""
    process_started_wall_ns: int = 0


@attrs.frozen
class Copies:
    """The copies of one attempt."""

    number: int = 0
    """How many were begun."""
    under_way: bool = False
    began_wall_ns: int = 0
    """When the latest was begun."""
    paused_ns: int = 0
    """How long the attempt had been suspended altogether when the latest was begun."""
    home: Home = attrs.field(factory=lambda: Home(""))
    """As of the latest."""
    failure: str = ""
    """Why the latest was not made; empty if it was, or is under way."""
    kept: tuple[CopyKept, ...] = ()
    """Those that are there, the oldest first."""
    returns: tuple[WentBack, ...] = ()
    """When it went back, the latest last: at most ``MAX_TOLD``."""
    times: int = 0
    """How often it went back."""

    @property
    def latest(self) -> CopyKept | None:
        """The newest checkpoint."""
        return self.kept[-1] if self.kept else None


def copies_view(copies: Copies) -> CopiesView:
    """Return what is told of them."""
    last = copies.returns[-1] if copies.returns else None
    return CopiesView(
        kept=tuple((each.checkpoint, each.node, each.taken_wall_ns) for each in reversed(copies.kept)),
        began_wall_ns=copies.began_wall_ns,
        under_way=copies.under_way,
        failure="" if copies.under_way else copies.failure,
        times=copies.times,
        back_to="" if last is None else last.checkpoint,
        back_wall_ns=0 if last is None else last.wall_ns,
    )


def copy_key(uid: str, number: int) -> str:
    """Name a copy, for ever: by its attempt, and how many were begun before."""
    return f"{_COPY}{uid}-{number}"


def dropped(uid: str, kept: CopyKept) -> DropCheckpoint:
    """Say what is to be removed of a checkpoint that is kept no more."""
    return DropCheckpoint(copy_key(uid, kept.number), kept.checkpoint, kept.node)


def left_of(uid: str, copies: Copies, gone: Sequence[int] = ()) -> Iterator[DropCheckpoint]:
    """Yield what is to be removed of the copies of an attempt that is over, but for those numbers."""
    for each in copies.kept:
        if each.number not in gone:
            yield dropped(uid, each)
    if copies.under_way:
        yield DropCheckpoint(copy_key(uid, copies.number))


def outdated(copies: Copies, keep: int) -> tuple[CopyKept, ...]:
    """Return those that are kept no more once one more is made."""
    return copies.kept[: max(0, len(copies.kept) + 1 - keep)]


def after(copies: Copies | None, record: Any, keep: int) -> Copies:
    """Return what is known of them once a record was applied. ``keep``: how many are kept."""
    changed: Copies = _APPLY[type(record)](Copies() if copies is None else copies, record, keep)
    return changed


def _began(copies: Copies, record: CopyBegan, keep: int) -> Copies:
    home = Home(record.folder, record.ports, record.host, record.process_started_wall_ns)
    return attrs.evolve(
        copies,
        number=copies.number + 1,
        under_way=True,
        began_wall_ns=record.wall_ns,
        paused_ns=record.paused_ns,
        home=home,
    )


def _made(copies: Copies, record: CopyMade, keep: int) -> Copies:
    home = copies.home
    kept = CopyKept(
        number=copies.number,
        checkpoint=record.checkpoint,
        node=record.node,
        taken_wall_ns=copies.began_wall_ns,
        folder=home.folder,
        ports=home.ports,
        host=home.host,
        process_started_wall_ns=home.process_started_wall_ns,
        paused_ns=copies.paused_ns,
    )
    stay = copies.kept[len(outdated(copies, keep)) :]
    return attrs.evolve(copies, under_way=False, failure="", kept=(*stay, kept))


def _failed(copies: Copies, record: CopyFailed, keep: int) -> Copies:
    return attrs.evolve(copies, under_way=False, failure=record.reason)


def _passed_over(copies: Copies, record: CheckpointPassedOver, keep: int) -> Copies:
    return attrs.evolve(copies, kept=tuple(each for each in copies.kept if each.number != record.number))


def _went_back(copies: Copies, record: WentBack, keep: int) -> Copies:
    return attrs.evolve(copies, returns=(*copies.returns, record)[-MAX_TOLD:], times=copies.times + 1)


_APPLY: Mapping[type, Any] = {
    CopyBegan: _began,
    CopyMade: _made,
    CopyFailed: _failed,
    CheckpointPassedOver: _passed_over,
    WentBack: _went_back,
}

CHANGES = tuple(_APPLY)
"""The records that change what is known of an attempt's copies."""


def keep_copies(index: int, copies: Copies) -> CopiesKept:
    """Return what a snapshot holds of them."""
    home = copies.home
    return CopiesKept(
        index=index,
        number=copies.number,
        under_way=copies.under_way,
        began_wall_ns=copies.began_wall_ns,
        paused_ns=copies.paused_ns,
        folder=home.folder,
        ports=home.ports,
        host=home.host,
        process_started_wall_ns=home.process_started_wall_ns,
        failure=copies.failure,
        kept=copies.kept,
        returns=copies.returns,
        times=copies.times,
    )


def copies_kept(record: CopiesKept) -> Copies:
    """Return what :func:`keep_copies` was given."""
    return Copies(
        number=record.number,
        under_way=record.under_way,
        began_wall_ns=record.began_wall_ns,
        paused_ns=record.paused_ns,
        home=Home(record.folder, record.ports, record.host, record.process_started_wall_ns),
        failure=record.failure,
        kept=record.kept,
        returns=record.returns,
        times=record.times,
    )
