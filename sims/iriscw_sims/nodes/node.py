"""One simulated node: the agent's real tree over a simulated machine, and the few lines of shell around it.

Theory of operation. What decides is production code: ``/operations`` with an actor for each operation
(:mod:`iriscw.agent.tree`), the recovery of a journal (:mod:`iriscw.agent.recovery`), the board, the desk. The agent's
process is a crash domain of its own: a kill loses its actors and what was not on its disk, never what runs beside it on
the machine. This shell stands where the daemon's glue to the event loop stands: it carries out effects step by step,
takes and gives back claims, and tells the tree what it published.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from iriscw._errors import ActorStopped, MailboxFull, NoSuchActor, OperationError, UsageError
from iriscw.agent.claims import TargetBusy
from iriscw.agent.operation_views import Board
from iriscw.agent.operations import (
    OPERATIONS,
    Asked,
    BeginOperation,
    Claim,
    CleanUp,
    GiveUpAll,
    OperationAside,
    OperationClosed,
    OperationOver,
    Operations,
    StopOperation,
    taken_up,
)
from iriscw.agent.recovery import known_of, left_in
from iriscw.agent.tree import tree
from iriscw.freeze.drivers.desk import Desk, unseen
from iriscw.freeze.messages import FreezeTree, OperationChanged, OperationEnded, ThawTree
from iriscw.freeze.model import Outcome
from iriscw.journal.memory import MemoryJournal
from iriscw.runtime.behavior import Behavior
from iriscw.runtime.envelope import Slot
from iriscw.testing import checks as books
from iriscw.testing.simulation import SimOperation, SimSystem
from iriscw_sims.disks import WatchedDisk
from iriscw_sims.nodes.checks import Checks
from iriscw_sims.nodes.criu import SimCriu
from iriscw_sims.nodes.keeping import SimArtifacts
from iriscw_sims.nodes.machine import Machine
from iriscw_sims.nodes.ports import SimCuda, SimGpus, SimHooks, SimProcesses
from iriscw_sims.nodes.stepping import Await, Cancelled, cancel, together

if TYPE_CHECKING:
    from iriscw_sims.nodes.world import NodesWorld

LIMIT = 8
"""Operations at once: few, so that the limit is met."""

BOUND_BYTES = 64 * 1024
"""Uncommitted bytes at which the journal takes no more."""

BOOKS_EVERY = 64
"""Steps between two full checks of the runtime's books."""


