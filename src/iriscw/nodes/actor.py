"""The actors of nodes, bound together.

::

    /nodes
    ├─ orders                  durable: what agents were ordered to do
    └─ agent                   durable: which nodes there are
       └─ <node>               entity, plain state: the mirror of one agent, with the session to it
"""

from __future__ import annotations

import functools

from iriscw.nodes import agents, mirror, orders
from iriscw.nodes.agents import Agents, AgentsDecisions
from iriscw.nodes.mirror import Mirror
from iriscw.nodes.model import MAX_NODES, AgentStream
from iriscw.nodes.orders import OrderBook
from iriscw.nodes.ports import AgentStreams
from iriscw.runtime.behavior import Behavior, ChildSpec, Restart

CAPACITY = 2 * MAX_NODES
"""Of ``/nodes/orders`` and ``/nodes/agent``: every node's agent may dial, or have news, at once."""


def mirror_child(node: str, streams: AgentStreams) -> ChildSpec:
    """Return the child spec of ``/nodes/agent/<node>``."""
    behavior = Behavior(
        initial=functools.partial(Mirror, node),
        on=mirror.rules(),
        resume=mirror.resume,
        sessions={AgentStream: streams.serve},
        name="node",
    )
    return ChildSpec(node, behavior, Restart.TRANSIENT, entity=True)


def nodes_child(streams: AgentStreams) -> ChildSpec:
    """Return the child spec of ``/nodes``.

    Args:
        streams: the doors' side of agents' streams.
    """
    decisions = AgentsDecisions(functools.partial(mirror_child, streams=streams))
    book = Behavior(
        initial=OrderBook, on=orders.rules(), evolve=orders.evolve, compact=orders.compact, name="node_orders"
    )
    registry = Behavior(
        initial=Agents,
        on=decisions.rules(),
        resume=decisions.resume,
        evolve=agents.evolve,
        compact=agents.compact,
        name="nodes",
    )
    children = (ChildSpec("orders", book, capacity=CAPACITY), ChildSpec("agent", registry, capacity=CAPACITY))
    return ChildSpec("nodes", Behavior(children=children, name="nodes"), capacity=16)
