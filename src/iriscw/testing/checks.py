"""What must always hold of a simulated system, as checks that look at it from outside.

``watch(simulation)`` puts all of them behind every step of a simulation; one that does not hold raises
:class:`InvariantBroken`, which names the invariant (``INV-R1``), the system and what was seen. Each check is also a
function of its own. They read the tree and change nothing, so a run with them and a run without them are the same run.

The checks know how the runtime keeps its books, and compare the books with what they are about: counters with what
really waits, the run queue with who has something to do, the tree with its own edges. What needs knowledge of the
messages (order, answers, causality) is a matter of the test that sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from iriscw.errors import InternalError
from iriscw.journal.port import JournalStatus
from iriscw.runtime.cell import ACTIVE, DRAINING, QUARANTINED, STOPPED, STOPPING, WAITING, Cell
from iriscw.runtime.envelope import FIRST_ANSWER, Envelope
from iriscw.runtime.operations import Phase
from iriscw.testing.simulation import SimSystem, Simulation


class InvariantBroken(InternalError):
    """Something that must always hold does not."""


def _broken(invariant: str, system: SimSystem, what: str) -> InvariantBroken:
    return InvariantBroken(f"INV-{invariant} in {system.name!r}: {what}")


def _answers(queue: Iterable[Any] | None) -> int:
    return sum(type(item) is Envelope and item.kind >= FIRST_ANSWER for item in queue or ())


def accounting(system: SimSystem) -> None:
    """R1: every message and every answer is somewhere, and the reserved slots are those of the answers that wait."""
    seen = system.statistics()
    accounted = seen.delivered + seen.dead + seen.conflated + seen.queued + seen.stashed + seen.undelivered
    if not (seen.sent == accounted):
        raise _broken("R1", system, f"{seen.sent} messages sent, {accounted} accounted for: {seen}")
    accounted = seen.answers_delivered + seen.answers_queued + seen.answers_stale
    if not (seen.answers == accounted):
        raise _broken("R1", system, f"{seen.answers} answers, {accounted} accounted for: {seen}")
    for cell in system.tree.cells.values():
        waiting = _answers(cell.mailbox) + _answers(cell.parked)
        if not (cell.reserved == waiting):
            raise _broken("R1", system, f"{cell!r} reserves {cell.reserved} slots for {waiting}")


def bounds(system: SimSystem) -> None:
    """R3: no mailbox and no session holds more than its bound."""
    for cell in system.tree.cells.values():
        held = sum(len(queue or ()) for queue in (cell.mailbox, cell.parked, cell.stash)) - cell.reserved
        held -= _answers(cell.stash)
        if not (held <= cell.spec.capacity):
            raise _broken("R3", system, f"{cell!r} holds {held} of {cell.spec.capacity} messages")
        for operation in (cell.operations or {}).values():
            within = operation.unseen <= operation.inbound and operation.promised <= operation.outbound
            if not (within or not operation.session):
                raise _broken("R3", system, f"{operation!r} is past its bounds")


def wakefulness(system: SimSystem) -> None:
    """R3: whoever can decide and has something to decide on stands in the run queue."""
    ready = {id(cell) for cell in system.simulation.dispatcher.ready}
    for cell in system.tree.cells.values():
        if cell.status in (ACTIVE, DRAINING) and not system.crashed:
            queued = id(cell) in ready
            if not (queued or not cell.mailbox):
                raise _broken("R3", system, f"{cell!r} has mail and no turn")
            if not (queued or not cell.scheduled):
                raise _broken("R3", system, f"{cell!r} believes that it has a turn")


def family(system: SimSystem) -> None:
    """R5: starts = stops + live; the tree has no orphans, and who is quarantined is counted."""
    tree = system.tree
    seen = system.statistics()
    if not (seen.starts == seen.stops + seen.live):
        raise _broken("R5", system, f"starts are not stops + live: {seen}")
    quarantined = 0
    for path, cell in tree.cells.items():
        if not (cell.path == path and cell.status != STOPPED):
            raise _broken("R5", system, f"{cell!r} is kept as {path}")
        quarantined += cell.status == QUARANTINED
        parent = cell.parent
        if parent is not None:
            if tree.cells.get(parent.path) is not parent:
                raise _broken("R5", system, f"{cell!r} outlives its parent")
            if (parent.children or {}).get(path.name) is not cell:
                raise _broken("R5", system, f"{cell!r} is not its parent's")
        _idle_when_stopped(system, cell)
    if not (quarantined == tree.quarantined):
        raise _broken("R5", system, f"{quarantined} are quarantined, {tree.quarantined} counted")


def _idle_when_stopped(system: SimSystem, cell: Cell) -> None:
    """R7: a quarantined actor owns nothing that could still move."""
    if cell.status == QUARANTINED:
        owns = (cell.mailbox, cell.timers, cell.operations, cell.requests, cell.slots, cell.children)
        if any(owns):
            raise _broken("R7", system, f"{cell!r} is quarantined and still owns {owns}")


def operations(system: SimSystem) -> None:
    """R6: one operation per path and key, each where its phase says, and the cells' counts are right."""
    tree = system.tree
    counts: dict[int, int] = {}
    for slot, operation in tree.running.items():
        right = operation.slot == slot and operation.phase in (Phase.RUNNING, Phase.CANCELLING)
        if not (right):
            raise _broken("R6", system, f"{operation!r} is kept as running at {slot}")
        counts[id(operation.cell)] = counts.get(id(operation.cell), 0) + 1
    for slot, operation in tree.queued.items():
        right = slot in tree.running and operation.phase is Phase.QUEUED and operation.wanted
        if not (right):
            raise _broken("R6", system, f"{operation!r} waits at {slot} for nothing")
    for cell in tree.cells.values():
        running = counts.get(id(cell), 0)
        if not (cell.running == running):
            raise _broken("R6", system, f"{cell!r} counts {cell.running} operations of {running}")
        current = (cell.operations or {}).values()
        if not (all(each.wanted for each in current)):
            raise _broken("R6", system, f"{cell!r} still has a cancelled operation")


