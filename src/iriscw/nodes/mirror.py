"""Decisions of ``/nodes/agent/<node>``: what the agent of one node says, and what it is told.

Theory of operation:

* The state is plain. Every stream begins from the top, so a mirror that was restarted, and a controller, know nothing
  of a node until its agent has dialled, and all of it soon after.
* What an earlier stream said is shown until the new one has said everything; then what the new one did not say is gone.
  A stream that ends makes nothing gone: its node is ``UNKNOWN`` since then, with all that was said (INV-C11).
* Each report is acknowledged once it is taken, and the agent sends one at a time. So nothing piles up here, however
  fast an agent's operations change.
* Orders are not kept here: a stream that begins asks ``/nodes/orders`` for them.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from iriscw.nodes.messages import (
    ORDERS,
    DescribeNode,
    Due,
    NodeChanged,
    OrderChanged,
    OrderOver,
    OrdersWanted,
    PassOrders,
)
from iriscw.nodes.model import (
    CHECKPOINT,
    MAX_CHECKPOINTS,
    MAX_OPEN_ORDERS,
    MAX_SAID_BYTES,
    Abilities,
    AgentIdentity,
    AgentReport,
    AgentStream,
    AgentUp,
    CheckpointRow,
    Fact,
    FactKey,
    NodeState,
    NodeView,
    OperationRow,
    OrderEnd,
    Orders,
    ReportAcked,
    TierRow,
    key_of,
    size_of,
)
from iriscw.runtime.vocabulary import (
    SECOND,
    Arrived,
    Close,
    Closed,
    Command,
    Context,
    DecisionFunction,
    Emit,
    Feed,
    FeedRefused,
    Open,
    Outcome,
    Reply,
    SetTimer,
    Tell,
    Undelivered,
)

STREAM = "stream"

AGAIN = 1 * SECOND
"""Before a stream that failed is waited for again, or a full mailbox told again."""

MAX_FACTS_KEPT = MAX_CHECKPOINTS + 2 * MAX_OPEN_ORDERS
"""Of one node. Who says more says what is not so, and its stream ends."""


@attrs.define(eq=False)
class Mirror:
    """One node's agent, as far as the controller has heard of it."""

    node: str
    identity: AgentIdentity | None = None
    abilities: Abilities | None = None
    facts: dict[FactKey, Fact] = attrs.field(factory=dict)
    fresh: dict[FactKey, Fact] | None = None
    """What the stream that is up has said, while it has not said everything; None without a stream, or after that."""
    state: NodeState = NodeState.UNKNOWN
    since_wall_ns: int = 0
    omitted: int = 0
    told: bool = False
    """Whether the stream that is up was told all orders: from then on it is told each new one."""
    unsaid: dict[str, OrderEnd] = attrs.field(factory=dict)
    """Ends that ``/nodes/orders`` had no room to hear of."""

    @property
    def up(self) -> bool:
        """Whether the agent has a stream."""
        return self.state is not NodeState.UNKNOWN


def rules() -> dict[type, DecisionFunction]:
    """Return the decision for each message."""
    return {
        Arrived: arrived,
        Closed: closed,
        FeedRefused: feed_refused,
        PassOrders: pass_orders,
        DescribeNode: describe,
        Due: due,
        Undelivered: undelivered,
    }


def resume(mirror: Mirror, ctx: Context) -> tuple[Command, ...]:
    """Wait for the agent."""
    mirror.since_wall_ns = ctx.wall
    return (_open(mirror),)


def _open(mirror: Mirror) -> Open:
    return Open(STREAM, AgentStream(mirror.node))


# From the agent


def arrived(mirror: Mirror, message: Arrived, ctx: Context) -> Outcome:
    """Take what the agent says."""
    match message.item:
        case AgentUp(identity=identity, abilities=abilities):
            mirror.identity, mirror.abilities = identity, abilities
            mirror.fresh, mirror.told = {}, False
            mirror.state, mirror.since_wall_ns = NodeState.SYNCING, ctx.wall
            return (_want_orders(mirror), Emit(NodeChanged(mirror.node)))
        case AgentReport() as report if mirror.up:
            return tuple(_take(mirror, report, ctx))
        case _:
            return None


