"""The tree: one crash domain. Its cells, its journal, its outputs, its counters.

One dispatcher can host many trees (in a simulation: a controller, workers, agents); each has its own disk, clock offset
and seed, and can crash alone. Trees share nothing: they talk through effects and sessions only.

Output gating. A cell knows the last record that its state may depend on (``rests_on``); messages carry that mark from
cell to cell for as long as the record is not durable. What leaves the process (the start of an effect, a reply to the
host, a fed item, an event) is held until the journal's watermark has passed the mark of the cell it comes from.
Messages inside never wait, and an output that rests on nothing uncommitted leaves at once.

A full disk. Nobody knows when the watermark moves again, so who waits for an answer is told so at once
(``OutcomePending``), and so is whoever asks for one meanwhile. All other outputs stay held until there is room.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from iriscw._errors import DispatcherBug, JournalFull, JournalLost, JournalUnavailable, OutcomePending
from iriscw.runtime.cell import STOPPED, Cell
from iriscw.runtime.envelope import Envelope, EnvelopeKind, Slot
from iriscw.runtime.operations import Edge, Operation, OperationPhase
from iriscw.runtime.vocabulary import ActorPath, Closed, Completed, Failed, Key, Replied, RequestFailed

if TYPE_CHECKING:
    from iriscw.runtime.dispatcher import Dispatcher


class JournalPort(Protocol):
    """What the runtime needs of a journal; :mod:`iriscw.journal.port` has the whole contract."""

    @property
    def appended(self) -> int: ...
    @property
    def durable(self) -> int: ...
    @property
    def status(self) -> Any: ...
    @property
    def trouble(self) -> str: ...
    def append(self, path: str, records: Any) -> int: ...
    def forget(self, path: str) -> int: ...
    def snapshot(self, path: str, records: Any) -> int: ...
    def read(self, path: str) -> list[Any]: ...


@attrs.frozen
class FailureReport:
    """A decision raised: given to the system's listeners, whatever supervision makes of it."""

    system: str
    path: ActorPath
    incarnation: int
    cause: Any
    """The message; None if the actor failed while it started."""
    error: Exception
    verdict: str
    """``restart``, ``stop``, ``quarantine``, ``escalate``; ``none`` if it goes on, because only its snapshot failed."""


@attrs.frozen
class TreeStatistics:
    """Counters of one system since it started. ``sent`` equals the sum of what became of it (INV-R1)."""

    live: int
    starts: int
    stops: int
    restarts: int
    quarantined: int
    failures: int
    sent: int
    delivered: int
    queued: int
    stashed: int
    dead: int
    undelivered: int
    conflated: int
    answers: int
    answers_delivered: int
    answers_queued: int
    answers_stale: int
    operations: int
    held: int
    events: int
    timers: int
    slow_turns: int
    slowest_turn_ns: int
    slowest_actor: str


