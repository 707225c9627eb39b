"""Decisions of ``/nodes/orders``: what agents were ordered to do, and what became of it.

::

    asked for -> placed (on disk) -> passed on, whenever its agent has a stream -> ended (on disk) -> released

An order is bound to the agent that had the node when it was placed, by the id of that agent's state: its journal alone
knows how far the order came. It is passed on as often as streams begin, and the agent begins it once. If the node gets
another agent, nobody can say what became of the order, and it ends as ``unknown``.

An order whose agent stays away stays open: it may be running there. What bounds that is how many may be open; and a
person who knows that the machine is gone has the node forgotten, and its orders end as ``unknown``, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from iriscw.nodes.errors import NoSuchOrder, OrderKeyReused, TooManyOrders
from iriscw.nodes.messages import (
    AGENTS,
    AbandonOrders,
    AgentReplaced,
    CancelOrder,
    CountOrders,
    DescribeOrder,
    Due,
    FindOrder,
    OrderChanged,
    OrderOver,
    OrdersWanted,
    PassOrders,
    PlaceOrder,
)
from iriscw.nodes.model import MAX_ENDED_ORDERS, MAX_OPEN_ORDERS, UNKNOWN, OrderEnd, OrderView
from iriscw.nodes.records import OrderCancelled, OrderEnded, OrderPlaced
from iriscw.runtime.vocabulary import (
    SECOND,
    Context,
    Decision,
    DecisionFunction,
    Emit,
    Outcome,
    Refuse,
    Reply,
    SetTimer,
    Tell,
    Undelivered,
)

AGAIN = 1 * SECOND
"""Before a full mailbox is told again."""

PREFIXES = {"freeze": "ck", "thaw": "th", "remove": "rm", "move": "mv", "verify": "vf", "list": "ls"}
"""Of the ids of operations: a checkpoint has the id of the freeze that made it."""


@attrs.frozen
class PlacedOrder:
    """One order as its records say."""

    key: str
    view: OrderView


@attrs.define
class OrderBook:
    """All orders that are open, and those that ended last; both in the order in which that happened."""

    open: dict[str, PlacedOrder] = attrs.field(factory=dict)
    ended: dict[str, PlacedOrder] = attrs.field(factory=dict)
    keys: dict[str, str] = attrs.field(factory=dict)
    """The operation of each key, for as long as the order is remembered."""

    def find(self, operation: str) -> PlacedOrder | None:
        """Return an order, open or ended."""
        return self.open.get(operation) or self.ended.get(operation)


def evolve(book: OrderBook, record: object) -> None:
    """Apply a record."""
    match record:
        case OrderPlaced(key=key, node=node, agent_id=agent_id, order=order, wall_ns=wall_ns):
            book.open[order.operation] = PlacedOrder(key, OrderView(node, agent_id, order, wall_ns))
            book.keys[key] = order.operation
        case OrderCancelled(operation=operation):
            placed = book.open[operation]
            book.open[operation] = attrs.evolve(placed, view=attrs.evolve(placed.view, cancelled=True))
        case OrderEnded(end=end):
            placed = book.open.pop(end.operation)
            book.ended[end.operation] = attrs.evolve(placed, view=attrs.evolve(placed.view, end=end))
            if len(book.ended) > MAX_ENDED_ORDERS:
                forgotten = book.ended.pop(next(iter(book.ended)))
                del book.keys[forgotten.key]


def compact(book: OrderBook) -> Iterator[object]:
    """Yield records from which an equal state is built."""
    for placed in (*book.ended.values(), *book.open.values()):
        view = placed.view
        yield OrderPlaced(placed.key, view.node, view.agent_id, view.order, view.wall_ns)
        if view.cancelled:
            yield OrderCancelled(view.order.operation)
        if view.end is not None:
            yield OrderEnded(view.end)


def rules() -> dict[type, DecisionFunction]:
    """Return the decision for each message."""
    return {
        PlaceOrder: place,
        CancelOrder: cancel,
        DescribeOrder: describe,
        FindOrder: find,
        CountOrders: count,
        AbandonOrders: abandon,
        OrdersWanted: wanted,
        OrderOver: over,
        AgentReplaced: replaced,
        Undelivered: undelivered,
        Due: due,
    }


# Asked


def place(book: OrderBook, message: PlaceOrder, ctx: Context) -> Outcome:
    """Promise an order."""
    before = book.find(book.keys.get(message.key, ""))
    if before is not None:
        if attrs.evolve(before.view.order, operation="") != message.order or before.view.node != message.node:
            return (Refuse(OrderKeyReused("the key was used before, for another order")),)
        return (Reply(before.view),)
    if len(book.open) >= MAX_OPEN_ORDERS:
        return (Refuse(TooManyOrders(f"{len(book.open)} orders have not ended, and the controller gives no more")),)
    order = attrs.evolve(message.order, operation=ctx.new_id(f"{PREFIXES[message.order.kind]}-"))
    record = OrderPlaced(message.key, message.node, message.agent_id, order, ctx.wall)
    view = OrderView(message.node, message.agent_id, order, ctx.wall)
    passed = Tell(AGENTS / message.node, PassOrders(message.agent_id, begin=(order,)))
    return Decision(records=(record,), commands=(passed, Reply(view)))


def cancel(book: OrderBook, message: CancelOrder, ctx: Context) -> Outcome:
    """Have it undone; one that has ended, or was cancelled, is as it is."""
    placed = book.find(message.operation)
    if placed is None:
        return (Refuse(_unknown(message.operation)),)
    view = placed.view
    if view.end is not None or view.cancelled:
        return (Reply(view),)
    passed = Tell(AGENTS / view.node, PassOrders(view.agent_id, cancel=(message.operation,)))
    changed = Emit(OrderChanged(message.operation))
    record = OrderCancelled(message.operation)
    return Decision(records=(record,), commands=(passed, changed, Reply(attrs.evolve(view, cancelled=True))))


def describe(book: OrderBook, message: DescribeOrder, ctx: Context) -> Outcome:
    """Say what is known of it."""
    placed = book.find(message.operation)
    return (Refuse(_unknown(message.operation)),) if placed is None else (Reply(placed.view),)


def find(book: OrderBook, message: FindOrder, ctx: Context) -> Outcome:
    """Say what the order of a key is."""
    placed = book.find(book.keys.get(message.key, ""))
    return (Reply(None if placed is None else placed.view),)


def count(book: OrderBook, message: CountOrders, ctx: Context) -> Outcome:
    """Say how many have not ended."""
    return (Reply(len(book.open)),)


def abandon(book: OrderBook, message: AbandonOrders, ctx: Context) -> Outcome:
    """End what a node's agents were ordered: nobody waits for them any more."""
    lost = [each.view.order.operation for each in book.open.values() if each.view.node == message.node]
    text = f"{message.node} was forgotten while its agent was away: nobody knows how far it came"
    decision = _lost(lost, "NodeForgotten", text)
    return attrs.evolve(decision, commands=(*decision.commands, Reply(len(lost))))


