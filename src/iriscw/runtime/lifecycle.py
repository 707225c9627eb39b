"""Starting, stopping and restarting: what the runtime does with the verdicts of supervision.

Theory of operation. Everything here is done in small pieces on the dispatcher's control queue, never in the middle of
another actor's decision, so that a supervisor with ten thousand children costs nobody a long wait.

Starting is depth first: a cell gets its state, its children start in order, then ``resume`` tells what the state owes
to the world. Until that is done messages queue up.

Stopping a cell stops its children first, last started first stopped, each within its budget; then its effects are
cancelled and awaited; then it is gone: what still waits becomes dead letters, whoever asked is told ``ActorStopped``,
watchers get ``Terminated``. When the budget is over the rest is forced, and effects that still run are left to end
by themselves with their slot taken.

Restarting is suspending (the children stop; timers, effects, requests and watches end; the mailbox stays) and starting
again after the backoff, one incarnation later. Under the group strategies the affected siblings are suspended in
reverse order and started in order. A second failure in the meantime takes the place of the first restart and covers
what both affect.

An incarnation ends once. From its failure until the next one starts it is *over*, and its children are about to be
stopped: one that fails or ends meanwhile counts against no budget and does not come back. Else the children of the dead
would use up the budget of the living, or fail their supervisor a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs

from iriscw._errors import (
    ActorRestarted,
    ActorStopped,
    InvalidArgument,
    InvalidDecision,
    IriscwError,
    JournalCorrupt,
    RestartsExhausted,
    as_failure,
)
from iriscw.runtime.behavior import ChildSpec, Restart, Shutdown, Strategy
from iriscw.runtime.cell import ACTIVE, DRAINING, QUARANTINED, STOPPED, STOPPING, WAITING, Cell
from iriscw.runtime.envelope import FIRST_ANSWER, Envelope, EnvelopeKind, Slot
from iriscw.runtime.inspection import failure_text
from iriscw.runtime.interpreter import Unavailable, carry_out, unstash
from iriscw.runtime.supervision import AfterExit, History, affected, judge
from iriscw.runtime.tree import FailureReport
from iriscw.runtime.vocabulary import ROOT, ActorPath, ChildFailed, Stash, StopReason, Terminated

if TYPE_CHECKING:
    from iriscw.runtime.dispatcher import Dispatcher
    from iriscw.runtime.tree import Tree

UNLOADED = object()
"""The state of a durable cell whose records have to be read again."""


@attrs.define(eq=False)
class StopChain:
    """The children that still have to stop, last one first, and what comes after."""

    children: list[Cell]
    reason: StopReason | None
    """Why the cell itself stops; None while it is only suspended."""
    recovery: Recovery | None = None


@attrs.define(eq=False)
class Recovery:
    """A restart under way: cells to suspend in reverse order, then to start in order."""

    cells: list[Cell]
    delay: int
    next: int
    superseded: bool = False


def _without_stash(owed: Iterable[Any]) -> tuple[Any, ...]:
    """Return what ``resume`` owes; there is no message to stash while an actor starts."""
    commands = tuple(owed)
    if any(type(command) is Stash for command in commands):
        raise InvalidDecision("resume cannot stash: there is no message")
    return commands


class Lifecycle:
    """Carries out the lives of the dispatcher's cells."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    # Starting

    def plant(self, tree: Tree, spec: ChildSpec) -> Cell:
        """Make the root of a tree and start it."""
        root = Cell(tree, ROOT, None, spec, 0)
        root.state = UNLOADED
        tree.root = root
        tree.cells[ROOT] = root
        tree.starts += 1
        root.scheduled = True
        self.dispatcher.control.append((self.start, (root, 0)))
        return root

    def spawn(self, parent: Cell, spec: ChildSpec) -> Cell:
        """Make a child; it starts before any ordinary message is delivered."""
        tree = parent.tree
        name = spec.name
        path = ActorPath(f"/{name}" if parent.parent is None else f"{parent.path}/{name}")
        parent.births += 1
        cell = Cell(tree, path, parent, spec, parent.births)
        cell.rests_on = parent.rests_on
        tree.cells[path] = cell
        if parent.children is None:
            parent.children = {}
        parent.children[name] = cell
        tree.starts += 1
        behavior = spec.behavior
        control = self.dispatcher.control
        # Behind others it waits its turn, so that failures are judged in the order in which they happen.
        if behavior.starts_at_once and not control:
            try:
                cell.state = behavior.initial()
            except BaseException as error:
                cell.scheduled = True
                control.append((self.failed, (cell, None, as_failure(error))))
            else:
                cell.started_at = self.dispatcher.now
                cell.status = ACTIVE
        else:
            cell.state = UNLOADED
            cell.scheduled = True
            control.append((self.start, (cell, cell.incarnation)))
        return cell

    def start(self, cell: Cell, incarnation: int) -> None:
        """Give a cell its state and start its children; ``resume`` follows them."""
        if cell.status != WAITING or cell.incarnation != incarnation or cell.tree.crashed:
            return
        dispatcher = self.dispatcher
        cell.started_at = dispatcher.now
        if cell.over:
            cell.over = False
        behavior = cell.behavior
        try:
            if behavior.evolve is None:
                cell.state = behavior.initial()
            elif cell.state is UNLOADED:
                cell.state = self._load(cell)
        except BaseException as error:
            self.failed(cell, None, as_failure(error))
            return
        control = dispatcher.control
        before = len(control)
        for spec in behavior.children:
            self.spawn(cell, spec)
        children = [control.pop() for _ in range(len(control) - before)]
        control.appendleft((self.finish_start, (cell, incarnation)))
        control.extendleft(children)

    def _load(self, cell: Cell) -> Any:
        tree = cell.tree
        evolve = cell.behavior.evolve
        assert evolve is not None
        if tree.journal is None:
            raise InvalidArgument(f"{cell.path} is durable, but the system has no journal")
        state = cell.behavior.initial()
        for number, fact in enumerate(tree.journal.read(cell.path)):
            try:
                evolve(state, fact)
            except BaseException as error:
                raise JournalCorrupt(
                    f"record {number} of {cell.path} ({type(fact).__name__}) cannot be applied"
                ) from as_failure(error)
        cell.rests_on = max(cell.rests_on, tree.journal.appended)
        return state

    def no_snapshot(self, cell: Cell, error: Exception) -> None:
        """Report that an actor could not be compacted: its records stay, and it is tried again after as many more."""
        tree = cell.tree
        tree.failures += 1
        self._remember(cell, error)
        tree.publish(FailureReport(tree.name, cell.path, cell.incarnation, None, error, "none"))

    def unload(self, cell: Cell) -> None:
        """Have the state read from the journal again: a record was half applied."""
        cell.state = UNLOADED

    def finish_start(self, cell: Cell, incarnation: int) -> None:
        """Open the cell for messages and carry out what its state owes, unless a child has failed it already."""
        if cell.status != WAITING or cell.incarnation != incarnation or cell.over or cell.tree.crashed:
            return
        cell.status = ACTIVE
        resume = cell.behavior.resume
        if resume is not None:
            context = self.dispatcher.context
            context.cell = cell
            try:
                carry_out(cell.tree, cell, _without_stash(resume(cell.state, context)), None)
            except BaseException as error:
                self.failed(cell, None, as_failure(error))
                return
        if cell.status == ACTIVE:
            cell.scheduled = False
            if cell.mailbox:
                self.dispatcher.schedule(cell)

    def revive(self, cell: Cell) -> None:
        """Start a quarantined cell with a fresh budget."""
        tree = cell.tree
        tree.starts += 1
        tree.quarantined -= 1
        cell.failures = cell.group_failures = None
        cell.incarnation += 1
        cell.rng = None
        cell.status = WAITING
        cell.state = UNLOADED
        cell.scheduled = True
        self.dispatcher.control.append((self.start, (cell, cell.incarnation)))

    # Failing

    def failed(self, cell: Cell, cause: Any, error: Exception) -> None:
        """Take an exception of a decision to the parent, and do what supervision says."""
        tree = cell.tree
        if cell.status >= STOPPED or tree.crashed:
            return
        if isinstance(error, Unavailable):
            error = tree.refusal()
        tree.failures += 1
        parent = cell.parent
        if cell.status in (DRAINING, STOPPING):
            self._report(cell, cause, error, AfterExit.STOP)
            if cell.status == DRAINING:
                self._enter_stopping(cell, StopReason.FAILED)
            return
        if parent is None:
            self._report(cell, cause, error, AfterExit.ESCALATE)
            tree.lose(error)
            return
        if self._is_over(parent):
            self._report(cell, cause, error, AfterExit.STOP)
            self.stop(cell, StopReason.FAILED)
            return
        directive = self._judge(cell, parent, failed=True)
        self._report(cell, cause, error, directive.verdict)
        if ChildFailed in parent.behavior.on and parent.status <= DRAINING:
            report = ChildFailed(cell.path, cell.incarnation, cause, error, directive.verdict is AfterExit.QUARANTINE)
            tree.note(parent, report, cell.rests_on)
        self._block(cell)
        match directive.verdict:
            case AfterExit.RESTART:
                self._recover(cell, parent, directive.delay)
            case AfterExit.STOP:
                self.stop(cell, StopReason.FAILED)
            case AfterExit.QUARANTINE:
                self.stop(cell, StopReason.QUARANTINED)
            case AfterExit.ESCALATE:
                exhausted = RestartsExhausted(f"{cell.path} failed too often")
                exhausted.__cause__ = error
                self.failed(parent, cause, exhausted)

    def _judge(self, cell: Cell, parent: Cell, *, failed: bool) -> Any:
        supervision = parent.behavior.supervision
        if supervision.strategy is Strategy.ONE_FOR_ONE:
            if cell.failures is None:
                cell.failures = History()
            history = cell.failures
        else:
            if parent.group_failures is None:
                parent.group_failures = History()
            history = parent.group_failures
        context = self.dispatcher.context
        deciding = getattr(context, "cell", cell)
        context.cell = parent
        draw = context.rng.random()
        context.cell = deciding
        now = self.dispatcher.now
        return judge(cell.spec, supervision, history, failed=failed, now=now, lived=now - cell.started_at, draw=draw)

    def _report(self, cell: Cell, cause: Any, error: Exception, verdict: AfterExit) -> None:
        self._remember(cell, error)
        cell.tree.publish(FailureReport(cell.tree.name, cell.path, cell.incarnation, cause, error, verdict.value))

    def _remember(self, cell: Cell, error: Exception) -> None:
        """Keep what an actor failed of for who inspects the tree: as a text, since an error holds on to its frames."""
        cell.failure = failure_text(error)
        cell.failed_at = self.dispatcher.now

    def _block(self, cell: Cell) -> None:
        cell.status = WAITING
        cell.scheduled = True
        cell.over = True

    @staticmethod
    def _is_over(supervisor: Cell) -> bool:
        """Whether all below it is about to be stopped, so that nobody judges what fails there."""
        return supervisor.over or supervisor.status >= STOPPING

    def ended(self, cell: Cell) -> None:
        """A cell stopped itself: a permanent one comes back, any other is gone."""
        parent = cell.parent
        if parent is None:
            cell.tree.closing = True
            self.stop(cell, StopReason.NORMAL)
            return
        if cell.status != ACTIVE or cell.spec.restart is not Restart.PERMANENT or self._is_over(parent):
            self.stop(cell, StopReason.NORMAL)
            return
        directive = self._judge(cell, parent, failed=False)
        if directive.verdict is AfterExit.RESTART:
            self._block(cell)
            self._recover(cell, parent, directive.delay)
        elif directive.verdict is AfterExit.ESCALATE:
            self._block(cell)
            self.failed(parent, None, RestartsExhausted(f"{cell.path} ended too often"))
        else:
            self.stop(cell, StopReason.QUARANTINED)

    # Restarting

    def _recover(self, cell: Cell, parent: Cell, delay: int) -> None:
        strategy = parent.behavior.supervision.strategy
        children = parent.children or {}
        live = [name for name, child in children.items() if child.status <= WAITING]
        cells = [children[name] for name in affected(strategy, live, cell.path.name)]
        if strategy is not Strategy.ONE_FOR_ONE:
            older: Recovery | None = parent.recovery
            if older is not None:
                older.superseded = True
                # By birth: one of the older restart may have been stopped since, and another have its name.
                both = dict.fromkeys(one.birth for one in (*older.cells, *cells))
                cells = [child for child in children.values() if child.birth in both and child.status <= WAITING]
        # Temporary siblings go down with their group and do not come back, as in Erlang/OTP.
        for sibling in reversed(cells):
            if sibling is not cell and sibling.spec.restart is Restart.TEMPORARY:
                self.stop(sibling, StopReason.NORMAL)
        cells = [child for child in cells if child.status <= WAITING]
        recovery = Recovery(cells, delay, len(cells) - 1)
        if strategy is not Strategy.ONE_FOR_ONE:
            parent.recovery = recovery
        self.suspend_next(recovery)

    def suspend_next(self, recovery: Recovery) -> None:
        """Suspend the next cell of a recovery, or begin its wait when all are."""
        if recovery.superseded:
            return
        while recovery.next >= 0:
            cell = recovery.cells[recovery.next]
            if cell.tree.crashed:
                return
            recovery.next -= 1
            if cell.status <= WAITING:
                self._suspend(cell, recovery)
                return
        dispatcher = self.dispatcher
        if recovery.delay == 0:
            dispatcher.control.append((self.start_again, (recovery,)))
        else:
            dispatcher.timers.add(dispatcher.now + recovery.delay, self.start_again, (recovery,), 0)

    def _suspend(self, cell: Cell, recovery: Recovery) -> None:
        self._block(cell)
        self._abandon(cell, ActorRestarted(f"{cell.path} was restarted before it answered"))
        cell.incarnation += 1
        cell.rng = None
        if cell.recovery is not None:
            cell.recovery.superseded = True
        cell.recovery = cell.group_failures = None
        unstash(cell)
        if cell.pending_stop is not None:
            cell.pending_stop.recovery = recovery
            return
        cell.pending_stop = StopChain(list((cell.children or {}).values()), None, recovery)
        self.dispatcher.control.append((self.continue_stop, (cell,)))

    def start_again(self, recovery: Recovery) -> None:
        """Start what a recovery has suspended, in order."""
        if recovery.superseded:
            return
        control = self.dispatcher.control
        for cell in recovery.cells:
            if cell.parent is not None and cell.parent.recovery is recovery:
                cell.parent.recovery = None
            if cell.status == WAITING and not cell.tree.crashed:
                cell.tree.restarts += 1
                control.append((self.start, (cell, cell.incarnation)))

    # Stopping

    def stop(self, cell: Cell, reason: StopReason) -> None:
        """Begin to stop a cell; a stop that is under way goes on."""
        if cell.status in (DRAINING, STOPPING, STOPPED):
            return
        if cell.status == QUARANTINED:
            cell.tree.quarantined -= 1
            self._remove(cell)
            return
        dispatcher = self.dispatcher
        budget = cell.spec.shutdown_budget
        dispatcher.timers.add(dispatcher.now + budget, self.force_stop, (cell, cell.incarnation), 0)
        drains = cell.status == ACTIVE and cell.spec.shutdown is Shutdown.STOP_AFTER_MAILBOX
        if drains and (cell.mailbox or cell.parked) and reason is StopReason.NORMAL:
            cell.status = DRAINING
            return
        self._enter_stopping(cell, reason)

    def drained(self, cell: Cell) -> None:
        """The mailbox of a draining cell is empty: go on with its stop, unless the journal holds some of it."""
        if cell.parked:
            return
        self._enter_stopping(cell, StopReason.NORMAL)

    def _enter_stopping(self, cell: Cell, reason: StopReason) -> None:
        cell.status = STOPPING
        cell.scheduled = True
        if cell.pending_stop is None:
            cell.pending_stop = StopChain(list((cell.children or {}).values()), reason)
        else:
            cell.pending_stop.reason = reason
            recovery: Recovery | None = cell.pending_stop.recovery
            cell.pending_stop.recovery = None
            if recovery is not None:
                # It was being restarted with others, and they still are.
                self.dispatcher.control.append((self.suspend_next, (recovery,)))
        self.dispatcher.control.append((self.continue_stop, (cell,)))

    def continue_stop(self, cell: Cell) -> None:
        """Stop the next child, or finish when none is left."""
        chain: StopChain | None = cell.pending_stop
        if chain is None or cell.tree.crashed:
            return
        while chain.children:
            child = chain.children[-1]
            if cell.children is None or cell.children.get(child.path.name) is not child:
                chain.children.pop()
                continue
            if child.status not in (DRAINING, STOPPING):
                self.stop(child, StopReason.NORMAL)
            if child.status < STOPPED:
                return
        if cell.children:
            # Spawned while it was stopping (by a draining mailbox): they stop as well.
            chain.children = list(cell.children.values())
            self.dispatcher.control.append((self.continue_stop, (cell,)))
            return
        if chain.reason is None:
            cell.pending_stop = None
            recovery = chain.recovery
            if recovery is not None:
                self.suspend_next(recovery)
            return
        self._cancel_operations(cell)
        if cell.running == 0:
            self._finish(cell, chain.reason)

    def force_stop(self, cell: Cell, incarnation: int) -> None:
        """The budget is over: stop what is left at once."""
        if cell.status not in (DRAINING, STOPPING) or cell.incarnation != incarnation or cell.tree.crashed:
            return
        chain = cell.pending_stop
        reason = chain.reason if chain is not None and chain.reason is not None else StopReason.NORMAL
        for child in reversed(list((cell.children or {}).values())):
            if child.status == QUARANTINED:
                self.stop(child, StopReason.NORMAL)
            else:
                child.status = STOPPING
                self.force_stop(child, child.incarnation)
        self._cancel_operations(cell)
        self._finish(cell, reason)

    def _cancel_operations(self, cell: Cell) -> None:
        operations = cell.operations
        cell.operations = None
        for operation in (operations or {}).values():
            cell.tree.withdraw(operation)

    def _abandon(self, cell: Cell, error: IriscwError) -> None:
        """End what this incarnation has under way: timers, effects, requests, watches, unanswered questions."""
        tree = cell.tree
        for _ in cell.timers or ():
            self.dispatcher.timer_cancelled()
        cell.timers = None
        self._cancel_operations(cell)
        for slot in (cell.requests or {}).values():
            tree.give_up(slot)
        cell.requests = None
        for path in cell.watching or ():
            target = tree.cells.get(path)
            if target is not None and target.watchers is not None:
                target.watchers.pop(cell.path, None)
        cell.watching = None
        slots = cell.slots
        cell.slots = None
        for slot in (slots or {}).values():
            tree.fill(slot, None, error, tree.news)

    def _bury(self, cell: Cell) -> None:
        """Turn what still waits into dead letters, and tell those who asked."""
        tree = cell.tree
        error = ActorStopped(f"{cell.path} stopped before it answered")
        for queue in (cell.stash, cell.parked, cell.mailbox):
            for item in queue or ():
                if type(item) is Envelope and item.kind >= FIRST_ANSWER:
                    tree.answers_stale += 1
                    continue
                tree.dead += 1
                if type(item) is Slot:
                    tree.disown(item, error)
        cell.mailbox = cell.stash = cell.parked = cell.conflated = None
        cell.reserved = cell.stashed_answers = 0
        cell.set_room()
        tree.parked.pop(cell.path, None)

    def _finish(self, cell: Cell, reason: StopReason) -> None:
        tree = cell.tree
        quarantined = reason is StopReason.QUARANTINED
        cell.status = QUARANTINED if quarantined else STOPPED
        cell.pending_stop = None
        self._abandon(cell, ActorStopped(f"{cell.path} stopped before it answered"))
        self._bury(cell)
        tree.stops += 1
        watchers = cell.watchers or {}
        cell.watchers = None
        parent = cell.parent
        message = Terminated(cell.path, reason)
        for path, generation in watchers.items():
            watcher = tree.cells.get(path)
            if watcher is not None:
                tree.answer(
                    watcher,
                    Envelope(EnvelopeKind.WATCH, message, cell.path, generation, watcher.incarnation, tree.news),
                )
        if (
            parent is not None
            and parent.path not in watchers
            and parent.status <= DRAINING
            and parent.pending_stop is None
            and parent.rules.answers(Terminated)
        ):
            tree.note(parent, message, tree.news)
        if quarantined:
            tree.quarantined += 1
        else:
            self._remove(cell)
        if parent is not None and parent.pending_stop is not None:
            self.dispatcher.control.append((self.continue_stop, (parent,)))

    def _remove(self, cell: Cell) -> None:
        tree = cell.tree
        cell.status = STOPPED
        cell.state = None
        tree.cells.pop(cell.path, None)
        parent = cell.parent
        if parent is None:
            tree.stopped = True
            tree.edge.wake()
        elif parent.children is not None:
            parent.children.pop(cell.path.name, None)
