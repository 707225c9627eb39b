"""Time travel: the real dispatcher on a virtual clock.

A :class:`Simulation` hosts one or more systems, each a crash domain of its own, and a queue of world events. It is
driven step by step; nothing runs by itself, nothing sleeps, and time passes only when everybody is idle or when a test
says so. So "no message came" is exact, and 30 minutes of booting cost microseconds.

Everything is drawn from the seed: the same seed gives the same trace, in any process, on any supported Python.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import attrs

from iriscw.errors import (
    ActorStopped,
    AskTimeout,
    InternalError,
    InvalidArgument,
    MailboxFull,
    NoSuchActor,
    OutcomeUnknown,
)
from iriscw.journal.memory import MemoryDisk, MemoryJournal
from iriscw.journal.port import DEFAULT_BOUND_BYTES
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.cell import WAITING, Cell
from iriscw.runtime.dispatcher import Dispatcher
from iriscw.runtime.envelope import Envelope, Kind, Slot
from iriscw.runtime.operations import Operation, Phase
from iriscw.runtime.tree import FailureReport, Tree, TreeStatistics
from iriscw.runtime.vocabulary import MILLISECOND, SECOND, ActorPath, Arrived, StopReason, seconds

EPOCH = 1_767_225_600 * SECOND
"""The wall clock at the start: 2026-01-01T00:00:00Z."""

TRACE_LINES = 200
"""Trace lines that are kept for a failure report."""

COMMIT_RETRY = 10 * MILLISECOND
"""How long a disk that hangs or is full is left alone: trying again at once would be a loop without an end."""

STEPS_WITHOUT_TIME = 5_000_000
"""Steps at one instant after which a simulation is taken for a loop without an end."""


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


@attrs.define(eq=False)
class SimOperation:
    """An effect or session in the hands of the simulated world."""

    system: SimSystem
    operation: Operation
    deaf: bool = False
    """Whether it goes on when it is cancelled, as a thread or a request on the wire does."""
    on_cancel: Callable[[], None] | None = None
    on_fed: Callable[[], None] | None = None
    on_room: Callable[[], None] | None = None
    ended: bool = False

    @property
    def effect(self) -> Any:
        """What the actor asked for."""
        return self.operation.effect

    @property
    def key(self) -> Any:
        """The actor's name for it."""
        return self.operation.key

    @property
    def path(self) -> ActorPath:
        """The actor that asked."""
        return self.operation.path

    @property
    def cancelled(self) -> bool:
        """Whether the actor gave it up."""
        return self.operation.phase is Phase.CANCELLING

    def complete(self, value: Any = None) -> None:
        """End it well. Too late an end (the system crashed, it ended before) changes nothing."""
        self._end(value, None)

    def fail(self, error: Exception) -> None:
        """End it with an error."""
        self._end(None, error)

    def _end(self, value: Any, error: Exception | None) -> None:
        if not self.ended:
            self.ended = True
            if self.system.pending.get(self.operation.id) is self:  # numbers begin anew with each boot
                del self.system.pending[self.operation.id]
            self.system.simulation.note("end", self.system.name, self.path, self.key, type(error).__name__)
            self.operation.cell.tree.ended(self.operation, value, error)

    @property
    def system_restarted(self) -> bool:
        """Whether the system that asked has crashed since."""
        return self.operation.cell.tree.crashed

    def send(self, item: Any) -> bool:
        """Give the actor an item of a session; False if there is no room."""
        if self.ended or self.system_restarted:
            return False
        return self.operation.cell.tree.arrived(self.operation, Arrived(self.key, item))

    def take_fed(self) -> list[Any]:
        """Take all items that the actor fed and that have left."""
        outbox = self.operation.outbox
        items = list(outbox or ())
        if outbox:
            self.operation.promised -= len(items)
            outbox.clear()
        return items


World: TypeAlias = Callable[[SimOperation], None]


def leave_pending(operation: SimOperation) -> None:
    """Do nothing: the test ends the operation through :attr:`SimSystem.pending`."""


