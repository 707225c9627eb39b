"""What a running tree looks like: a row for each actor, in pages, for people who want to know what their program does.

Theory of operation. The walk is depth first, children in the order of their names, so that a page can go on after the
path where the last one ended although actors come and go between the two: nothing that lives all the while is left out
or comes twice. A page is bounded in rows and in actors looked at, because it is made between two decisions: a tree of
100,000 actors costs many short pages, never one long pause. Looking changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from iriscw._errors import InvalidArgument, NoSuchActor
from iriscw.runtime.cell import ACTIVE, STATUS_NAMES, Cell
from iriscw.runtime.vocabulary import ROOT, ActorPath

if TYPE_CHECKING:
    from iriscw.runtime.tree import Tree

MAX_ROWS: Final = 500
"""Of one page: some milliseconds of work, and at most 200 KB on the wire."""

MAX_LOOKED_AT: Final = 5_000
"""Actors that one page looks at, where few of them are to be shown."""

_TEXT: Final = 200
"""Characters of an error that are kept."""


@attrs.frozen
class ActorView:
    """One actor, as it is now."""

    path: ActorPath
    name: str
    """The name of its behavior; may be empty."""
    state: str
    """``active``; ``waiting`` while it starts or until it is restarted; ``draining``, ``stopping``; ``quarantined``."""
    restarts: int
    """How often it was restarted since its supervisor started it."""
    up_ns: int
    """Since this incarnation began to start."""
    queued: int
    """Messages that wait in its mailbox, stashed ones and those that wait for the journal included."""
    capacity: int
    """How many may."""
    operations: int
    """Effects and sessions of it that run."""
    children: int
    failure: str
    """Its last failure, as class and text; empty if there was none."""
    failed_ns: int
    """How long ago that was; 0 if there was none."""

    @property
    def troubled(self) -> bool:
        """Whether it is worth a look: not active, failed before, or with a mailbox that is half full."""
        return self.state != STATUS_NAMES[ACTIVE] or bool(self.failure) or 2 * self.queued >= self.capacity


@attrs.frozen
class ActorPage:
    """Some actors of a tree, depth first, and where the next page begins."""

    system: str
    actors: tuple[ActorView, ...]
    next: str
    """What to give as ``after`` to go on; empty if this was the last page."""


def failure_text(error: BaseException) -> str:
    """Write an error in one line of bounded length; works whatever its ``__str__`` does."""
    try:
        text = " ".join(str(error).encode("utf-8", "backslashreplace").decode().split())  # paths need not be UTF-8
    except Exception as broken:
        text = f"its text cannot be made: {type(broken).__name__}"
    whole = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return whole if len(whole) <= _TEXT else f"{whole[: _TEXT - 1]}…"


def view(cell: Cell, now: int) -> ActorView:
    """Describe one actor at a time of the runtime's clock, in ns."""
    return ActorView(
        path=cell.path,
        name=cell.behavior.name,
        state=STATUS_NAMES[cell.status],
        restarts=cell.incarnation,
        up_ns=max(0, now - cell.started_at),
        queued=_queued(cell),
        capacity=cell.spec.capacity,
        operations=cell.running,
        children=len(cell.children or ()),
        failure=cell.failure,
        failed_ns=max(0, now - cell.failed_at) if cell.failure else 0,
    )


def _queued(cell: Cell) -> int:
    waiting = len(cell.mailbox or ()) + len(cell.stash or ()) + len(cell.parked or ())
    return waiting - cell.reserved - cell.stashed_answers


def inspect(
    tree: Tree,
    now: int,
    *,
    under: str = ROOT,
    after: str = "",
    depth: int | None = None,
    troubled: bool = False,
    limit: int = MAX_ROWS,
) -> ActorPage:
    """Describe a tree, or a part of it.

    Args:
        tree: the tree.
        now: the runtime's clock, in ns.
        under: the actor to begin with; all below it are shown.
        after: where the page before ended: its ``next``.
        depth: levels below ``under`` that are shown; None: all.
        troubled: show only those with :attr:`ActorView.troubled`.
        limit: rows of this page; at most ``MAX_ROWS`` are given.

    Raises:
        InvalidArgument: ``limit`` is not positive, or ``depth`` negative.
        NoSuchActor: there is none at ``under``.
    """
    if limit < 1 or (depth is not None and depth < 0):
        raise InvalidArgument(f"a page has at least one row and no negative depth: limit {limit}, depth {depth}")
    top = tree.cells.get(ActorPath(under))
    if top is None:
        raise NoSuchActor(f"there is no actor at {under}")
    rows: list[ActorView] = []
    limit = min(limit, MAX_ROWS)
    for looked_at, cell in enumerate(_walk(top, _beyond(under, after), depth), 1):
        row = view(cell, now)
        if row.troubled or not troubled:
            rows.append(row)
        if len(rows) == limit or looked_at == MAX_LOOKED_AT:
            return ActorPage(tree.name, tuple(rows), cell.path)
    return ActorPage(tree.name, tuple(rows), "")


def _beyond(under: str, after: str) -> tuple[str, ...] | None:
    """Return the names below ``under`` that lead to where the last page ended; None to begin at the beginning."""
    if not after:
        return None
    prefix = under.rstrip("/")
    if after != under and not after.startswith(f"{prefix}/"):
        raise InvalidArgument(f"after: {after!r} is not below {under}")
    return tuple(filter(None, after.removeprefix(prefix).split("/")))


def _walk(cell: Cell, beyond: tuple[str, ...] | None, depth: int | None) -> Iterator[Cell]:
    """Go through a part of a tree, depth first; with ``beyond``, only what comes after the actor there."""
    if beyond is None:
        yield cell
    if depth == 0 or not cell.children:
        return
    names = sorted(cell.children)
    first = bisect_left(names, beyond[0]) if beyond else 0
    below = None if depth is None else depth - 1
    for name in names[first:]:
        rest = beyond[1:] if beyond and name == beyond[0] else None
        yield from _walk(cell.children[name], rest, below)


__all__ = ["MAX_LOOKED_AT", "MAX_ROWS", "ActorPage", "ActorView", "failure_text", "inspect", "view"]
