"""What must always hold of a simulated system, as checks that look at it from outside.

``watch(simulation)`` puts all of them behind every step of a simulation; one that does not hold raises
:class:`InvariantBroken`, which names the invariant (``INV-R1``), the system and what was seen. They read the tree and
change nothing, so a run with them and a run without them are the same run. What is checked of each cell is checked in
one pass over the cells (:func:`books`): with the simulated world's own checks this is what a step costs beside itself.

The checks know how the runtime keeps its books, and compare the books with what they are about: counters with what
really waits, the run queue with who has something to do, the tree with its own edges. What needs knowledge of the
messages (order, answers, causality) is a matter of the test that sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from iriscw._errors import InternalError
from iriscw.journal.port import JournalStatus
from iriscw.runtime.cell import ACTIVE, DRAINING, QUARANTINED, STOPPED, STOPPING, WAITING, Cell
from iriscw.runtime.envelope import FIRST_ANSWER, Envelope
from iriscw.runtime.operations import OperationPhase
from iriscw.testing.simulation import SimSystem, Simulation


class InvariantBroken(InternalError):
    """Something that must always hold does not."""


def _broken(invariant: str, system: SimSystem, what: str) -> InvariantBroken:
    return InvariantBroken(f"INV-{invariant} in {system.name!r}: {what}")


def books(system: SimSystem) -> None:
    """Check all that holds after every step, whatever the actors do: one pass over the cells, and a few totals.

    R1: every message and every answer is somewhere, and the reserved slots are those of the answers that wait. R3: no
    mailbox and no session holds more than its bound, and whoever can decide and has something to decide on stands in
    the run queue. R5: starts = stops + live; the tree has no orphans, and who is quarantined is counted. R6: one
    operation per path and key, each where its phase says. R7: a quarantined actor owns nothing that could still move.
    R9: the watermark is no higher than the disk, and what waits behind it rests on something not durable.

    Raises:
        InvariantBroken: one of them does not hold.
    """
    tree = system.tree
    running = _operations(system)
    ready = {id(cell) for cell in system.simulation.dispatcher.ready}
    appended = None if tree.crashed or tree.journal_changed else system.journal.appended
    queued = stashed = answers = live = quarantined = 0
    cells = tree.cells
    for path, cell in cells.items():
        status, parent = cell.status, cell.parent
        live += status < STOPPED  # who is quarantined is neither live nor gone, and its stop is counted
        if cell.path != path or status == STOPPED or (parent is not None and cells.get(parent.path) is not parent):
            raise _broken("R5", system, f"{cell!r} is kept as {path}, below {parent!r}")
        if parent is not None and (parent.children or {}).get(cell.spec.name) is not cell:
            raise _broken("R5", system, f"{cell!r} is not its parent's")
        if cell.mailbox or cell.parked or cell.stash or cell.reserved:
            waiting, aside, answers_waiting = _waiting(system, cell)
            queued += waiting
            stashed += aside
            answers += answers_waiting
        if (cell.mailbox or cell.scheduled) and id(cell) not in ready:
            _has_a_turn(system, cell)
        if status == QUARANTINED:
            quarantined += 1
            _idle_when_stopped(system, cell)
        mine = running.get(id(cell), 0) if running else 0
        if cell.operations or cell.running or mine:
            _operations_of(system, cell, mine)
        if appended is not None and cell.rests_on > appended:
            raise _broken("R9", system, f"{cell!r} rests on {cell.rests_on} of {appended} records")
    _accounting(system, queued, stashed, answers)
    if tree.starts != tree.stops + live:
        raise _broken("R5", system, f"starts are not stops + live: {system.statistics()}")
    if quarantined != tree.quarantined:
        raise _broken("R5", system, f"{quarantined} are quarantined, {tree.quarantined} counted")
    _gate(system)


def _accounting(system: SimSystem, queued: int, stashed: int, answers: int) -> None:
    tree = system.tree
    accounted = tree.delivered + tree.dead + tree.conflated + queued + stashed + tree.undelivered
    if tree.sent != accounted:
        raise _broken("R1", system, f"{tree.sent} messages sent, {accounted} accounted for: {system.statistics()}")
    accounted = tree.answers_delivered + answers + tree.answers_stale
    if tree.answers != accounted:
        raise _broken("R1", system, f"{tree.answers} answers, {accounted} accounted for: {system.statistics()}")


def _answers(queue: Iterable[Any] | None) -> int:
    return sum([type(item) is Envelope and item.kind >= FIRST_ANSWER for item in queue]) if queue else 0


def _waiting(system: SimSystem, cell: Cell) -> tuple[int, int, int]:
    """R1 and R3 of one cell; give how many messages wait, how many are stashed, and how many answers wait."""
    reserved = cell.reserved
    answers = _answers(cell.mailbox) + _answers(cell.parked)
    if reserved != answers:
        raise _broken("R1", system, f"{cell!r} reserves {reserved} slots for {answers}")
    aside = _answers(cell.stash)
    waiting = len(cell.mailbox or ()) + len(cell.parked or ()) - answers
    stashed = len(cell.stash or ()) - aside
    if waiting + stashed > cell.spec.capacity:
        raise _broken("R3", system, f"{cell!r} holds {waiting + stashed} of {cell.spec.capacity} messages")
    return waiting, stashed, answers + aside


def _has_a_turn(system: SimSystem, cell: Cell) -> None:
    """R3 of a cell that does not stand in the run queue."""
    if cell.status in (ACTIVE, DRAINING) and not system.crashed:
        if cell.mailbox:
            raise _broken("R3", system, f"{cell!r} has mail and no turn")
        if cell.scheduled:
            raise _broken("R3", system, f"{cell!r} believes that it has a turn")


def _idle_when_stopped(system: SimSystem, cell: Cell) -> None:
    """R7: a quarantined actor owns nothing that could still move."""
    owns = (cell.mailbox, cell.timers, cell.operations, cell.requests, cell.slots, cell.children)
    if any(owns):
        raise _broken("R7", system, f"{cell!r} is quarantined and still owns {owns}")


def _operations(system: SimSystem) -> dict[int, int]:
    """R6 of the tree's own lists; give how many operations each cell has running, by its identity."""
    tree = system.tree
    counts: dict[int, int] = {}
    for slot, operation in tree.running.items():
        phase, owner = operation.phase, id(operation.cell)
        if operation.slot != slot or (phase is not OperationPhase.RUNNING and phase is not OperationPhase.CANCELLING):
            raise _broken("R6", system, f"{operation!r} is kept as running at {slot}")
        counts[owner] = counts.get(owner, 0) + 1
    for slot, operation in tree.queued.items():
        if slot not in tree.running or operation.phase is not OperationPhase.QUEUED or not operation.wanted:
            raise _broken("R6", system, f"{operation!r} waits at {slot} for nothing")
    return counts