class SimSystem:
    """One simulated process: a tree of actors with its own disk, clock offset and seed.

    Args:
        root: the behavior of ``/``. Default: one that only supervises.
        seed: of everything random, if the simulation is made here.
        simulation: the simulation to join. Default: a new one.
        name: shown in traces, and part of the seed.
        perform: called as a world event for each effect and session that starts. Default: they stay in ``pending``.
        disk: what survives a crash. Default: a new one; it is used only if an actor is durable.
        sync_ns: the latency of a commit, drawn anew for each; None commits only when the test says so.
        wall_offset_s: how far this process's wall clock is ahead.
        bound_bytes: uncommitted bytes at which the journal takes no more records.
    """

    def __init__(
        self,
        root: Behavior | None = None,
        *,
        seed: int | str = 0,
        simulation: Simulation | None = None,
        name: str = "sim",
        perform: World = leave_pending,
        disk: MemoryDisk | None = None,
        sync_ns: Callable[[Random], int] | None = lambda rng: rng.randrange(5 * MILLISECOND),
        wall_offset_s: float = 0.0,
        bound_bytes: int = DEFAULT_BOUND_BYTES,
        shutdown_budget_s: float = 10.0,
    ) -> None:
        self.simulation = simulation if simulation is not None else Simulation(seed)
        self.name = name
        self.perform = perform
        self.disk = disk if disk is not None else MemoryDisk()
        self.sync_ns = sync_ns
        self.boot = 0
        self.events: list[Any] = []
        """Everything the actors emitted, failure reports apart."""
        self.failures: list[FailureReport] = []
        self.pending: dict[int, SimOperation] = {}
        """Operations that have started and not ended, by number."""
        self._root = root if root is not None else Behavior(name="root")
        self._wall_offset = seconds(wall_offset_s)
        self._bound_bytes = bound_bytes
        self._budget = seconds(shutdown_budget_s)
        self._rng = Random(f"{self.simulation.seed}:disk:{name}")  # noqa: S311 - a simulation
        self._syncing = False
        self.simulation.add(self)
        self._begin()

    def _begin(self) -> None:
        simulation = self.simulation
        self.journal = MemoryJournal(self.disk, bound_bytes=self._bound_bytes)
        seed = f"{simulation.seed}:{self.name}:{self.boot}"
        self.tree = Tree(simulation.dispatcher, self, name=self.name, seed=seed, journal=self.journal)
        self.tree.wall_offset = self._wall_offset
        self.journal.watch(self._journal_changed)
        simulation.dispatcher.trees.append(self.tree)
        self.tree.trace = simulation.trace_delivery
        simulation.note("boot", self.name, self.boot)
        simulation.dispatcher.lifecycle.plant(self.tree, ChildSpec("", self._root, shutdown_budget=self._budget))

    # The edge

    def start(self, operation: Operation) -> None:
        """Hand a starting operation to the world, as an event of its own."""
        handle = SimOperation(self, operation)
        operation.edge_state = handle
        self.pending[operation.id] = handle
        self.simulation.note("start", self.name, operation.path, operation.key, type(operation.effect).__name__)
        self.simulation.call_after(0, self._perform, handle)

    def _perform(self, handle: SimOperation) -> None:
        if not handle.ended:
            self.perform(handle)

    def cancel(self, operation: Operation) -> None:
        """Tell the world that an operation was given up; unless it is deaf it ends at once."""
        self.simulation.note("cancel", self.name, operation.path, operation.key)
        self.simulation.call_after(0, self._cancelled, operation.edge_state)

    def _cancelled(self, handle: SimOperation) -> None:
        if handle.on_cancel is not None:
            handle.on_cancel()
        if not handle.deaf and not handle.ended:
            handle.complete()

    def fed(self, operation: Operation) -> None:
        """Tell the world that a session has something to send."""
        handle: SimOperation = operation.edge_state
        if handle.on_fed is not None:
            self.simulation.call_after(0, handle.on_fed)

    def room(self, operation: Operation) -> None:
        """Tell the world that a session's actor takes items again."""
        handle: SimOperation | None = operation.edge_state
        if handle is not None and handle.on_room is not None:
            self.simulation.call_after(0, handle.on_room)

    def publish(self, event: Any) -> None:
        """Keep an event."""
        self.simulation.note("event", self.name, type(event).__name__)
        if type(event) is FailureReport:
            self.failures.append(event)
        else:
            self.events.append(event)

    def wake(self) -> None:
        """Do nothing: nobody sleeps here."""

    def _journal_changed(self) -> None:
        self.tree.journal_changed = True

    def sync(self) -> None:
        """Start a commit if records wait for one; called after every step."""
        if self._syncing or self.sync_ns is None or self.tree.crashed:
            return
        if self.journal.appended > self.journal.durable and self.journal.pending_commits() > 0:
            self._syncing = True
            self.simulation.call_after(self.sync_ns(self._rng), self._commit, self.tree, self.journal.appended)

    def _commit(self, tree: Tree, upto: int) -> None:
        if tree is not self.tree or tree.crashed:
            return
        self._syncing = False
        # What was appended after the commit began is not part of it.
        count = min(self.journal.pending_commits(), upto - self.journal.durable)
        before = self.journal.durable
        if count > 0 and self.journal.commit(count) == before:
            self._syncing = True
            self.simulation.call_after(COMMIT_RETRY, self._look_again, tree)

    def _look_again(self, tree: Tree) -> None:
        if tree is self.tree:
            self._syncing = False

    # The host's side

    @property
    def now_s(self) -> float:
        """Simulated seconds since the simulation began."""
        return self.simulation.now_s

    def tell(self, path: str, message: Any) -> None:
        """Send a message to the actor at ``path``; without one it is a dead letter."""
        tree = self.tree
        tree.sent += 1
        cell = tree.cells.get(ActorPath(path))
        if cell is None or cell.status > WAITING or tree.closing or cell.full:
            tree.dead += 1
            return
        cell.box().append(message)
        if not cell.scheduled:
            self.simulation.dispatcher.schedule(cell)

    def question(self, path: str, message: Any) -> Slot:
        """Ask without waiting: the slot is filled as the simulation goes on.

        Raises:
            NoSuchActor: there is no actor at ``path``.
        """
        tree = self.tree
        if ActorPath(path) not in tree.cells:
            self.simulation.settle_control()
        cell = tree.cells.get(ActorPath(path))
        if cell is None:
            raise NoSuchActor(f"there is no actor at {path}")
        slot = Slot(cell, message)
        if cell.status > WAITING or tree.closing:
            slot.fill(None, ActorStopped(f"{path} has stopped"))
            return slot
        if cell.full:
            slot.fill(None, MailboxFull(f"{path} has {cell.spec.capacity} messages waiting"))
            return slot
        tree.sent += 1
        cell.box().append(slot)
        if not cell.scheduled:
            self.simulation.dispatcher.schedule(cell)
        return slot

    def ask(self, path: str, message: Any, timeout_s: float = 5.0) -> Any:
        """Ask and let the simulation run until the answer is there.

        Raises:
            AskTimeout: no answer within ``timeout_s`` simulated seconds.
            OutcomeUnknown: the answer still waits for the disk then.
            Exception: what the actor answered or raised.
        """
        slot = self.question(path, message)
        self.simulation.run_until(lambda: slot.done, timeout_s)
        if not slot.done:
            self.tree.give_up(slot)
            if slot.held:
                raise OutcomeUnknown(f"{path} answered, but its records are not on disk yet")
            raise AskTimeout(f"{path} did not answer within {timeout_s:g} s")
        if slot.error is not None:
            raise slot.error
        return slot.value

    def spawn(self, name: str, behavior: Behavior, **spec: Any) -> ActorPath:
        """Start an actor below the root; ``spec`` are further fields of :class:`ChildSpec`."""
        self.simulation.settle_control()
        root = self.tree.root
        assert root is not None
        if root.children is not None and name in root.children:
            raise InvalidArgument(f"there is an actor called {name!r}")
        cell = self.simulation.dispatcher.lifecycle.spawn(root, ChildSpec(name, behavior, **spec))
        return cell.path

    def state(self, path: str) -> Any:
        """Give the state of the actor at ``path``, for checkers; reading it is free of side effects."""
        cell = self.tree.cells.get(ActorPath(path))
        return None if cell is None else cell.state

    def stop(self) -> None:
        """Begin the ordered stop of everything."""
        self.tree.closing = True
        if self.tree.root is not None:
            self.simulation.dispatcher.lifecycle.stop(self.tree.root, StopReason.NORMAL)

    def statistics(self) -> TreeStatistics:
        """Give the system's counters since its last boot."""
        return self.tree.statistics()

    # Shorthands for simulations of one system

    def step(self) -> bool:
        """Do one thing; False if there is nothing to do now. See :meth:`Simulation.step`."""
        return self.simulation.step()

    def run_until_idle(self) -> None:
        """Run until nothing is left to do at this instant."""
        self.simulation.run_until_idle()

    def advance(self, duration_s: float) -> None:
        """Let ``duration_s`` simulated seconds pass."""
        self.simulation.advance(duration_s)

    # Faults

    def crash(self, keep: int | None = None) -> None:
        """Kill the process: all actors, timers and unsynced records are gone; what is on the wire goes on.

        ``keep`` records that were accepted but not durable reached the disk anyway; by default a random number.
        """
        self.simulation.note("crash", self.name)
        tree = self.tree
        tree.crashed = True
        for cell in tree.cells.values():
            cell.scheduled = True
        dispatcher = self.simulation.dispatcher
        dispatcher.trees.remove(tree)
        alive = [cell for cell in dispatcher.ready if cell.tree is not tree]
        dispatcher.ready.clear()
        dispatcher.ready.extend(alive)
        waiting = self.journal.appended - self.journal.durable
        self.disk.crash(keep=self._rng.randint(0, waiting) if keep is None else keep)
        self._syncing = False
        self.pending.clear()

    def restart(self, root: Behavior | None = None) -> None:
        """Boot again on the same disk, with another ``root`` if given."""
        if not self.tree.crashed:
            self.crash()
        if root is not None:
            self._root = root
        self.boot += 1
        self._begin()

    @property
    def crashed(self) -> bool:
        """Whether the process is down."""
        return self.tree.crashed


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
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._hash = hashlib.blake2b(digest_size=16)
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
        return self._hash.hexdigest()

    def note(self, *what: Any) -> None:
        """Write one line of the trace. Text, integers and keys of those only: no floats, reprs or exception texts."""
        line = f"{self.clock.ns} {' '.join(map(str, what))}"
        self.trace.append(line)
        self._hash.update(line.encode())

    def trace_delivery(self, cell: Cell, item: Any) -> None:
        """Note that a cell takes an entry of its mailbox."""
        kind = ""
        if type(item) is Envelope:
            kind = Kind(item.kind).name
            item = item.message
        elif type(item) is Slot:
            kind = "QUESTION"
            item = item.message
        self.note("take", cell.tree.name, cell.path, cell.incarnation, kind, type(item).__name__)

    # World events

    def call_after(self, delay_ns: int, function: Callable[..., None], *args: Any) -> None:
        """Have the world do something ``delay_ns`` from now; events of one instant keep their order."""
        self._serial += 1
        heapq.heappush(self._events, (self.clock.ns + delay_ns, self._serial, function, args))

    @property
    def next_event(self) -> int | None:
        """When the world does something next, ns."""
        return self._events[0][0] if self._events else None

    # Running

    def step(self) -> bool:
        """Do one thing at this instant: a piece of control work, a message or a world event; False if none is left."""
        dispatcher = self.dispatcher
        did = True
        changed = [tree for tree in dispatcher.trees if tree.journal_changed]
        for tree in changed:
            tree.release()
        if not changed and not dispatcher.control_step():
            if dispatcher.ready:
                dispatcher.step(1)
            elif self._events and self._events[0][0] <= self.clock.ns:
                _, _, function, args = heapq.heappop(self._events)
                function(*args)
            else:
                did = False
        if did:
            self.steps += 1
            for system in self.systems:
                system.sync()
            for check in self.checkers:
                check()
        return did

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
        event = self.next_event
        if due is None or event is None:
            return due if event is None else event
        return min(due, event)

    def _jump(self, to: int) -> None:
        self.clock.ns = max(self.clock.ns, to)
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
        """Give the seed, the hash and the last lines of the trace, for a failure message."""
        lines = "\n".join(self.trace)
        return f"seed {self.seed!r}, {self.steps} steps, {self.now_s:g} s, trace {self.trace_hash}\n{lines}"


__all__ = ["Livelock", "SimOperation", "SimSystem", "Simulation", "VirtualClock", "World", "leave_pending"]
