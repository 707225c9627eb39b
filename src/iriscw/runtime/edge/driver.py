"""The driver: one task that drives the dispatcher of a tree and performs what its actors ask of the world.

Theory of operation. The task steps the dispatcher while there is work, and sleeps until the next timer or until it is
woken. Effects and sessions run in a task each, below the same scope; what they give comes back to the tree. What the
tree asks of its edge during a step (start this, publish that) is put into an outbox and done between steps, so that no
foreign code ever runs inside a decision. A host that asks drives the dispatcher too, in its own task (:meth:`pump`).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel

from iriscw._errors import ActorStopped, OutcomeUnknown, as_failure
from iriscw.runtime.cell import Cell
from iriscw.runtime.dispatcher import Dispatcher
from iriscw.runtime.edge.session import SessionPort
from iriscw.runtime.envelope import Slot
from iriscw.runtime.operations import Operation, OperationPhase
from iriscw.runtime.tree import JournalPort, Tree
from iriscw.runtime.vocabulary import SECOND


class SystemClock:
    """The clocks of this machine: ``now`` is monotonic, ``wall`` counts from 1970, both in ns."""

    # The built-in functions themselves, without a Python call around them: they are read every turn.
    now = staticmethod(time.monotonic_ns)
    wall = staticmethod(time.time_ns)


class Driver:
    """Drives one tree of actors; it is the tree's :class:`~iriscw.runtime.operations.Edge`.

    Args:
        name: shown in reports.
        seed: of all randomness.
        journal: where durable actors keep their records.
        on_event: called with every emitted event, outside any decision.
    """

    def __init__(
        self, *, name: str, seed: str, journal: JournalPort | None, on_event: Callable[[Any], None] | None
    ) -> None:
        self.dispatcher = Dispatcher(SystemClock())
        self.dispatcher.wake = self.wake
        self.tree = Tree(self.dispatcher, self, name=name, seed=seed, journal=journal)
        self.dispatcher.trees.append(self.tree)
        self.outbox: deque[tuple[Callable[..., None], Any]] = deque()
        """What the driving task still has to do: tasks to start, events to hand out."""
        self.waiting: dict[int, Slot] = {}
        """Questions whose askers sleep."""
        self.finished: anyio.Event | None = None
        """Set when everything has ended; None until the driver is opened."""
        self.crashed = True
        """Until it has ended well."""
        self._on_event = on_event
        self._event: anyio.Event | None = None
        self._effects: anyio.abc.TaskGroup | None = None
        self._soon: Callable[..., Any] | None = None

    def open(self) -> None:
        """Take hold of the event loop of the calling task; :meth:`run` follows."""
        self._soon = _loop_caller()
        self.finished = anyio.Event()
        journal = self.tree.journal
        if journal is not None and hasattr(journal, "watch"):
            journal.watch(self._journal_changed)

    # Who asks

    def call_soon(self, function: Callable[..., None], *args: Any) -> None:
        """Call ``function`` in the system's thread, soon; from any thread. Nothing happens once the loop is gone."""
        if self._soon is not None:
            self._soon(function, *args)

    def pump(self, slot: Slot) -> None:
        """Drive the dispatcher in the asker's task: most questions are answered before anybody has to sleep."""
        dispatcher = self.dispatcher
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
        if dispatcher.busy or self.outbox or self.oversleeps or self.tree.fatal is not None:
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
            self.outbox.append((self._hand_out, event))
            self.wake()

    def _hand_out(self, event: Any) -> None:
        assert self._on_event is not None
        try:
            self._on_event(event)
        except BaseException as raised:
            # A cancellation that nobody asked for would end the system, and the host's block, without a word.
            raise as_failure(raised) from raised.__cause__

    def wake(self) -> None:
        """Have the driving task look for work."""
        self.dispatcher.idle = False
        if self._event is not None:
            self._event.set()

    def crash(self, bug: Exception) -> None:
        """End the system: the dispatcher raised in an asker's task, where it may be caught for an answer."""
        self.tree.lose(bug)

    @property
    def oversleeps(self) -> bool:
        """Whether a timer was set that is due before the driving task means to wake."""
        dispatcher = self.dispatcher
        return dispatcher.timers.earlier or dispatcher.attentive_timers.earlier

    def _journal_changed(self) -> None:
        self.call_soon(self._take_journal_change)

    def _take_journal_change(self) -> None:
        self.tree.journal_changed = True
        self.wake()

    def _start_task(self, operation: Operation) -> None:
        assert self._effects is not None
        self._effects.start_soon(self._perform, operation, name=f"{operation.path} {operation.key!r}")

    async def _perform(self, operation: Operation) -> None:
        """Perform an operation to its end, however its function ends."""
        assert self._effects is not None
        value: Any = None
        error: Exception | None = None
        scope = anyio.CancelScope()
        try:
            with scope:
                value = await self._call(operation, scope)
        except BaseException as raised:
            if self._effects.cancel_scope.cancel_called and isinstance(raised, anyio.get_cancelled_exc_class()):
                raise  # everything ends here
            error = as_failure(raised)
        if scope.cancelled_caught and error is None:
            error = ActorStopped(f"{operation.path} gave the operation up")
        operation.edge_state = None
        self.tree.ended(operation, value, error)

    async def _call(self, operation: Operation, scope: anyio.CancelScope) -> Any:
        port = SessionPort(self.tree, operation) if operation.session else None
        operation.edge_state = scope if port is None else (scope, port)
        if operation.phase is OperationPhase.CANCELLING:
            raise ActorStopped(f"{operation.path} gave the operation up before it began")
        if port is None:
            return await operation.function(operation.effect)
        return await operation.function(operation.effect, port)

    # Driving

    async def _drive(self) -> None:
        dispatcher = self.dispatcher
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
        return self.tree.stopped or self.tree.fatal is not None

    def _flush(self) -> None:
        outbox = self.outbox
        while outbox:
            act, argument = outbox.popleft()
            act(argument)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Drive the tree until it has stopped, below a shielded scope; its driver was opened.

        Raises:
            Exception: what ended the tree from the inside.
        """
        assert self.finished is not None
        try:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as effects:
                    self._effects = effects
                    task_status.started()
                    await self._drive()
                    effects.cancel_scope.cancel()
            if self.tree.fatal is not None:
                raise self.tree.fatal
            self.crashed = False
        finally:
            self.tree.closing = True
            self.tree.stopped = True
            self.finished.set()
            self._dismiss()

    def _dismiss(self) -> None:
        """Fail the questions that nobody is left to answer, so that no asker waits for its deadline."""
        for slot in list(self.waiting.values()):
            if slot.held:
                slot.fill(None, OutcomeUnknown(f"{slot.cell.path} answered, but the system ended before the disk did"))
            else:
                slot.fill(None, ActorStopped(f"{slot.cell.path} ended with its system"))


def _loop_caller() -> Callable[..., Any]:
    """Return what schedules a call in this event loop from any thread.

    Both backends have one, under different names.
    """
    native = anyio.lowlevel.current_token().native_token
    caller = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon  # type: ignore[attr-defined]

    def soon(function: Callable[..., None], *args: Any) -> None:
        try:
            caller(function, *args)
        except RuntimeError:
            # The loop is closed (trio.RunFinishedError is a RuntimeError as well): nobody is left to call for.
            return

    return soon


__all__ = ["Driver", "SystemClock"]
