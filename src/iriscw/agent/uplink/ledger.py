"""Decisions of ``/controller/orders``: what the controller ordered, and what became of it. Pure.

::

    said by the controller -> taken (on disk) -> begun -> settled (on disk) -> said to the controller -> released

* An order is begun at most once. What an earlier life of the agent took and did not settle is either shown by the
  operations that it left (their records are there until the order is settled), and then waited for; or nothing of it
  was ever begun, and it is begun now, unless the controller cancelled it: then it is settled as refused.
* What became of an order is kept until the controller says that it is on its disk, however often either of the two
  dies.
* An order that cannot be begun (its process has ended, too much runs) is settled as refused, by the error's name. One
  that may have been begun is not settled: it is looked for again.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from iriscw._errors import (
    ActorRestarted,
    ActorStopped,
    AskTimeout,
    JournalUnavailable,
    MailboxFull,
    OutcomeUnknown,
    SystemClosed,
)
from iriscw.agent.errors import AgentStopping
from iriscw.agent.uplink.messages import (
    SESSION,
    BeginOrder,
    Due,
    OrdersFull,
    Present,
    Resync,
    SettleOperation,
    StopOrder,
    TakeOrders,
)
from iriscw.agent.uplink.records import OrderReleased, OrderSettled, OrderTaken, OrderWithdrawn
from iriscw.nodes.model import MAX_OPEN_ORDERS, ORDER, REFUSED, Order, OrderEnd
from iriscw.runtime.vocabulary import (
    SECOND,
    Command,
    Completed,
    Context,
    Decision,
    DecisionFunction,
    Emit,
    Failed,
    Outcome,
    Reply,
    Run,
    SetTimer,
    Tell,
    Undelivered,
)

MAX_TAKEN = MAX_OPEN_ORDERS
"""Orders that are remembered, ended ones included until they are released: as many as a controller gives at all."""

AGAIN = 1 * SECOND
"""Before an order that could not be begun for now is begun again, or a full mailbox told again."""

MAX_TEXT_CHARS = 4096

NOT_YET = (JournalUnavailable, MailboxFull)
"""What will be over soon, and nothing was begun: the order waits."""

UNCLEAR = (ActorRestarted, ActorStopped, AskTimeout, OutcomeUnknown)
"""It may have been begun: it is looked for again. Any error but these is what becomes of an order."""

LEFT = (AgentStopping, SystemClosed)
"""The agent ends: the next one begins it."""


@attrs.frozen
class Taken:
    """One order."""

    order: Order
    withdrawn: bool = False
    end: OrderEnd | None = None


@attrs.define
class OrderLedger:
    """The orders, in the order in which they came."""

    taken: dict[str, Taken] = attrs.field(factory=dict)

    def ends(self) -> tuple[OrderEnd, ...]:
        """Return what became of those that are over."""
        return tuple(each.end for each in self.taken.values() if each.end is not None)


def evolve(ledger: OrderLedger, record: object) -> None:
    """Apply a record."""
    match record:
        case OrderTaken(order=order):
            ledger.taken[order.operation] = Taken(order)
        case OrderWithdrawn(operation=operation):
            ledger.taken[operation] = attrs.evolve(ledger.taken[operation], withdrawn=True)
        case OrderSettled(end=end):
            ledger.taken[end.operation] = attrs.evolve(ledger.taken[end.operation], end=end)
        case OrderReleased(operation=operation):
            del ledger.taken[operation]


def compact(ledger: OrderLedger) -> Iterator[object]:
    """Yield records from which an equal state is built."""
    for operation, each in ledger.taken.items():
        yield OrderTaken(each.order, 0)
        if each.withdrawn:
            yield OrderWithdrawn(operation)
        if each.end is not None:
            yield OrderSettled(each.end)


def rules() -> dict[type, DecisionFunction]:
    """Return the decision for each message."""
    return {
        TakeOrders: take,
        Resync: resync,
        SettleOperation: settle,
        Completed: completed,
        Failed: failed,
        BeginOrder: begin_again,
        Due: due,
        Undelivered: undelivered,
    }


def resume(ledger: OrderLedger, ctx: Context) -> Iterator[Command]:
    """Begin what is not settled; what runs already is not begun again (:class:`BeginOrder`)."""
    for each in ledger.taken.values():
        if each.end is None:
            yield _begin(each)
    yield _ends(ledger.ends())


def _begin(taken: Taken) -> Run:
    return Run(("begin", taken.order.operation), BeginOrder(taken.order, taken.withdrawn))


def _stop(operation: str) -> Run:
    return Run(("stop", operation), StopOrder(operation))


def _ends(ends: tuple[OrderEnd, ...]) -> Tell:
    return Tell(SESSION, Present(ORDER, ends), conflate="ends")


# From the controller


def take(ledger: OrderLedger, message: TakeOrders, ctx: Context) -> Outcome:
    """Take what is new, withdraw what is cancelled, drop what is released."""
    orders = message.orders
    released = _released(ledger, message)
    room = MAX_TAKEN - len(ledger.taken) + len(released)
    fresh = [order for order in orders.begin if order.operation not in ledger.taken]
    cancelled = dict.fromkeys(orders.cancel)
    records: list[object] = [OrderReleased(each) for each in released]
    commands: list[Command] = []
    ends = [end for end in ledger.ends() if end.operation not in released]
    for order in fresh[:room]:
        records.append(OrderTaken(order, ctx.wall))
        if order.operation in cancelled:
            ends.append(OrderEnd(order.operation, REFUSED, "OrderCancelled", "it was cancelled before it was begun"))
            records.append(OrderSettled(ends[-1]))
        else:
            commands.append(_begin(Taken(order)))
    for operation in cancelled:
        known = ledger.taken.get(operation)
        if known is not None and known.end is None and not known.withdrawn:
            records.append(OrderWithdrawn(operation))
            commands.append(_stop(operation))
    if len(fresh) > room:
        commands.append(Emit(OrdersFull(len(ledger.taken))))
    if tuple(ends) != ledger.ends():
        commands.append(_ends(tuple(ends)))
    return Decision(records=tuple(records), commands=tuple(commands)) if records else tuple(commands)


def _released(ledger: OrderLedger, message: TakeOrders) -> tuple[str, ...]:
    """Return the ended orders that the controller has on its disk: it says so, or does not wait for them any more."""
    named = dict.fromkeys(message.orders.release)
    waited = dict.fromkeys(order.operation for order in message.orders.begin)
    return tuple(
        operation
        for operation, each in ledger.taken.items()
        if each.end is not None and (operation in named or (message.orders.complete and operation not in waited))
    )


def resync(ledger: OrderLedger, message: Resync, ctx: Context) -> Outcome:
    """Tell the session what became of orders."""
    return (_ends(ledger.ends()),)


# From the agent


def settle(ledger: OrderLedger, message: SettleOperation, ctx: Context) -> Outcome:
    """Write down what became of an order."""
    known = ledger.taken.get(message.end.operation)
    if known is None or known.end is not None:
        return (Reply(),)
    return _settled(ledger, message.end, Reply())


def _settled(ledger: OrderLedger, end: OrderEnd, *more: Command) -> Decision:
    return Decision(records=(OrderSettled(end),), commands=(_ends((*ledger.ends(), end)), *more))


def completed(ledger: OrderLedger, message: Completed, ctx: Context) -> Outcome:
    """It was begun, or is over already; one that was withdrawn meanwhile is stopped now that it can be."""
    if not isinstance(message.effect, BeginOrder):
        return None
    operation = message.effect.order.operation
    known = ledger.taken.get(operation)
    if known is None or known.end is not None:
        return None
    if message.value is not None:
        return _settled(ledger, message.value)
    return (_stop(operation),) if known.withdrawn else None


def failed(ledger: OrderLedger, message: Failed, ctx: Context) -> Outcome:
    """It was not begun: that is what becomes of it, unless it is only for now, or nobody can say whether it was."""
    if not isinstance(message.effect, BeginOrder):
        return None
    order, error = message.effect.order, message.error
    known = ledger.taken.get(order.operation)
    if known is None or known.end is not None or isinstance(error, LEFT):
        return None
    if isinstance(error, UNCLEAR) or (isinstance(error, NOT_YET) and not known.withdrawn):
        return (SetTimer(("begin", order.operation), AGAIN, message.effect),)
    return _settled(ledger, OrderEnd(order.operation, REFUSED, type(error).__name__, str(error)[:MAX_TEXT_CHARS]))


def begin_again(ledger: OrderLedger, message: BeginOrder, ctx: Context) -> Outcome:
    """Its pause is over."""
    known = ledger.taken.get(message.order.operation)
    return None if known is None or known.end is not None else (_begin(known),)


def due(ledger: OrderLedger, message: Due, ctx: Context) -> Outcome:
    """Tell the session again."""
    return (_ends(ledger.ends()),)


def undelivered(ledger: OrderLedger, message: Undelivered, ctx: Context) -> Outcome:
    """The session has no room: tell it in a while."""
    return (SetTimer("ends", AGAIN, Due("ends")),)
