"""What is known of operations that run and of those that ended last, for whoever watches.

A view is a level: it says all there is, so a watcher that is slow misses no step and nothing piles up for it. Kept in
the agent's loop; nothing here is durable.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

import anyio
import attrs

from iriscw.agent.errors import OperationUnknown
from iriscw.agent.operations import Asked
from iriscw.freeze.messages import OperationEnded
from iriscw.freeze.model import Progress

MAX_REMEMBERED = 256
"""Operations that are over and can still be asked for."""


@attrs.frozen
class OperationStep:
    """A phase that was entered, so long after the operation began."""

    phase: str
    at_ns: int


@attrs.frozen
class Made:
    """The artifact of an operation that ended well."""

    artifact: str
    tier: str
    size_bytes: int
    pid: int
    """The number of its first process."""
    processes: int


@attrs.frozen
class RunningOperation:
    """An operation as it is now."""

    asked: Asked
    artifact: str
    tier: str
    """Where it is written to; empty for a thaw whose artifact was not found so far."""
    owed: bool
    """An earlier agent began it."""
    steps: tuple[OperationStep, ...] = ()
    done_bytes: int = 0
    total_bytes: int = 0
    end: OperationEnded | None = None
    made: Made | None = None
    aside: str = ""
    """Why its actor was put aside."""
    over: bool = False
    """Nothing of it is left to do."""
    lasted_ns: int = 0
    """From its beginning to its last change."""

    @property
    def phase(self) -> str:
        """The step that is taken now; empty before the first."""
        return self.steps[-1].phase if self.steps else ""

    @property
    def pid(self) -> int:
        """The number here of the first process of what was thawed, or the one it was frozen with; 0: not known."""
        if self.end is not None and self.end.root:
            return self.end.root
        return self.made.pid if self.made is not None else 0


Seen = Callable[[RunningOperation, RunningOperation], None]
"""Takes a view before and after a change."""


@attrs.define(eq=False)
class _Row:
    view: RunningOperation
    began_ns: int
    changed: anyio.Event = attrs.field(factory=anyio.Event)


class Board:
    """The views, by operation.

    Args:
        seen: told of each change; must be quick and raise nothing.
        clock: gives monotonic nanoseconds.
    """

    def __init__(self, seen: Seen, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._seen = seen
        self._clock = clock
        self._rows: dict[str, _Row] = {}
        self._over: dict[str, None] = {}
        self._empty = anyio.Event()

    def begin(self, asked: Asked, artifact: str, tier: str, *, owed: bool = False) -> None:
        """Show an operation."""
        view = RunningOperation(asked, artifact, tier, owed)
        self._rows[asked.operation] = _Row(view, self._clock())
        self._seen(view, view)

    def refused(self, operation: str) -> None:
        """Show it no more: it was never begun."""
        if operation in self._rows and not self._rows[operation].view.over:
            self._change(operation, over=True)
        self._rows.pop(operation, None)
        self._look()

    def entered(self, operation: str, phase: str) -> None:
        """It takes a step."""
        row = self._rows.get(operation)
        if row is not None:
            step = OperationStep(phase, self._clock() - row.began_ns)
            self._change(operation, steps=(*row.view.steps, step), done_bytes=0, total_bytes=0)

    def progressed(self, operation: str, progress: Progress) -> None:
        """It is so far within a step."""
        self._change(operation, done_bytes=progress.done_bytes, total_bytes=progress.total_bytes)

    def ended(self, end: OperationEnded) -> None:
        """It owes nothing any more."""
        self._change(end.operation, end=end)

    def found(self, operation: str, made: Made | None) -> None:
        """This is what it made, or what it was made of."""
        self._change(operation, made=made)

    def put_aside(self, operation: str, text: str) -> None:
        """Its actor is put aside."""
        self._change(operation, aside=text)
        self._look()

    def closed(self, operation: str) -> None:
        """Nothing of it is left to do."""
        if operation in self._rows:
            self._change(operation, over=True)
            self._over[operation] = None
        while len(self._over) > MAX_REMEMBERED:
            oldest = next(iter(self._over))
            del self._over[oldest]
            self._rows.pop(oldest, None)
        self._look()

    def _change(self, operation: str, **changes: object) -> None:
        row = self._rows.get(operation)
        if row is None:
            return
        before = row.view
        row.view = attrs.evolve(before, **{"lasted_ns": self._clock() - row.began_ns, **changes})  # type: ignore[arg-type]
        rung, row.changed = row.changed, anyio.Event()
        self._seen(before, row.view)
        rung.set()

    def _look(self) -> None:
        if not self._under_way():
            self._empty.set()

    def _under_way(self) -> bool:
        return any(not view.aside for view in self.running())

    def running(self) -> list[RunningOperation]:
        """Return the operations that are not over, the oldest first."""
        return [row.view for row in self._rows.values() if not row.view.over]

    def shows(self, operation: str) -> bool:
        """Whether an operation is known here, over or not."""
        return operation in self._rows

    def view(self, operation: str) -> RunningOperation:
        """Return one.

        Raises:
            OperationUnknown: it never was, or was forgotten.
        """
        row = self._rows.get(operation)
        if row is None:
            raise OperationUnknown(f"the agent knows no operation {operation[:80]!r}")
        return row.view

    async def follow(self, operation: str) -> AsyncGenerator[RunningOperation, None]:
        """Yield what is known now, and again whenever it has changed, until it is over or put aside.

        Raises:
            OperationUnknown: as :meth:`view`.
        """
        while True:
            view = self.view(operation)
            changed = self._rows[operation].changed  # rings for this view, also while it is on its way
            yield view
            if view.over or view.aside:
                return
            await changed.wait()

    async def until_idle(self) -> None:
        """Wait until no operation runs but such as are put aside."""
        while self._under_way():
            if self._empty.is_set():  # else somebody waits for it already
                self._empty = anyio.Event()
            await self._empty.wait()
