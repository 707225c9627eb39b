"""The edge of the runtime: the one module that knows an event loop, real clocks and real randomness.

:class:`ActorSystem` embeds a tree of actors in an anyio program::

    async with ActorSystem() as system:
        counter = system.spawn("counter", counter_behavior)
        counter.tell(Increment(2))
        total = await counter.ask(Read())

One task drives the dispatcher and starts the effects, each in a task of its own. Both run below a shielded scope: when
the host's scope is cancelled, or its block raises, the actors still stop in order, within a bounded grace. A bug in the
dispatcher, an escalation past the root and a lost journal crash the host's ``async with`` block.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc
import anyio.lowlevel

from iriscw.errors import (
    ActorStopped,
    AskInsideDecision,
    AskTimeout,
    InvalidArgument,
    MailboxFull,
    NoSuchActor,
    OutcomeUnknown,
    SystemClosed,
    TellInsideDecision,
)
from iriscw.runtime.behavior import DEFAULT_CAPACITY, DEFAULT_SHUTDOWN, Behavior, ChildSpec, Restart, Shutdown
from iriscw.runtime.cell import STOPPED, WAITING, Cell
from iriscw.runtime.dispatcher import Dispatcher
from iriscw.runtime.envelope import Envelope, Kind, Slot
from iriscw.runtime.interpreter import supersede
from iriscw.runtime.operations import Operation, Phase
from iriscw.runtime.tree import FailureReport, JournalPort, Tree, TreeStatistics
from iriscw.runtime.vocabulary import ROOT, SECOND, ActorPath, Arrived, Key, StopReason, seconds

DEFAULT_ASK_TIMEOUT_S = 5.0
"""Erlang/OTP's default for a call."""

DEFAULT_GRACE_S = 10.0
"""What a system may take to stop in order before the rest is forced; docker stop's default."""

CHECKPOINT_EVERY = 64
"""An ask that is answered at once yields to the loop this often: fairness and cancellation at 1/64 of their cost."""


class SystemClock:
    """The clocks of this machine: ``now`` is monotonic, ``wall`` counts from 1970, both in ns."""

    # The built-in functions themselves, without a Python call around them: they are read every turn.
    now = staticmethod(time.monotonic_ns)
    wall = staticmethod(time.time_ns)