class Node:
    """One node.

    Args:
        world: the world that it is in.
        machine: what there is on it.
        checks: those of the machine.
    """

    def __init__(self, world: NodesWorld, machine: Machine, checks: Checks) -> None:
        self.world, self.machine, self.checks = world, machine, checks
        self.name = machine.node
        self.up = True
        """Whether the machine has power."""
        disk = WatchedDisk()
        disk.written = self._written
        self._seen = self._failures = self._due = 0
        self._dead: list[object] = []
        self._claiming: dict[str, None] = {}
        """Operations whose target is being claimed."""
        self.board = self._board()
        self._desks: dict[str, dict[type, Any]] = {}
        self.system = SimSystem(
            self._root(Operations(LIMIT)),
            simulation=world.simulation,
            name=self.name,
            perform=self.perform,
            disk=disk,
            bound_bytes=BOUND_BYTES,
        )

    def _board(self) -> Board:
        return Board(lambda before, after: None, clock=lambda: self.world.simulation.now)

    def _root(self, begins_with: Operations) -> Behavior:
        nobody: Any = None
        kinds = Desk(*([nobody] * 6)).effects()
        return tree(begins_with, lambda operation: dict.fromkeys(kinds, nobody), claim=nobody, clean_up=nobody)

    # The agent's process

    def kill(self, keep: int | None = None) -> bool:
        """Kill the agent; False if it is down."""
        if self.system.crashed:
            return False
        self.system.crash(keep)
        self.machine.agent_dies()
        self._desks = {}
        self._claiming = {}
        return True

    def start(self) -> None:
        """Start the agent: it takes up what an earlier one left."""
        if not self.system.crashed or not self.up:
            return
        journal = MemoryJournal(self.system.disk)
        left = left_in(journal)
        journal.end()
        self.board = self._board()
        for each in (*left.owed, *left.over):
            self.board.begin(each.asked, each.artifact, each.tier, owed=True)
        self._seen = len(self.system.events)
        owed, over = ([each.asked for each in kind] for kind in (left.owed, left.over))
        self.system.restart(self._root(taken_up(LIMIT, owed, over)))

    @property
    def owes(self) -> list[str]:
        """The operations that the agent knows of."""
        state = self.system.state(OPERATIONS)
        return [] if self.system.crashed or state is None else list(state.entries)

    # What the tree asks for

    def perform(self, handle: SimOperation) -> None:
        """Carry out an effect."""
        if handle.system_restarted:
            return  # the process was killed in the step in which it asked
        match handle.effect:
            case Claim(asked=asked):
                self._carry_out(handle, self._claim(asked))
            case CleanUp(operation=operation):
                self._carry_out(handle, self._clean_up(operation))
            case effect:
                name = handle.path.name
                if name not in self._desks:
                    self._desks[name] = self._desk(name).effects()
                self._carry_out(handle, self._desks[name][type(effect)](effect))

    async def _claim(self, asked: Asked) -> None:
        """Take a claim: it takes its time, and who asked may leave meanwhile."""
        self._claiming[asked.operation] = None
        try:
            await Await(self.machine.fate.lasts("claim", 0))
        finally:
            self._claiming.pop(asked.operation, None)
        if self.machine.claims.setdefault(asked.target, asked.operation) != asked.operation:
            raise TargetBusy(f"another command works on it: {asked.target}")

    def _desk(self, operation: str) -> Desk:
        made = (self.machine, self.checks, operation, self.system.boot)
        return Desk(
            processes=SimProcesses(*made),
            criu=SimCriu(*made),
            cuda=SimCuda(*made),
            gpus=SimGpus(*made),
            hooks=SimHooks(*made),
            artifacts=SimArtifacts(*made),
            report=unseen,
            together=together,
        )

    async def _clean_up(self, operation: str) -> None:
        try:
            await SimArtifacts(self.machine, self.checks, operation, self.system.boot).clean(operation)
        except OSError:
            self.world.simulation.note("left", self.name, operation)
        finally:
            self._give_back(operation)

    def _give_back(self, operation: str) -> None:
        for target in [target for target, holder in self.machine.claims.items() if holder == operation]:
            del self.machine.claims[target]

    def _carry_out(self, handle: SimOperation, steps: Coroutine[Await, Any, Any]) -> None:
        handle.deaf = True  # a call that is cancelled ends what it began, and only then is over
        handle.on_cancel = partial(self._cancel, handle, steps)
        self._go_on(handle, steps)

    def _cancel(self, handle: SimOperation, steps: Coroutine[Await, Any, Any]) -> None:
        if not handle.ended and not handle.system_restarted:
            cancel(steps, Cancelled())
            handle.complete()

    def _go_on(self, handle: SimOperation, steps: Coroutine[Await, Any, Any]) -> None:
        if handle.ended:
            return
        operation = _operation_of(handle)
        if handle.system_restarted or self.world.boundary(self, operation):
            self.bury(steps)
            return
        self.machine.tick()
        try:
            pause = steps.send(None)
        except StopIteration as stop:
            handle.complete(stop.value)
        except (OperationError, UsageError, OSError) as error:
            self.checks.failed(operation, type(handle.effect).__name__, error)
            handle.fail(error)
        else:
            self.world.simulation.call_after(pause.ns, self._go_on, handle, steps)

    def bury(self, steps: Coroutine[Await, Any, Any]) -> None:
        """Keep what was killed: closed, it would run a ``finally``, which nothing does that is killed."""
        if inspect.getcoroutinestate(steps) == inspect.CORO_CREATED:
            steps.close()  # it had not begun, and Python warns of one that never does
        else:
            self._dead.append(steps)

    # What it says

    def look(self) -> None:
        """Look at what the tree published, and whether its books are right; called after every step."""
        system = self.system
        while self._seen < len(system.events):
            event = system.events[self._seen]
            self._seen += 1
            self._note(event)
        while self._failures < len(system.failures):
            failure = system.failures[self._failures]
            self._failures += 1
            what = f"{type(failure.error).__name__}: {failure.error}"
            self.world.violate("R4", f"{self.name}{failure.path} fails on {type(failure.cause).__name__}: {what}")
        if self.world.simulation.steps >= self._due and not system.crashed:
            self._due = self.world.simulation.steps + max(BOOKS_EVERY, 2 * len(system.tree.cells))
            books.books(system)

    def _note(self, event: object) -> None:
        match event:
            case OperationChanged(operation=operation, phase=phase):
                self.board.entered(operation, phase.value)
                self.world.entered(self, operation, phase)
            case OperationEnded(operation=operation, outcome=outcome):
                self.board.ended(event)
                self.world.ended(self, operation, outcome)
                self.system.tell(OPERATIONS, OperationOver(operation))
            case OperationClosed(operation=operation):
                self.board.closed(operation)
                self.checks.closed(operation)
                self._desks.pop(operation, None)
                for run in [each for each in self.machine.runs if each.operation == operation and not each.over]:
                    run.ending = False  # the object that held the tree is dropped: CRIU lets it run
                    run.abort()
            case OperationAside(operation=operation, text=text):
                self.world.violate("R7", f"operation {operation} on {self.name} is put aside: {text}")

    def _written(self, path: str, record: Any) -> None:
        above, _, name = path.rpartition("/")
        if above == OPERATIONS:
            self.checks.durable(name, record)
            self.world.recorded(self, name, record)

    # What callers ask for

    def begin(self, order: FreezeTree | ThawTree) -> Slot | None:
        """Ask for an operation, as the door does; None if nobody listens."""
        if self.system.crashed:
            return None
        known = known_of(order.plan)
        self.board.begin(known.asked, known.artifact, known.tier)
        try:
            return self.system.question(OPERATIONS, BeginOperation(known.asked, order))
        except (NoSuchActor, ActorStopped, MailboxFull):
            self.board.refused(known.asked.operation)
            return None

    def stop(self, operation: str) -> None:
        """Have an operation undone: its caller left."""
        if not self.system.crashed:
            if operation in self._claiming and not self.checks.of(operation).steps:
                self.checks.of(operation).withdrawn = True
            self.system.tell(OPERATIONS, StopOperation(operation, "its caller left"))

    def stop_all(self) -> None:
        """Tell the agent to end."""
        if not self.system.crashed:
            self.system.tell(OPERATIONS, GiveUpAll("the agent was told to end"))

    def outcome(self, operation: str) -> Outcome | None:
        """Return how an operation ended, as its records on the disk say."""
        ended = self.checks.of(operation).ended
        return getattr(ended, "outcome", None)


def _operation_of(handle: SimOperation) -> str:
    """Say which operation an effect is for."""
    match handle.effect:
        case Claim(asked=asked):
            return asked.operation
        case CleanUp(operation=operation):
            return operation
    return handle.path.name
