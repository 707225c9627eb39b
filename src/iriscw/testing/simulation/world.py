"""The simulated world: one virtual clock, one dispatcher, the events of the world, and the trace of it all."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any

from iriscw._errors import InternalError
from iriscw.runtime.cell import Cell
from iriscw.runtime.dispatcher import Dispatcher
from iriscw.runtime.envelope import Envelope, EnvelopeKind, Slot
from iriscw.runtime.vocabulary import SECOND, seconds

if TYPE_CHECKING:
    from iriscw.testing.simulation.system import SimSystem

EPOCH = 1_767_225_600 * SECOND
"""The wall clock at the start: 2026-01-01T00:00:00Z."""

TRACE_LINES = 200
"""Trace lines that are kept for a failure report."""

LINES_HASHED_AT_ONCE = 256
"""Trace lines that go into the hash together: a call for each would cost more than to hash it."""

STEPS_WITHOUT_TIME = 5_000_000
"""Steps at one instant after which a simulation is taken for a loop without an end."""


_KINDS: dict[int, str] = {kind: name for name, kind in vars(EnvelopeKind).items() if type(kind) is int}
"""The names of envelopes' kinds."""


class Livelock(InternalError):
    """The simulated systems never became idle: some actors keep each other busy for ever."""


class VirtualClock:
    """A clock that is set, not read."""

    def __init__(self, start: int = 0) -> None:
        self.ns = start

    def now(self) -> int:
        """The monotonic clock, ns since the simulation began."""
        return self.ns

    def wall(self) -> int:
        """The wall clock, ns since 1970."""
        return EPOCH + self.ns