class Tree:
    """The actors of one system and all that belongs to them."""

    __slots__ = (
        "_held",
        "_serial",
        "answers",
        "answers_delivered",
        "answers_stale",
        "cells",
        "closing",
        "conflated",
        "crashed",
        "dead",
        "delivered",
        "dispatcher",
        "durable",
        "edge",
        "events",
        "failures",
        "fatal",
        "full",
        "journal",
        "journal_changed",
        "name",
        "parked",
        "quarantined",
        "queued",
        "restarts",
        "root",
        "running",
        "seed",
        "sent",
        "slow_turns",
        "slowest_actor",
        "slowest_turn",
        "starts",
        "stopped",
        "stops",
        "timers_set",
        "trace",
        "undelivered",
        "wall_offset",
    )

    def __init__(
        self, dispatcher: Dispatcher, edge: Edge, *, name: str, seed: str, journal: JournalPort | None
    ) -> None:
        self.dispatcher = dispatcher
        self.edge = edge
        self.name = name
        self.seed = seed
        self.journal = journal
        self.cells: dict[ActorPath, Cell] = {}
        self.root: Cell | None = None
        self.wall_offset = 0
        self.closing = False
        """The host's door is shut: only what is inside still runs."""
        self.crashed = False
        self.stopped = False
        self.fatal: Exception | None = None
        """What ended the system: an escalation past the root, or the journal's loss."""
        self.durable = journal.durable if journal is not None else 0
        self.journal_changed = False
        self.full = False
        """Whether the journal said, when it was last listened to, that its disk is full."""
        self.running: dict[tuple[ActorPath, Key], Operation] = {}
        self.queued: dict[tuple[ActorPath, Key], Operation] = {}
        self.parked: dict[ActorPath, Cell] = {}
        self.trace: Callable[[Cell, Any], None] | None = None
        self._held: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = 0
        self.starts = self.stops = self.restarts = self.failures = self.quarantined = 0
        self.sent = self.delivered = self.dead = self.undelivered = self.conflated = 0
        self.answers = self.answers_delivered = self.answers_stale = 0
        self.events = self.timers_set = self.slow_turns = self.slowest_turn = 0
        self.slowest_actor = ""

    def serial(self) -> int:
        """Return the next number of this tree: for operations, slots and generations."""
        self._serial += 1
        return self._serial

    # Delivery

    def answer(self, cell: Cell, envelope: Envelope) -> None:
        """Put an answer on its reserved slot: it always finds room, and keeps the order of arrival."""
        self.answers += 1
        if cell.status >= STOPPED:
            self.answers_stale += 1
            return
        cell.reserved += 1
        mailbox = cell.box()
        mailbox.append(envelope)
        if not cell.scheduled:
            self.dispatcher.schedule(cell)

    def note(self, cell: Cell, message: Any, rests_on: int = 0) -> None:
        """Answer with something that only this incarnation is to see."""
        self.answer(cell, Envelope(EnvelopeKind.NOTE, message, incarnation=cell.incarnation, rests_on=rests_on))

    def fill(self, slot: Slot, value: Any, error: Exception | None, rests_on: int) -> None:
        """Answer a question. Answers to the host wait for the disk; those to actors carry the mark."""
        if slot.done or slot.held:
            return
        if slot.id and slot.cell.slots is not None:
            slot.cell.slots.pop(slot.id, None)
        if slot.asker is None:
            if rests_on <= self.durable:
                slot.fill(value, error)
            elif self.full:
                slot.fill(None, self._pending(slot))
            else:
                slot.held = True
                self.let_out(rests_on, Slot.fill, slot, value, error)
            return
        slot.done = True
        asker: Cell = slot.asker
        message = Replied(slot.key, value) if error is None else RequestFailed(slot.key, error)
        self.answer(asker, Envelope(EnvelopeKind.ANSWER, message, slot.key, slot, asker.incarnation, rests_on))

    def disown(self, slot: Slot, error: Exception) -> None:
        """Fail a question that nobody decided on and nobody will: whom it was for is gone."""
        slot.undone = True
        self.fill(slot, None, error, self.news)

    def give_up(self, slot: Slot) -> None:
        """Nobody waits for this answer any more: who owes it need not remember."""
        slot.abandoned = True
        if slot.id and slot.cell.slots is not None:
            slot.cell.slots.pop(slot.id, None)

    @property
    def news(self) -> int:
        """What the news that an actor ended, began anew or is absent rests on: any record so far may have led to it."""
        return 0 if self.journal is None else self.journal.appended

    # Output gating

    def let_out(self, rests_on: int, act: Callable[..., None], *args: Any) -> None:
        """Carry out ``act(*args)`` once every record up to ``rests_on`` is durable."""
        if rests_on <= self.durable:
            act(*args)
        else:
            heapq.heappush(self._held, (rests_on, self.serial(), act, args))

    @property
    def held(self) -> int:
        """Outputs that wait for the disk."""
        return len(self._held)

    def release(self) -> None:
        """Take note of what the journal says: let out what rests on durable records, unpark if it takes more."""
        self.journal_changed = False
        if self.journal is None or self.crashed:
            return
        status = self.journal.status.name
        if status == "LOST":
            self.lose(JournalLost(f"{self.trouble}; what was not acknowledged may be lost"))
            return
        self.durable = self.journal.durable
        while self._held and self._held[0][0] <= self.durable:
            _, _, act, args = heapq.heappop(self._held)
            act(*args)
        self.full = status == "FULL"
        if self.full:
            self._dismiss_askers()
        if status == "READY" and self.parked:
            parked = list(self.parked.values())
            self.parked.clear()
            for cell in parked:
                self.unpark(cell)

    def _dismiss_askers(self) -> None:
        """Tell those who wait for a full disk what they wait for; what they asked for happens when there is room."""
        waiting = [entry for entry in self._held if entry[2] is Slot.fill]
        if not waiting:
            return
        self._held = [entry for entry in self._held if entry[2] is not Slot.fill]
        heapq.heapify(self._held)
        for _, _, _, (slot, *_) in sorted(waiting, key=lambda entry: entry[:2]):
            slot.fill(None, self._pending(slot))

    @property
    def trouble(self) -> str:
        """What keeps the journal from writing, for people; empty if nothing does."""
        return "" if self.journal is None else self.journal.trouble

    def refusal(self) -> JournalUnavailable:
        """Say why a decision that needs records is not carried out now."""
        assert self.journal is not None
        name = JournalFull if self.journal.status.name == "FULL" else JournalUnavailable
        return name(self.trouble or "the journal took no records just now")

    def _pending(self, slot: Slot) -> Exception:
        if slot.undone:
            return self.refusal()  # that whom it was for is gone is not on the disk, but nothing was done either way
        return OutcomePending(f"{slot.cell.path} answered, but {self.trouble or 'its records are not on disk yet'}")

    def unpark(self, cell: Cell) -> None:
        """Put what waited for the journal back in front of the cell's mailbox."""
        parked = cell.parked
        if parked is None:
            return
        cell.parked = None
        cell.box().extendleft(reversed(parked))
        cell.set_room()
        if not cell.scheduled:
            self.dispatcher.schedule(cell)

    def lose(self, error: Exception) -> None:
        """End the system: nothing it knows can be trusted to be on disk, or nobody is left to supervise it."""
        if self.fatal is None:
            self.fatal = error
            self.edge.wake()

    def publish(self, event: Any) -> None:
        """Hand an event to the listeners."""
        self.events += 1
        self.edge.publish(event)

    # Operations

    def begin(self, operation: Operation) -> None:
        """Start an operation whose records are durable, or queue it behind an older one."""
        if operation.phase is not OperationPhase.HELD or self.crashed:
            return
        if not operation.wanted:
            operation.phase = OperationPhase.ENDED
            return
        slot = operation.slot
        if slot in self.running:
            operation.phase = OperationPhase.QUEUED
            older = self.queued.get(slot)
            if older is not None:
                older.phase = OperationPhase.ENDED
            self.queued[slot] = operation
            return
        self._start(operation)

    def _start(self, operation: Operation) -> None:
        operation.phase = OperationPhase.RUNNING
        operation.cell.running += 1
        self.running[operation.slot] = operation
        self.edge.start(operation)

    def withdraw(self, operation: Operation) -> None:
        """Nobody waits for this operation any more: annihilate it, or ask it to stop."""
        operation.wanted = False
        if operation.phase is OperationPhase.RUNNING:
            operation.phase = OperationPhase.CANCELLING
            self.edge.cancel(operation)
        elif operation.phase is OperationPhase.QUEUED:
            operation.phase = OperationPhase.ENDED
            if self.queued.get(operation.slot) is operation:
                del self.queued[operation.slot]

    def ended(self, operation: Operation, value: Any, error: Exception | None) -> None:
        """Take the end of an operation from the edge. A second end of the same one is ignored."""
        if self.crashed or operation.phase not in (OperationPhase.RUNNING, OperationPhase.CANCELLING):
            return
        operation.phase = OperationPhase.ENDED
        cell = operation.cell
        cell.running -= 1
        slot = operation.slot
        if self.running.get(slot) is not operation:
            raise DispatcherBug(f"{operation!r} ended without holding its slot")
        del self.running[slot]
        if operation.wanted:
            message: Any
            if operation.session:
                message = Closed(operation.key, error)
            elif error is None:
                message = Completed(operation.key, operation.effect, value)
            else:
                message = Failed(operation.key, operation.effect, error)
            self.answer(cell, Envelope(EnvelopeKind.EFFECT, message, operation.key, operation, operation.incarnation))
        successor = self.queued.pop(slot, None)
        if successor is not None:
            self._start(successor)
        if cell.running == 0 and cell.pending_stop is not None:
            self.dispatcher.control.append((self.dispatcher.lifecycle.continue_stop, (cell,)))
        self.edge.wake()

    def arrived(self, operation: Operation, message: Any) -> bool:
        """Take an item from a session; False if there is no room or nobody to see it."""
        if self.crashed or not operation.wanted or operation.phase is not OperationPhase.RUNNING:
            return False
        if operation.unseen >= operation.inbound:
            return False
        operation.unseen += 1
        self.answer(
            operation.cell,
            Envelope(EnvelopeKind.ITEM, message, operation.key, operation, operation.incarnation),
        )
        self.edge.wake()
        return True

    def feed(self, operation: Operation, item: Any) -> None:
        """Move a fed item, now free to leave, to the session's outbox."""
        if operation.outbox is not None and operation.wanted:
            operation.outbox.append(item)
            if operation.phase is OperationPhase.RUNNING:
                self.edge.fed(operation)

    # Accounting

    def statistics(self) -> TreeStatistics:
        """Return the counters; walks all cells."""
        queued = stashed = answers_queued = 0
        live = 0
        for cell in self.cells.values():
            live += cell.status < STOPPED
            aside = sum(type(item) is Envelope and item.kind >= EnvelopeKind.NOTE for item in cell.stash or ())
            answers_queued += cell.reserved + aside
            queued += len(cell.mailbox or ()) + len(cell.parked or ()) - cell.reserved
            stashed += len(cell.stash or ()) - aside
        return TreeStatistics(
            live=live,
            starts=self.starts,
            stops=self.stops,
            restarts=self.restarts,
            quarantined=self.quarantined,
            failures=self.failures,
            sent=self.sent,
            delivered=self.delivered,
            queued=queued,
            stashed=stashed,
            dead=self.dead,
            undelivered=self.undelivered,
            conflated=self.conflated,
            answers=self.answers,
            answers_delivered=self.answers_delivered,
            answers_queued=answers_queued,
            answers_stale=self.answers_stale,
            operations=len(self.running),
            held=self.held,
            events=self.events,
            timers=self.timers_set,
            slow_turns=self.slow_turns,
            slowest_turn_ns=self.slowest_turn,
            slowest_actor=self.slowest_actor,
        )


__all__ = ["FailureReport", "JournalPort", "Tree", "TreeStatistics"]
