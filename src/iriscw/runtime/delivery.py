"""Delivery of what is not a plain message: answers, notes, questions, and what waits for the journal.

Theory of operation. The dispatcher calls the rules of plain messages by itself: nothing about them can be stale. All
else in a mailbox is an envelope or a question. An *answer* (a timer, the end of an effect, of somebody watched)
was owed to one incarnation of a cell, under one key: it is delivered if the cell still has it in its books, and it is
struck off there; otherwise it is stale, and only counted. A *question* carries the slot that takes its answer, or the
error of the decision. While the journal takes no records, an entry whose decision needs one is *parked*, and so is all
that comes after it: nothing is lost, and nothing overtakes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from iriscw._errors import as_failure
from iriscw.runtime.cell import DRAINING, Cell
from iriscw.runtime.envelope import FIRST_ANSWER, Envelope, EnvelopeKind, Slot
from iriscw.runtime.interpreter import Unavailable, carry_out
from iriscw.runtime.vocabulary import Reply

if TYPE_CHECKING:
    from iriscw.runtime.dispatcher import Dispatcher


def park(cell: Cell, item: Any) -> None:
    """Keep an entry until the journal takes records again: nothing is lost, and nothing overtakes."""
    tree = cell.tree
    if type(item) is Envelope and item.kind >= FIRST_ANSWER:
        tree.answers_delivered -= 1
        cell.reserved += 1
    else:
        tree.delivered -= 1
    if cell.parked is None:
        cell.parked = deque()
        tree.parked[cell.path] = cell
    cell.parked.append(item)
    cell.set_room()


def unwrap(dispatcher: Dispatcher, cell: Cell, envelope: Envelope | Slot) -> None:
    """Deliver what is not a plain message, if it still is for this incarnation; counted as delivered already."""
    if type(envelope) is Slot:
        question(dispatcher, cell, envelope)
        return
    assert isinstance(envelope, Envelope)
    kind = envelope.kind
    tree = cell.tree
    latest = False
    if kind >= FIRST_ANSWER:
        tree.delivered -= 1
        cell.reserved -= 1
        tree.answers_delivered += 1
        if cell.parked is not None and not _stale(cell, envelope, take=False):
            park(cell, envelope)
            return
        if _stale(cell, envelope, take=True):
            tree.answers_delivered -= 1
            tree.answers_stale += 1
            return
    else:
        if cell.parked is not None:
            park(cell, envelope)
            return
        # One that comes back from the stash may have a successor, which waits on and can still be replaced.
        if envelope.key is not None and cell.conflated is not None and cell.conflated.get(envelope.key) is envelope:
            del cell.conflated[envelope.key]
            latest = True
    if envelope.rests_on > cell.rests_on:
        cell.rests_on = envelope.rests_on
    message = envelope.message
    rule = cell.rules[type(message)]
    assert rule is not None
    try:
        outcome = rule(cell.state, message, dispatcher.context)
        if outcome is not None:
            carry_out(tree, cell, outcome, envelope)
    except Unavailable:
        if kind >= FIRST_ANSWER:
            _give_back(cell, envelope)
        elif latest and cell.conflated is not None:
            cell.conflated[envelope.key] = envelope  # it waits again
        park(cell, envelope)
    except BaseException as error:
        dispatcher.lifecycle.failed(cell, message, as_failure(error))


def _table(cell: Cell, kind: int) -> Any:
    """Return where the cell keeps what an answer of this kind is checked against."""
    match kind:
        case EnvelopeKind.NOTE:
            return None
        case EnvelopeKind.TIMER:
            return cell.timers
        case EnvelopeKind.WATCH:
            return cell.watching
        case EnvelopeKind.ANSWER:
            return cell.requests
        case _:
            return cell.operations


def _stale(cell: Cell, envelope: Envelope, *, take: bool) -> bool:
    """Whether an answer is not for this incarnation any more; with ``take`` what it answers is settled."""
    kind = envelope.kind
    key = envelope.key
    token = envelope.token
    if envelope.incarnation != cell.incarnation:
        return True
    if kind == EnvelopeKind.NOTE:
        return False
    table: Any = _table(cell, kind)
    if table is None or table.get(key) != token:
        return True
    if take:
        if kind == EnvelopeKind.ITEM:
            token.unseen -= 1
            cell.tree.edge.room(token)
        else:
            del table[key]
    return False


def _give_back(cell: Cell, envelope: Envelope) -> None:
    """Undo that an answer was taken: while it is parked it can still be cancelled."""
    table: Any = _table(cell, envelope.kind)
    if envelope.kind == EnvelopeKind.ITEM:
        envelope.token.unseen += 1
    elif table is not None:
        table[envelope.key] = envelope.token


def question(dispatcher: Dispatcher, cell: Cell, slot: Slot) -> None:
    """Deliver a question: its answer goes to the slot, and so does the error if the decision raises."""
    tree = cell.tree
    if slot.abandoned:
        tree.delivered -= 1
        tree.dead += 1
        return
    if cell.parked is not None and slot.asker is not None:
        park(cell, slot)
        return
    context = dispatcher.context
    context.slot = slot
    context.stashed = False
    if slot.rests_on > cell.rests_on:
        cell.rests_on = slot.rests_on
    message = slot.message
    rule = cell.rules[type(message)]
    assert rule is not None
    try:
        outcome = rule(cell.state, message, context)
        if outcome is not None:
            if type(outcome) is tuple and len(outcome) == 1 and type(outcome[0]) is Reply and outcome[0].to is None:
                tree.fill(slot, outcome[0].value, None, cell.rests_on)
            else:
                carry_out(tree, cell, outcome, slot)
    except Unavailable:
        if slot.asker is not None:  # a host was answered by name already
            park(cell, slot)
    except BaseException as raised:
        error = as_failure(raised)
        tree.fill(slot, None, error, cell.rests_on)
        dispatcher.lifecycle.failed(cell, message, error)
    else:
        if not slot.done and not slot.held and not context.stashed and cell.status <= DRAINING:
            if slot.id == 0:
                slot.id = tree.serial()
            if cell.slots is None:
                cell.slots = {}
            cell.slots[slot.id] = slot
    finally:
        context.slot = None


__all__ = ["park", "question", "unwrap"]
