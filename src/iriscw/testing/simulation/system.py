"""A simulated process: the edge of one tree of actors, its disk, and what can befall it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from iriscw._errors import ActorStopped, AskTimeout, InvalidArgument, MailboxFull, NoSuchActor, OutcomeUnknown
from iriscw.journal.memory import MemoryDisk, MemoryJournal
from iriscw.journal.port import DEFAULT_BOUND_BYTES
from iriscw.runtime.behavior import Behavior, ChildSpec
from iriscw.runtime.cell import WAITING
from iriscw.runtime.envelope import Slot
from iriscw.runtime.operations import Operation
from iriscw.runtime.tree import FailureReport, Tree, TreeStatistics
from iriscw.runtime.vocabulary import MILLISECOND, ActorPath, StopReason, seconds
from iriscw.testing.simulation.operation import SimOperation, World, leave_pending
from iriscw.testing.simulation.world import Simulation

COMMIT_RETRY = 10 * MILLISECOND
"""How long a disk that hangs or is full is left alone: trying again at once would be a loop without an end."""


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
        if self._syncing or not self.journal.pending:
            return
        if self.sync_ns is not None and not self.tree.crashed:
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
        cell = tree.cells.get(path)  # type: ignore[call-overload]  # a path is its text
        if cell is None or cell.status > WAITING or tree.closing:
            tree.dead += 1
            return
        mailbox = cell.box()
        if len(mailbox) >= cell.capacity and cell.full:
            tree.dead += 1
            return
        mailbox.append(message)
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
            tree.disown(slot, ActorStopped(f"{path} has stopped"))
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
        """Return the state of the actor at ``path``, for checkers; reading it is free of side effects."""
        cell = self.tree.cells.get(ActorPath(path))
        return None if cell is None else cell.state

    def stop(self) -> None:
        """Begin the ordered stop of everything."""
        self.tree.closing = True
        if self.tree.root is not None:
            self.simulation.dispatcher.lifecycle.stop(self.tree.root, StopReason.NORMAL)

    def statistics(self) -> TreeStatistics:
        """Return the system's counters since its last boot."""
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


__all__ = ["COMMIT_RETRY", "SimSystem"]
