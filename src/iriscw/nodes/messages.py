"""What the actors of nodes accept, and what they tell each other.

Paths: ``/nodes/orders`` (durable), ``/nodes/agent`` (durable: which nodes there are), ``/nodes/agent/<node>`` (plain:
the mirror of one agent).

The life of an order, in messages::

    door --PlaceOrder--> /nodes/orders --PassOrders--> mirror ==Orders==> agent
    agent ==Report(OrderEnd)==> mirror --OrderOver--> /nodes/orders --PassOrders(release)--> mirror ==Orders==> agent

A mirror whose stream begins asks ``/nodes/orders`` with :class:`OrdersWanted` for all that its agent has to do. So no
order is lost with a mirror, a stream or an agent; and ``/nodes/orders`` has it on disk before any of them hears of it.
"""

from __future__ import annotations

from iriscw.nodes.model import AgentIdentity, Order, OrderEnd
from iriscw.runtime.vocabulary import ROOT, message

NODES = ROOT / "nodes"
ORDERS = NODES / "orders"
AGENTS = NODES / "agent"

# Doors -> /nodes/agent, asked


@message
class AgentDialled:
    """An agent is at the door. Answered with None; refused with ``AgentFenced`` or ``TooManyNodes``."""

    identity: AgentIdentity


@message
class ListNodes:
    """Give the names of all nodes, sorted."""


@message
class ForgetNode:
    """Know a node no more. Answered with None; refused with ``NoSuchNode``. Whoever asks has made sure that its agent
    has no stream, and asks with :class:`AbandonOrders` first.
    """

    node: str


# Doors -> a mirror, asked


@message
class DescribeNode:
    """Give the :class:`~iriscw.nodes.model.NodeView`, with facts of these kinds only."""

    kinds: tuple[str, ...]


# Doors -> /nodes/orders, asked


@message
class PlaceOrder:
    """Have an agent do something. Answered with the :class:`~iriscw.nodes.model.OrderView` once the order is promised.

    The same key and order give the same answer again. Refused with ``OrderKeyReused`` or ``TooManyOrders``.
    """

    key: str
    node: str
    agent_id: str
    order: Order
    """Its operation is empty: ``/nodes/orders`` gives the id."""


@message
class CancelOrder:
    """Have an order undone. Answered with the :class:`OrderView`; refused with ``NoSuchOrder``."""

    operation: str


@message
class DescribeOrder:
    """Give the :class:`OrderView` of an order; refused with ``NoSuchOrder``."""

    operation: str


@message
class FindOrder:
    """Give the :class:`~iriscw.nodes.model.OrderView` of the order with this key; None if there is none."""

    key: str


@message
class AbandonOrders:
    """End all orders of a node that have not ended, as unknown. Answered with their number."""

    node: str


@message
class CountOrders:
    """Give how many orders have not ended."""


# Within


@message
class OrdersWanted:
    """From a mirror to ``/nodes/orders``: give all that this agent has to do, as :class:`PassOrders`."""

    node: str
    agent_id: str


@message
class PassOrders:
    """From ``/nodes/orders`` to a mirror: tell the agent. ``complete`` answers :class:`OrdersWanted`."""

    agent_id: str
    complete: bool = False
    begin: tuple[Order, ...] = ()
    cancel: tuple[str, ...] = ()
    release: tuple[str, ...] = ()


@message
class OrderOver:
    """From a mirror to ``/nodes/orders``: an agent said what became of an order."""

    node: str
    agent_id: str
    end: OrderEnd


@message
class AgentReplaced:
    """From ``/nodes/agent`` to ``/nodes/orders``: the node has another agent, which knows nothing of its orders."""

    node: str
    agent_id: str


@message
class Due:
    """A timer's time has come."""

    what: str


# Published


@message
class NodeChanged:
    """A node's agent came, has said everything, or went."""

    node: str


@message
class OrderChanged:
    """There is news of an order, or of the operation that it is."""

    operation: str