class ActorRef:
    """One actor, as the host sees it. Of the actor that was spawned: not of a later one at the same path."""

    __slots__ = ("_cell", "_dispatcher", "_system")

    def __init__(self, system: ActorSystem, cell: Cell) -> None:
        self._system = system
        self._cell = cell
        self._dispatcher = cell.tree.dispatcher

    @property
    def path(self) -> ActorPath:
        """Where the actor stands."""
        return self._cell.path

    @property
    def alive(self) -> bool:
        """Whether the actor has neither stopped nor been quarantined."""
        return self._cell.status < STOPPED

    def tell(self, message: Any) -> None:
        """Send a message; to a stopped actor it is a dead letter.

        Raises:
            MailboxFull: as many messages wait as the mailbox holds.
            SystemClosed: the system is stopping.
            TellInsideDecision: a decision is running; it returns ``Tell`` instead.
        """
        cell = self._cell
        dispatcher = self._dispatcher
        if dispatcher.deciding:
            raise TellInsideDecision(f"{cell.path} was told something while a decision was running")
        tree = cell.tree
        if cell.status > WAITING or tree.closing:
            self._refuse_late(tree)
            return
        mailbox = cell.mailbox
        if mailbox is None:
            mailbox = cell.mailbox = deque()
        elif len(mailbox) >= cell.capacity and cell.full:
            raise MailboxFull(f"{cell.path} has {cell.spec.capacity} messages waiting")
        mailbox.append(message)
        tree.sent += 1
        if not cell.scheduled:
            dispatcher.schedule(cell)

    def tell_latest(self, message: Any, key: Key) -> None:
        """Send a message that replaces one with the same key that still waits. Raises as :meth:`tell` does."""
        cell = self._cell
        if self._dispatcher.deciding:
            raise TellInsideDecision(f"{cell.path} was told something while a decision was running")
        tree = cell.tree
        if cell.status > WAITING or tree.closing:
            self._refuse_late(tree)
            return
        item = Envelope(Kind.PLAIN, message, (None, key))
        supersede(tree, cell, item)
        if cell.full:
            assert cell.conflated is not None
            del cell.conflated[None, key]
            raise MailboxFull(f"{cell.path} has {cell.spec.capacity} messages waiting")
        tree.sent += 1
        cell.box().append(item)
        if not cell.scheduled:
            self._dispatcher.schedule(cell)

    @staticmethod
    def _refuse_late(tree: Tree) -> None:
        if tree.closing:
            raise SystemClosed("the actor system is stopping")
        tree.sent += 1
        tree.dead += 1

    def tell_from_thread(self, message: Any) -> None:
        """Send a message from another thread, in the order of the calls. Failures are counted as dead letters."""
        self._system.call_soon(self._tell_or_drop, message)

    def _tell_or_drop(self, message: Any) -> None:
        try:
            self.tell(message)
        except (MailboxFull, SystemClosed):
            self._cell.tree.sent += 1
            self._cell.tree.dead += 1

    async def ask(self, message: Any, timeout_s: float = DEFAULT_ASK_TIMEOUT_S) -> Any:
        """Send a message and wait for its answer.

        Raises:
            ActorStopped: the actor is gone, or went before it answered.
            ActorRestarted: it was restarted between taking the question and answering it.
            AskTimeout: no answer within ``timeout_s``.
            OutcomeUnknown: the answer exists but its records were not durable within ``timeout_s``.
            OutcomePending: the same, told at once, since the journal's disk is full.
            JournalUnavailable: the answer needs records, and the journal takes none for now; nothing was done.
            JournalFull: the same, since its disk is full.
            MailboxFull: as many messages wait as the mailbox holds.
            SystemClosed: the system is stopping.
            Exception: what the decision raised.
        """
        cell = self._cell
        dispatcher = self._dispatcher
        if dispatcher.deciding:
            raise AskInsideDecision("inside the tree a request is a command and its answer a message")
        tree = cell.tree
        if tree.closing:
            raise SystemClosed("the actor system is stopping")
        if cell.status > WAITING:
            raise ActorStopped(f"{cell.path} has stopped")
        slot = Slot(cell, message)
        system = self._system
        try:
            answered = dispatcher.ask_now(slot)
        except Exception as bug:
            system.crash(bug)
            raise
        if answered:
            if dispatcher.ready or dispatcher.control or system.outbox or system.oversleeps:
                system.wake()
        else:
            if cell.full:
                raise MailboxFull(f"{cell.path} has {cell.spec.capacity} messages waiting")
            tree.sent += 1
            cell.box().append(slot)
            system.pump(slot)
        if not slot.done:
            await self._wait(slot, timeout_s)
        elif not dispatcher.inline_budget % CHECKPOINT_EVERY:
            await anyio.lowlevel.checkpoint()
        if slot.error is not None:
            raise slot.error
        return slot.value

    async def _wait(self, slot: Slot, timeout_s: float) -> None:
        waiting = self._system.waiting
        slot.waiter = anyio.Event()
        waiting[id(slot)] = slot
        try:
            with anyio.move_on_after(timeout_s):
                await slot.waiter.wait()
        finally:
            del waiting[id(slot)]
            slot.waiter = None
            if not slot.done:
                slot.abandoned = True
                if slot.cell.slots is not None:
                    slot.cell.slots.pop(slot.id, None)
        if not slot.done:
            trouble = slot.cell.tree.trouble
            because = f": {trouble}" if trouble else ""
            if slot.held:
                raise OutcomeUnknown(f"{slot.cell.path} answered, but its records are not on disk yet{because}")
            raise AskTimeout(f"{slot.cell.path} did not answer within {timeout_s:g} s{because}")

    def __repr__(self) -> str:
        return f"<ActorRef {self._cell.path}>"


