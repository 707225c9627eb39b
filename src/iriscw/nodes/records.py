"""The facts that nodes keep over the controller's death: which nodes there are, and what their agents were ordered.

What an agent has is not among them: it says so itself when it dials (who wins is said in docs/design.md).
"""

from __future__ import annotations

from iriscw.journal.records import record
from iriscw.nodes.model import AgentIdentity, Order, OrderEnd
from iriscw.runtime.vocabulary import message

# Of /nodes/agent


@record("nodes.agent_known")
@message
class AgentKnown:
    """An agent speaks for a node from here on: a new one, a later start of the same, or another one."""

    identity: AgentIdentity
    wall_ns: int


@record("nodes.node_forgotten")
@message
class NodeForgotten:
    """A node that nobody had heard of for long made room for another, or somebody had it forgotten."""

    node: str


# Of /nodes/orders


@record("nodes.order_placed")
@message
class OrderPlaced:
    """An order was promised. No agent hears of it before this is on disk."""

    key: str
    node: str
    agent_id: str
    order: Order
    wall_ns: int


@record("nodes.order_cancelled")
@message
class OrderCancelled:
    """Its operation is to be undone, where that can still be."""

    operation: str


@record("nodes.order_ended")
@message
class OrderEnded:
    """What became of it is known."""

    end: OrderEnd