def gate(system: SimSystem) -> None:
    """R9: the watermark is no higher than the disk, and what waits behind it rests on something not durable."""
    tree = system.tree
    if not (tree.durable <= system.disk.last):
        raise _broken("R9", system, f"watermark {tree.durable}, disk {system.disk.last}")
    if tree.crashed or tree.journal_changed:
        return
    for rests_on, *_ in tree._held:
        right = tree.durable < rests_on <= system.journal.appended
        if not (right):
            raise _broken("R9", system, f"an output waits for {rests_on}, durable are {tree.durable}")
    for cell in tree.cells.values():
        right = cell.rests_on <= system.journal.appended
        if not (right):
            raise _broken("R9", system, f"{cell!r} rests on {cell.rests_on} of {system.journal.appended} records")


def quiet_watch(system: SimSystem) -> Callable[[], None]:
    """Give the check for R10: a journal that is not ready gets nothing, so what is uncommitted stays bounded."""
    before = (system.boot, system.journal.appended, system.journal.status is JournalStatus.READY)

    def check() -> None:
        nonlocal before
        boot, appended, ready = before
        now = system.journal.appended
        if not ready and boot == system.boot and now != appended:
            raise _broken("R10", system, f"{now - appended} entries given to a journal that takes none")
        before = (system.boot, now, system.journal.status is JournalStatus.READY)

    return check


ALWAYS: tuple[Callable[[SimSystem], None], ...] = (
    accounting,
    bounds,
    wakefulness,
    family,
    operations,
    gate,
)
"""Checks that hold after every step, whatever the actors do."""


def watch(simulation: Simulation) -> None:
    """Check everything after every step, in the systems that the simulation has now.

    Raises (from the simulation's ``step``):
        InvariantBroken: something does not hold.
    """
    quiet = [quiet_watch(system) for system in simulation.systems]

    def check() -> None:
        for system in simulation.systems:
            for holds in ALWAYS:
                holds(system)
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


__all__ = [
    "ALWAYS",
    "InvariantBroken",
    "accounting",
    "bounds",
    "family",
    "gate",
    "operations",
    "quiet_watch",
    "settled",
    "wakefulness",
    "watch",
]