class SessionPort:
    """How a session talks to its actor."""

    __slots__ = ("_fed", "_operation", "_room", "_tree")

    def __init__(self, tree: Tree, operation: Operation) -> None:
        self._tree = tree
        self._operation = operation
        self._room = anyio.Event()
        self._fed = anyio.Event()

    async def send(self, item: Any) -> None:
        """Give the actor an item; waits until there is room for it."""
        while not self._tree.arrived(self._operation, Arrived(self._operation.key, item)):
            self._room = anyio.Event()
            await self._room.wait()

    async def receive(self) -> Any:
        """Take the next item that the actor fed; waits for it."""
        outbox = self._operation.outbox
        assert outbox is not None
        while not outbox:
            self._fed = anyio.Event()
            await self._fed.wait()
        self._operation.promised -= 1
        return outbox.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self.receive()

    def notice_room(self) -> None:
        """Take note that the actor took an item."""
        self._room.set()

    def notice_fed(self) -> None:
        """Take note that the actor fed an item."""
        self._fed.set()


class ActorSystem:
    """A supervised tree of actors in an anyio program: an async context manager.

    Args:
        root: the behavior of ``/``; its children are the top level. Default: one that only supervises.
        name: shown in reports.
        journal: where durable actors keep their records; see :mod:`iriscw.journal`.
        seed: of all randomness. Default: drawn from the operating system, so that ids are unique across processes.
        grace_s: what an ordered stop may take.
        on_event: called with every emitted event and every :class:`FailureReport`, outside any decision. What it raises
            crashes the system: give it a function that does not fail.
    """

    def __init__(
        self,
        root: Behavior | None = None,
        *,
        name: str = "system",
        journal: JournalPort | None = None,
        seed: str | None = None,
        grace_s: float = DEFAULT_GRACE_S,
        on_event: Callable[[Any], None] | None = None,
    ) -> None:
        self.name = name
        self._grace_s = grace_s
        self._on_event = on_event
        self._dispatcher = Dispatcher(SystemClock())
        self._dispatcher.wake = self.wake
        self._tree = Tree(
            self._dispatcher,
            self,
            name=name,
            seed=seed if seed is not None else secrets.token_hex(16),
            journal=journal,
        )
        self._dispatcher.trees.append(self._tree)
        self._journal = journal
        self._root_spec = ChildSpec("", root or Behavior(name="root"), shutdown_budget=seconds(grace_s))
        self._event: anyio.Event | None = None
        self.outbox: deque[tuple[Callable[..., None], Any]] = deque()
        """What the driving task still has to do: tasks to start, events to hand out."""
        self.waiting: dict[int, Slot] = {}
        """Questions whose askers sleep."""
        self._finished: anyio.Event | None = None
        self._crashed = True
        """Until it has ended well."""
        self._exit: AsyncExitStack | None = None
        self._effects: anyio.abc.TaskGroup | None = None
        self._soon: Callable[..., Any] | None = None

    # The host's side

    def ref(self, path: str) -> ActorRef:
        """Give a reference to the actor at ``path``.

        Raises:
            NoSuchActor: there is none now.
        """
        cell = self._tree.cells.get(ActorPath(path))
        if cell is None:
            raise NoSuchActor(f"there is no actor at {path}")
        return ActorRef(self, cell)

    def spawn(
        self,
        name: str,
        behavior: Behavior,
        *,
        restart: Restart = Restart.PERMANENT,
        shutdown: Shutdown = Shutdown.STOP,
        shutdown_budget_s: float | None = None,
        entity: bool = False,
        capacity: int = DEFAULT_CAPACITY,
    ) -> ActorRef:
        """Start an actor below the root; the parameters are those of :class:`ChildSpec`.

        Raises:
            InvalidArgument: the name is empty, holds ``/`` or is taken, the capacity is not positive, or the actor is
                durable without a journal.
            SystemClosed: the system is stopping, or has not been entered.
            TellInsideDecision: a decision is running; it returns ``Spawn`` instead.
        """
        tree = self._tree
        root = tree.root
        if self._dispatcher.deciding:
            raise TellInsideDecision("a decision spawns with the Spawn command")
        if root is None or tree.closing:
            raise SystemClosed("the actor system is not running")
        if not name or "/" in name:
            raise InvalidArgument(f"an actor's name is non-empty and holds no '/': {name!r}")
        if root.children is not None and name in root.children:
            raise InvalidArgument(f"there is an actor called {name!r}")
        if behavior.evolve is not None and tree.journal is None:
            raise InvalidArgument(f"{name!r} is durable, but the system has no journal")
        if capacity < 1:
            raise InvalidArgument(f"a mailbox holds at least one message, not {capacity}")
        budget = DEFAULT_SHUTDOWN if shutdown_budget_s is None else seconds(shutdown_budget_s)
        spec = ChildSpec(name, behavior, restart, shutdown, budget, entity, capacity)
        cell = self._dispatcher.lifecycle.spawn(root, spec)
        if self._dispatcher.control and self._dispatcher.idle:
            self.wake()
        return ActorRef(self, cell)

    def tell(self, path: str, message: Any) -> None:
        """Send a message to the actor at ``path``; without one it is a dead letter. Raises as ``ActorRef.tell``."""
        cell = self._tree.cells.get(ActorPath(path))
        if cell is None:
            ActorRef._refuse_late(self._tree)
        else:
            ActorRef(self, cell).tell(message)

    async def ask(self, path: str, message: Any, timeout_s: float = DEFAULT_ASK_TIMEOUT_S) -> Any:
        """Ask the actor at ``path``. Raises as :meth:`ActorRef.ask`, and :class:`NoSuchActor`."""
        return await self.ref(path).ask(message, timeout_s)

    def statistics(self) -> TreeStatistics:
        """Give the system's counters."""
        return self._tree.statistics()

    @property
    def failure(self) -> Exception | None:
        """What ended the system by itself, if anything did."""
        return self._tree.fatal

    def call_soon(self, function: Callable[..., None], *args: Any) -> None:
        """Call ``function`` in the system's thread, soon; from any thread. Nothing happens once the loop is gone."""
        if self._soon is not None:
            self._soon(function, *args)

    def pump(self, slot: Slot) -> None:
        """Drive the dispatcher in the asker's task: most questions are answered before anybody has to sleep."""
        dispatcher = self._dispatcher
        cell: Cell = slot.cell
        was_idle = dispatcher.idle
        dispatcher.idle = False
        if not cell.scheduled:
            dispatcher.schedule(cell)
        if dispatcher.inline_budget > 0:
            try:
                dispatcher.inline_budget -= dispatcher.step(dispatcher.inline_budget, slot) or 1
            except Exception as bug:
                self.crash(bug)
                raise
        if dispatcher.busy or self.outbox or self.oversleeps or self._tree.fatal is not None:
            self.wake()
        elif was_idle:
            dispatcher.idle = True

    # The edge's side: called by the tree, never runs a decision

    def start(self, operation: Operation) -> None:
        """Begin an operation in a task of its own."""
        self.outbox.append((self._start_task, operation))
        self.wake()

    def cancel(self, operation: Operation) -> None:
        """Cancel an operation's task."""
        scope = operation.edge_state
        if isinstance(scope, tuple):
            scope = scope[0]
        if scope is not None:
            scope.cancel()

    def fed(self, operation: Operation) -> None:
        """Wake a session that waits for items."""
        if operation.edge_state is not None:
            operation.edge_state[1].notice_fed()

    def room(self, operation: Operation) -> None:
        """Wake a session that waits for room."""
        if operation.edge_state is not None:
            operation.edge_state[1].notice_room()

    def publish(self, event: Any) -> None:
        """Hand an event to the listener, outside the step."""
        if self._on_event is not None:
            self.outbox.append((self._on_event, event))
            self.wake()

    def wake(self) -> None:
        """Have the driving task look for work."""
        self._dispatcher.idle = False
        if self._event is not None:
            self._event.set()

    def crash(self, bug: Exception) -> None:
        """End the system: the dispatcher raised in an asker's task, where it may be caught for an answer."""
        self._tree.lose(bug)

    @property
    def oversleeps(self) -> bool:
        """Whether a timer was set that is due before the driving task means to wake."""
        dispatcher = self._dispatcher
        return dispatcher.timers.earlier or dispatcher.attentive_timers.earlier

    def _journal_changed(self) -> None:
        self.call_soon(self._take_journal_change)

    def _take_journal_change(self) -> None:
        self._tree.journal_changed = True
        self.wake()

    def _start_task(self, operation: Operation) -> None:
        assert self._effects is not None
        self._effects.start_soon(self._perform, operation, name=f"{operation.path} {operation.key!r}")

    async def _perform(self, operation: Operation) -> None:
        value: Any = None
        error: Exception | None = None
        with anyio.CancelScope() as scope:
            port = SessionPort(self._tree, operation) if operation.session else None
            operation.edge_state = scope if port is None else (scope, port)
            try:
                if operation.phase is Phase.CANCELLING:
                    error = ActorStopped(f"{operation.path} gave the operation up before it began")
                elif port is None:
                    value = await operation.function(operation.effect)
                else:
                    await operation.function(operation.effect, port)
            except Exception as raised:
                error = raised
        if scope.cancelled_caught and error is None:
            error = ActorStopped(f"{operation.path} gave the operation up")
        operation.edge_state = None
        self._tree.ended(operation, value, error)

    # Driving

    async def _drive(self) -> None:
        dispatcher = self._dispatcher
        while not self._over():
            dispatcher.idle = False
            dispatcher.look_at_clock()
            dispatcher.step()
            self._flush()
            if dispatcher.busy or self.outbox:
                await anyio.lowlevel.checkpoint()
                continue
            if self._over():
                break
            self._event = anyio.Event()
            dispatcher.timers.earlier = dispatcher.attentive_timers.earlier = False
            dispatcher.idle = True
            due = dispatcher.next_due
            wait_s = math.inf if due is None else max(0.0, (due - dispatcher.clock.now()) / SECOND)
            with anyio.move_on_after(wait_s):
                await self._event.wait()
        self._flush()

    def _over(self) -> bool:
        return self._tree.stopped or self._tree.fatal is not None

    def _flush(self) -> None:
        outbox = self.outbox
        while outbox:
            act, argument = outbox.popleft()
            act(argument)

    async def _main(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        assert self._finished is not None
        try:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as effects:
                    self._effects = effects
                    task_status.started()
                    await self._drive()
                    effects.cancel_scope.cancel()
            if self._tree.fatal is not None:
                raise self._tree.fatal
            self._crashed = False
        finally:
            self._tree.closing = True
            self._tree.stopped = True
            self._finished.set()
            self._dismiss()

    def _dismiss(self) -> None:
        """Fail the questions that nobody is left to answer, so that no asker waits for its deadline."""
        for slot in list(self.waiting.values()):
            if slot.held:
                slot.fill(None, OutcomeUnknown(f"{slot.cell.path} answered, but the system ended before the disk did"))
            else:
                slot.fill(None, ActorStopped(f"{slot.cell.path} ended with its system"))

    async def __aenter__(self) -> Self:
        if self._exit is not None:
            raise SystemClosed("an actor system is entered once")
        self._soon = _loop_caller()
        self._finished = anyio.Event()
        if self._journal is not None and hasattr(self._journal, "watch"):
            self._journal.watch(self._journal_changed)
        self._dispatcher.lifecycle.plant(self._tree, self._root_spec)
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            await tasks.start(self._main, name=f"actor system {self.name}")
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._exit is not None
        await self.stop()
        if isinstance(error, Exception) and not self._crashed:
            # The block's own error leaves as it is: that there is a task group inside is nobody's business.
            await self._exit.__aexit__(None, None, None)
            return None
        return await self._exit.__aexit__(kind, error, trace)

    async def stop(self) -> None:
        """Stop all actors in order, within the grace; then the rest is forced. Waits until everything has ended.

        Raises:
            SystemClosed: the system has not been entered.
        """
        if self._finished is None:
            raise SystemClosed("the actor system has not been entered")
        tree = self._tree
        if tree.root is not None and tree.root.status < STOPPED:
            tree.closing = True
            self._dispatcher.look_at_clock()  # it may have slept for long, and budgets count from now
            self._dispatcher.lifecycle.stop(tree.root, StopReason.NORMAL)
            self.wake()
        with anyio.CancelScope(shield=True):
            await self._finished.wait()


def _loop_caller() -> Callable[..., Any]:
    """Give what schedules a call in this event loop from any thread: both backends have one, under different names."""
    native = anyio.lowlevel.current_token().native_token
    caller = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon  # type: ignore[attr-defined]

    def soon(function: Callable[..., None], *args: Any) -> None:
        try:
            caller(function, *args)
        except RuntimeError:
            # The loop is closed (trio.RunFinishedError is a RuntimeError as well): nobody is left to call for.
            return

    return soon


__all__ = ["ROOT", "ActorRef", "ActorSystem", "FailureReport", "SessionPort", "SystemClock"]