def _take(mirror: Mirror, report: AgentReport, ctx: Context) -> Iterator[Command]:
    assert mirror.identity is not None
    into = mirror.facts if mirror.fresh is None else mirror.fresh
    for fact in report.facts:
        match fact:
            case OrderEnd():
                yield Tell(ORDERS, OrderOver(mirror.node, mirror.identity.agent_id, fact))
            case OperationRow():
                into[key_of(fact)] = fact
                yield Emit(OrderChanged(fact.operation))
            case CheckpointRow() | TierRow():
                into[key_of(fact)] = fact
    for key in report.gone:
        into.pop(key, None)
    mirror.omitted = report.omitted
    if len(into) > MAX_FACTS_KEPT:
        yield from _hang_up(mirror, ctx)
        return
    if report.complete and mirror.fresh is not None:
        mirror.facts, mirror.fresh = mirror.fresh, None
        mirror.state, mirror.since_wall_ns = NodeState.CONNECTED, ctx.wall
        yield Emit(NodeChanged(mirror.node))
    yield Feed(STREAM, ReportAcked(report.sequence))


def closed(mirror: Mirror, message: Closed, ctx: Context) -> Outcome:
    """The stream ended: what it said is what is known, and wait for the next one."""
    again = _open(mirror) if message.error is None else SetTimer("open", AGAIN, Due("open"))
    return (*_down(mirror, ctx), again)


def _down(mirror: Mirror, ctx: Context) -> Iterator[Command]:
    if mirror.up:
        mirror.state, mirror.since_wall_ns = NodeState.UNKNOWN, ctx.wall
        yield Emit(NodeChanged(mirror.node))
    if mirror.fresh is not None:  # it was said, and nobody has said that the rest is gone
        older = {key: fact for key, fact in mirror.facts.items() if key not in mirror.fresh}
        mirror.facts = {**older, **mirror.fresh}
    _trim(mirror)
    mirror.fresh, mirror.told = None, False


def _trim(mirror: Mirror) -> None:
    """Let the oldest facts go that are beyond the limits: streams that break off add up. They count as omitted."""
    sizes = {key: size_of(fact) for key, fact in mirror.facts.items()}
    total = sum(sizes.values())
    for key, size in sizes.items():
        if len(mirror.facts) <= MAX_FACTS_KEPT and total <= MAX_SAID_BYTES:
            return
        total -= size
        del mirror.facts[key]
        mirror.omitted += key[0] == CHECKPOINT


def _hang_up(mirror: Mirror, ctx: Context) -> Iterator[Command]:
    yield Close(STREAM)
    yield from _down(mirror, ctx)
    yield _open(mirror)


def feed_refused(mirror: Mirror, message: FeedRefused, ctx: Context) -> Outcome:
    """The agent does not read: end the stream; the next one begins from the top."""
    return tuple(_hang_up(mirror, ctx)) if mirror.up else None


# To the agent


def _want_orders(mirror: Mirror) -> Command:
    assert mirror.identity is not None
    return Tell(ORDERS, OrdersWanted(mirror.node, mirror.identity.agent_id))


def pass_orders(mirror: Mirror, message: PassOrders, ctx: Context) -> Outcome:
    """Tell the agent, if it is the one that is meant. Before it was told all, it hears of none alone."""
    if not mirror.up or mirror.identity is None or mirror.identity.agent_id != message.agent_id:
        return None
    if not (message.complete or mirror.told):
        return None
    mirror.told = True
    return (Feed(STREAM, Orders(message.complete, message.begin, message.cancel, message.release)),)


# For whoever asks


def describe(mirror: Mirror, message: DescribeNode, ctx: Context) -> Outcome:
    """Say what is known."""
    facts = dict(mirror.facts)
    if mirror.fresh is not None:
        facts.update(mirror.fresh)
    return (
        Reply(
            NodeView(
                node=mirror.node,
                state=mirror.state,
                since_wall_ns=mirror.since_wall_ns,
                identity=mirror.identity,
                abilities=mirror.abilities,
                facts=tuple(fact for key, fact in facts.items() if key[0] in message.kinds),
                omitted=mirror.omitted if CHECKPOINT in message.kinds else 0,
            )
        ),
    )


# Clocks and full mailboxes


def due(mirror: Mirror, message: Due, ctx: Context) -> Outcome:
    """A timer's time has come."""
    match message.what:
        case "open":
            return (_open(mirror),)
        case "orders":
            return (_want_orders(mirror),) if mirror.up and not mirror.told else None
        case _:
            unsaid, mirror.unsaid = mirror.unsaid, {}
            if mirror.identity is None:
                return None
            return tuple(Tell(ORDERS, OrderOver(mirror.node, mirror.identity.agent_id, end)) for end in unsaid.values())


def undelivered(mirror: Mirror, message: Undelivered, ctx: Context) -> Outcome:
    """``/nodes/orders`` has no room: tell it again in a while. The agent says an end until it is released."""
    if isinstance(message.message, OrdersWanted):
        return (SetTimer("orders", AGAIN, Due("orders")),)
    if isinstance(message.message, OrderOver):
        mirror.unsaid[message.message.end.operation] = message.message.end
    return (SetTimer("ends", AGAIN, Due("ends")),)