class Simulation:
    """A world of simulated systems on one virtual clock."""

    def __init__(self, seed: int | str = 0) -> None:
        self.seed = seed
        self.clock = VirtualClock()
        self.rng = Random(f"{seed}:world")  # noqa: S311 - a simulation
        self.dispatcher = Dispatcher(
            self.clock,
            rng=Random(f"{seed}:schedule"),  # noqa: S311 - a simulation
            throughput=1,
            virtual=True,
        )
        self.systems: list[SimSystem] = []
        self.checkers: list[Callable[[], None]] = []
        """Called after every step; they raise when something that must always hold does not."""
        self.steps = 0
        self.seen: Callable[[Cell, Any], None] | None = None
        """Called for each entry that a cell takes of its mailbox, with what is in it."""
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed: list[str] = []
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0

    def add(self, system: SimSystem) -> None:
        """Take a system in; :class:`SimSystem` calls it."""
        self.systems.append(system)

    @property
    def now(self) -> int:
        """The virtual clock, ns since the simulation began."""
        return self.clock.ns

    @property
    def now_s(self) -> float:
        """The virtual clock, seconds since the simulation began."""
        return self.clock.ns / SECOND

    @property
    def trace_hash(self) -> str:
        """A hash of everything that happened so far; equal seeds give equal hashes."""
        self._hash_lines()
        return self._hash.hexdigest()

    def _hash_lines(self) -> None:
        self._hash.update("".join(self._unhashed).encode())
        self._unhashed.clear()

    def note(self, *what: Any) -> None:
        """Write one line of the trace. Text, integers and keys of those only: no floats, reprs or exception texts."""
        self.write_line(" ".join(map(str, what)))

    def write_line(self, text: str) -> None:
        """Write one line of the trace that is put together already; see :meth:`note`."""
        line = f"{self.clock.ns} {text}"
        self.trace.append(line)
        unhashed = self._unhashed
        unhashed.append(line)
        if len(unhashed) >= LINES_HASHED_AT_ONCE:
            self._hash_lines()

    def trace_delivery(self, cell: Cell, item: Any) -> None:
        """Note that a cell takes an entry of its mailbox, and show it to :attr:`seen`."""
        kind = ""
        if type(item) is Envelope:
            kind = _KINDS[item.kind]
            item = item.message
        elif type(item) is Slot:
            kind = "QUESTION"
            item = item.message
        tree = cell.tree.name
        # A path is a str of its own kind: made plain first, it is formatted in half the time.
        line = f"{self.clock.ns} take {tree} {cell.path!s} {cell.incarnation} {kind} {type(item).__name__}"
        # The most common line by far; the rest is write_line's.
        self.trace.append(line)
        unhashed = self._unhashed
        unhashed.append(line)
        if len(unhashed) >= LINES_HASHED_AT_ONCE:
            self._hash_lines()
        if self.seen is not None:
            self.seen(cell, item)

    # World events

    def call_after(self, delay_ns: int, function: Callable[..., None], *args: Any) -> None:
        """Have the world do something ``delay_ns`` from now; events of one instant keep their order."""
        self._serial += 1
        heappush(self._events, (self.clock.ns + delay_ns, self._serial, function, args))

    @property
    def scheduled(self) -> int:
        """How many things the world has done so far, or is going to do."""
        return self._serial

    # Running

    def step(self) -> bool:
        """Do one thing at this instant: a piece of control work, a message or a world event; False if none is left."""
        dispatcher = self.dispatcher
        for tree in dispatcher.trees:
            if tree.journal_changed:
                self._release()
                break
        else:
            if dispatcher.control:
                dispatcher.control_step()
            elif dispatcher.ready:
                dispatcher.step(1)
            else:
                events = self._events
                if not events or events[0][0] > self.clock.ns:
                    return False
                _, _, function, args = heappop(events)
                function(*args)
        self.steps += 1
        for system in self.systems:
            system.sync()
        for check in self.checkers:
            check()
        return True

    def _release(self) -> None:
        for tree in [each for each in self.dispatcher.trees if each.journal_changed]:
            tree.release()

    def settle_control(self) -> None:
        """Do all control work that is queued, so that the tree is whole."""
        while self.dispatcher.control_step():
            pass

    def run_until_idle(self) -> None:
        """Run until nothing is left to do at this instant.

        Raises:
            Livelock: it never ends.
        """
        for _ in range(STEPS_WITHOUT_TIME):
            if not self.step():
                return
        raise Livelock(f"still busy after {STEPS_WITHOUT_TIME} steps at {self.now_s:g} s")

    def _next_instant(self) -> int | None:
        due = self.dispatcher.next_due
        if not self._events:
            return due
        event = self._events[0][0]
        return event if due is None or event < due else due

    def _jump(self, to: int) -> None:
        clock = self.clock
        if to > clock.ns:
            clock.ns = to
        self.dispatcher.look_at_clock()

    def advance(self, duration_s: float) -> None:
        """Let ``duration_s`` seconds pass: every timer and event due by then has been dealt with."""
        self._advance_to(self.clock.ns + seconds(duration_s), None)

    def run_until(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Run until ``condition`` holds, at most ``within_s`` simulated seconds; tells whether it holds."""
        return self._advance_to(self.clock.ns + seconds(within_s), condition)

    def _advance_to(self, target: int, condition: Callable[[], bool] | None) -> bool:
        still = 0
        while True:
            if condition is not None and condition():
                return True
            if self.step():
                still += 1
                if still > STEPS_WITHOUT_TIME:
                    raise Livelock(f"still busy after {still} steps at {self.now_s:g} s")
                continue
            still = 0
            instant = self._next_instant()
            if instant is None or instant > target:
                self._jump(target)
                return condition() if condition is not None else True
            self._jump(instant)

    def stall(self, duration_s: float) -> None:
        """Stand still for ``duration_s`` seconds, as a stopped process does: timers come due, nothing is decided."""
        lasted = seconds(duration_s)
        self.clock.ns += lasted
        self.dispatcher.stall(lasted)
        self.dispatcher.look_at_clock()

    def report(self) -> str:
        """Return the seed, the hash and the last lines of the trace, for a failure message."""
        lines = "\n".join(self.trace)
        return f"seed {self.seed!r}, {self.steps} steps, {self.now_s:g} s, trace {self.trace_hash}\n{lines}"


__all__ = ["EPOCH", "STEPS_WITHOUT_TIME", "Livelock", "Simulation", "VirtualClock"]
