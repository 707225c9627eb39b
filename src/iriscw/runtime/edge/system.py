"""A tree of actors in a host's program: the actor system.

:class:`ActorSystem` embeds a tree of actors in an anyio program::

    async with ActorSystem() as system:
        counter = system.spawn("counter", counter_behavior)
        counter.tell(Increment(2))
        total = await counter.ask(Read())

One task drives the dispatcher and starts the effects, each in a task of its own. Both run below a shielded scope: when
the host's scope is cancelled, or its block raises, the actors still stop in order, within a bounded grace. A bug in the
dispatcher, an escalation past the root and a lost journal crash the host's ``async with`` block.

The block is a task group's, so the task that enters it has to leave it, on either event loop. A cluster
(:class:`iriscw.Cluster`) starts a task of its own for that, as only asyncio lets it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc

from iriscw._errors import InvalidArgument, NoSuchActor, SystemClosed, TellInsideDecision, WrongTask
from iriscw.runtime.behavior import DEFAULT_CAPACITY, DEFAULT_SHUTDOWN, Behavior, ChildSpec, Restart, Shutdown
from iriscw.runtime.cell import STOPPED
from iriscw.runtime.edge.driver import Driver
from iriscw.runtime.edge.reference import DEFAULT_ASK_TIMEOUT_S, ActorRef, refuse_late
from iriscw.runtime.inspection import MAX_ROWS, ActorPage, inspect
from iriscw.runtime.tree import JournalPort, TreeStatistics
from iriscw.runtime.vocabulary import ActorPath, StopReason, seconds

DEFAULT_GRACE_S = 10.0
"""What a system may take to stop in order before the rest is forced; docker stop's default."""


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
        self._driver = Driver(
            name=name,
            seed=seed if seed is not None else os.urandom(16).hex(),
            journal=journal,
            on_event=on_event,
        )
        self._dispatcher = self._driver.dispatcher
        self._tree = self._driver.tree
        self._root_spec = ChildSpec("", root or Behavior(name="root"), shutdown_budget=seconds(grace_s))
        self._tasks: anyio.abc.TaskGroup | None = None
        self._host: int | None = None
        """The task that entered."""

    # The host's side

    def ref(self, path: str) -> ActorRef:
        """Give a reference to the actor at ``path``.

        Raises:
            NoSuchActor: there is none now.
        """
        cell = self._tree.cells.get(ActorPath(path))
        if cell is None:
            raise NoSuchActor(f"there is no actor at {path}")
        return ActorRef(self._driver, cell)

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
            self._driver.wake()
        return ActorRef(self._driver, cell)

    def tell(self, path: str, message: Any) -> None:
        """Send a message to the actor at ``path``; without one it is a dead letter. Raises as ``ActorRef.tell``."""
        cell = self._tree.cells.get(ActorPath(path))
        if cell is None:
            refuse_late(self._tree)
        else:
            ActorRef(self._driver, cell).tell(message)

    async def ask(self, path: str, message: Any, timeout_s: float = DEFAULT_ASK_TIMEOUT_S) -> Any:
        """Ask the actor at ``path``. Raises as :meth:`ActorRef.ask`, and :class:`NoSuchActor`."""
        return await self.ref(path).ask(message, timeout_s)

    def statistics(self) -> TreeStatistics:
        """Return the system's counters."""
        return self._tree.statistics()

    def inspect(
        self,
        under: str = "/",
        *,
        after: str = "",
        depth: int | None = None,
        troubled: bool = False,
        limit: int = MAX_ROWS,
    ) -> ActorPage:
        """Describe the actors that there are; the parameters and errors are those of :func:`inspection.inspect`."""
        now = self._dispatcher.clock.now()
        return inspect(self._tree, now, under=under, after=after, depth=depth, troubled=troubled, limit=limit)

    @property
    def failure(self) -> Exception | None:
        """What ended the system by itself, if anything did."""
        return self._tree.fatal

    def call_soon(self, function: Callable[..., None], *args: Any) -> None:
        """Call ``function`` in the system's thread, soon; from any thread. Nothing happens once the loop is gone."""
        self._driver.call_soon(function, *args)

    # From start to stop

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise SystemClosed("an actor system is entered once")
        self._host = anyio.get_current_task().id
        self._driver.open()
        self._dispatcher.lifecycle.plant(self._tree, self._root_spec)
        self._tasks = tasks = anyio.create_task_group()
        await tasks.__aenter__()
        try:
            await tasks.start(self._driver.run, name=f"actor system {self.name}")
        except BaseException as error:
            await tasks.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Stop all actors in order, and end the block.

        Raises:
            WrongTask: another task has entered. The actors are stopped; that task still has to leave.
            Exception: what ended the system from the inside.
        """
        assert self._tasks is not None
        if anyio.get_current_task().id != self._host:
            await self.stop()
            raise WrongTask(
                f"the actor system {self.name!r} was entered by another task, which has to leave its block;"
                " its actors have been stopped"
            )
        try:
            await self.stop()
        except BaseException as cut:  # asyncio's own cancellation, which no shield holds off: the tasks are waited for
            await self._tasks.__aexit__(type(cut), cut, cut.__traceback__)
            raise
        if isinstance(error, Exception) and not self._driver.crashed:
            # The block's own error leaves as it is: that there is a task group inside is nobody's business.
            await self._tasks.__aexit__(None, None, None)
            return None
        try:
            return await self._tasks.__aexit__(kind, error, trace)
        except BaseException as raised:
            # A task group raises the cancellation that it was given. Whoever is told of it a second time may take it
            # for a new one: contextlib's exit stacks then make it its own context, and follow that chain for ever.
            if raised is error:
                return False
            raise

    async def stop(self) -> None:
        """Stop all actors in order, within the grace; then the rest is forced. Waits until everything has ended.

        Raises:
            SystemClosed: the system has not been entered.
        """
        finished = self._driver.finished
        if finished is None:
            raise SystemClosed("the actor system has not been entered")
        tree = self._tree
        if tree.root is not None and tree.root.status < STOPPED:
            tree.closing = True
            self._dispatcher.look_at_clock()  # it may have slept for long, and budgets count from now
            self._dispatcher.lifecycle.stop(tree.root, StopReason.NORMAL)
            self._driver.wake()
        with anyio.CancelScope(shield=True):
            await finished.wait()


__all__ = ["DEFAULT_GRACE_S", "ActorSystem"]