def _unknown(operation: str) -> NoSuchOrder:
    return NoSuchOrder(f"the controller has given no order {operation[:80]!r}, or has forgotten it")


# From the mirrors and their registry


def wanted(book: OrderBook, message: OrdersWanted, ctx: Context) -> Outcome:
    """Return all that this agent has to do: what it knows it does not begin again."""
    return (_all_of(book, message.node, message.agent_id),)


def _all_of(book: OrderBook, node: str, agent_id: str) -> Tell:
    views = [placed.view for placed in book.open.values() if _is_of(placed, node, agent_id)]
    begin = tuple(view.order for view in views)
    cancelled = tuple(view.order.operation for view in views if view.cancelled)
    return Tell(AGENTS / node, PassOrders(agent_id, complete=True, begin=begin, cancel=cancelled))


def _is_of(placed: PlacedOrder, node: str, agent_id: str) -> bool:
    return placed.view.node == node and placed.view.agent_id == agent_id


def over(book: OrderBook, message: OrderOver, ctx: Context) -> Outcome:
    """Write down what became of it, once, and let the agent forget it. Only its own agent is believed."""
    operation = message.end.operation
    release = Tell(AGENTS / message.node, PassOrders(message.agent_id, release=(operation,)))
    placed = book.open.get(operation)
    if placed is None:  # its agent has not heard yet that it is written down, or it is none of ours
        return (release,)
    if not _is_of(placed, message.node, message.agent_id):
        return None
    return Decision(records=(OrderEnded(message.end),), commands=(release, Emit(OrderChanged(operation))))


def replaced(book: OrderBook, message: AgentReplaced, ctx: Context) -> Outcome:
    """End what only the node's earlier agent knows of."""
    lost = [
        placed.view.order.operation
        for placed in book.open.values()
        if placed.view.node == message.node and placed.view.agent_id != message.agent_id
    ]
    text = f"the agent of {message.node} that had it was replaced by another one, which does not know it"
    return _lost(lost, "AgentReplaced", text)


def _lost(operations: list[str], kind: str, text: str) -> Decision:
    """End orders of which nobody can say what became."""
    records = tuple(OrderEnded(OrderEnd(each, UNKNOWN, kind, text)) for each in operations)
    return Decision(records=records, commands=tuple(Emit(OrderChanged(each)) for each in operations))


# Full mailboxes


def undelivered(book: OrderBook, message: Undelivered, ctx: Context) -> Outcome:
    """A mirror has no room: tell it all again in a while, as one whose stream begins."""
    node = message.to.name
    return (SetTimer(("again", node), AGAIN, Due(node)),)


def due(book: OrderBook, message: Due, ctx: Context) -> Outcome:
    """Tell the agents of a node all that they have to do. Repeating it changes nothing."""
    ids = dict.fromkeys(placed.view.agent_id for placed in book.open.values() if placed.view.node == message.what)
    return tuple(_all_of(book, message.what, agent_id) for agent_id in ids)