def _operations_of(system: SimSystem, cell: Cell, running: int) -> None:
    """R6 and R3 of one cell's operations."""
    if cell.running != running:
        raise _broken("R6", system, f"{cell!r} counts {cell.running} operations of {running}")
    for operation in (cell.operations or {}).values():
        if not operation.wanted:
            raise _broken("R6", system, f"{cell!r} still has a cancelled operation")
        within = operation.unseen <= operation.inbound and operation.promised <= operation.outbound
        if not (within or not operation.session):
            raise _broken("R3", system, f"{operation!r} is past its bounds")


def _gate(system: SimSystem) -> None:
    """R9: the watermark is no higher than the disk, and what waits behind it rests on something not durable."""
    tree = system.tree
    if tree.durable > system.disk.last:
        raise _broken("R9", system, f"watermark {tree.durable}, disk {system.disk.last}")
    if tree.crashed or tree.journal_changed:
        return
    appended = system.journal.appended
    for rests_on, *_ in tree._held:
        if not tree.durable < rests_on <= appended:
            raise _broken("R9", system, f"an output waits for {rests_on}, durable are {tree.durable}")


def quiet_watch(system: SimSystem) -> Callable[[], bool]:
    """Return the check for R10: a journal that is not ready gets nothing, so what is uncommitted stays bounded.

    It is to be called after every step, and tells whether anything was appended since the last time.
    """
    takes = JournalStatus.READY
    boot, moves = system.boot, system.journal.moves
    appended, ready = system.journal.appended, system.journal.status is takes

    def check() -> bool:
        nonlocal boot, moves, appended, ready
        journal = system.journal
        if journal.moves == moves and system.boot == boot:
            return False
        now = journal.appended
        more = now != appended
        if more:
            if not ready and boot == system.boot:
                raise _broken("R10", system, f"{now - appended} entries given to a journal that takes none")
            appended = now
        boot, moves, ready = system.boot, journal.moves, journal.status is takes
        return more

    return check


def watch(simulation: Simulation) -> None:
    """Check everything after every step, in the systems that the simulation has now.

    Raises (from the simulation's ``step``):
        InvariantBroken: something does not hold.
    """
    quiet = [quiet_watch(system) for system in simulation.systems]

    def check() -> None:
        for system in simulation.systems:
            books(system)
        for holds_too in quiet:
            holds_too()

    simulation.checkers.append(check)


def settled(system: SimSystem) -> None:
    """R5: at rest nobody is between two states. For the end of a run, once the world answers and time has passed."""
    for cell in system.tree.cells.values():
        at_rest = cell.status in (ACTIVE, QUARANTINED)
        if not (at_rest):
            raise _broken("R5", system, f"{cell!r} never got out of a {'start' if cell.status == WAITING else 'stop'}")
        if not (not cell.mailbox and not cell.parked):
            raise _broken("R1", system, f"{cell!r} never saw {cell.mailbox or cell.parked}")
        if not (cell.status != STOPPING):
            raise _broken("R5", system, f"{cell!r} never stopped")
    if not (system.tree.held == 0):
        raise _broken("R9", system, f"{system.tree.held} outputs never left")


__all__ = ["InvariantBroken", "books", "quiet_watch", "settled", "watch"]
