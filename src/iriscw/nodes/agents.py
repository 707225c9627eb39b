"""Decisions of ``/nodes/agent``: which nodes there are, and which agent speaks for each.

Durable, so that a node is known after a restart of the controller although its agent is away, and so that an earlier
start of an agent is refused although the controller is new. There is one mirror below for each node.

An agent of another id takes a node over: the door lets it come here only while the earlier one has no stream. What the
earlier one was ordered to do and has not ended is unknown from then on: nobody may begin it a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from iriscw.nodes.errors import AgentFenced, NoSuchNode, TooManyNodes
from iriscw.nodes.messages import AGENTS, ORDERS, AgentDialled, AgentReplaced, Due, ForgetNode, ListNodes
from iriscw.nodes.model import MAX_NODES, AgentIdentity
from iriscw.nodes.records import AgentKnown, NodeForgotten
from iriscw.runtime.behavior import ChildSpec
from iriscw.runtime.vocabulary import (
    SECOND,
    Command,
    Context,
    Decision,
    DecisionFunction,
    Outcome,
    Refuse,
    Reply,
    ReviveChild,
    SetTimer,
    Spawn,
    StopChild,
    Tell,
    Terminated,
    Undelivered,
    Watch,
)

AGAIN = 1 * SECOND
"""Before a full mailbox is told again."""

FORGET_AFTER = 7 * 24 * 3600 * SECOND
"""A node whose agent has not dialled for so long makes room, where there is none for another one. A stream lasts a day
at most, so one whose agent is there has dialled since."""


@attrs.frozen
class KnownAgent:
    """Who speaks for a node, and when it dialled last (wall clock)."""

    identity: AgentIdentity
    wall_ns: int


@attrs.define
class Agents:
    """The nodes, in the order in which their agents dialled last."""

    known: dict[str, KnownAgent] = attrs.field(factory=dict)
    leaving: dict[str, None] = attrs.field(factory=dict, eq=False)
    """Nodes whose mirror is being stopped."""
    untold: dict[str, None] = attrs.field(factory=dict, eq=False)
    """Nodes of which ``/nodes/orders`` had no room to hear that they have another agent."""


def evolve(agents: Agents, record: object) -> None:
    """Apply a record."""
    match record:
        case AgentKnown(identity=identity, wall_ns=wall_ns):
            agents.known.pop(identity.node, None)
            agents.known[identity.node] = KnownAgent(identity, wall_ns)
        case NodeForgotten(node=node):
            agents.known.pop(node, None)


def compact(agents: Agents) -> Iterator[object]:
    """Yield records from which an equal state is built."""
    for each in agents.known.values():
        yield AgentKnown(each.identity, each.wall_ns)


class AgentsDecisions:
    """The decisions, for one way to make a mirror.

    Args:
        child: gives the child spec of a node's mirror.
        max_nodes: how many nodes are known at once.
    """

    def __init__(self, child: Callable[[str], ChildSpec], max_nodes: int = MAX_NODES) -> None:
        self.child = child
        self.max_nodes = max_nodes

    def rules(self) -> dict[type, DecisionFunction]:
        """Return the decision for each message."""
        return {
            AgentDialled: self.dialled,
            ListNodes: self.list_nodes,
            ForgetNode: self.forget,
            Terminated: self.terminated,
            Undelivered: self.undelivered,
            Due: self.due,
        }

    def resume(self, agents: Agents, ctx: Context) -> Iterator[Command]:
        """Have a mirror of each node."""
        for node in agents.known:
            yield Spawn(self.child(node))

    def dialled(self, agents: Agents, message: AgentDialled, ctx: Context) -> Outcome:
        """Judge who speaks for the node."""
        identity = message.identity
        node, before = identity.node, agents.known.get(identity.node)
        known = AgentKnown(identity, ctx.wall)
        if before is None:
            return self._new(agents, known, ctx)
        older = before.identity
        if older.agent_id != identity.agent_id:
            replaced = Tell(ORDERS, AgentReplaced(node, identity.agent_id))
            return Decision(records=(known,), commands=(replaced, ReviveChild(node), Reply()))
        if identity.starts < older.starts:
            return (Refuse(AgentFenced(f"agent {older.agent_id} of {node} has started again since: {older.starts}")),)
        return Decision(records=(known,), commands=(ReviveChild(node), Reply()))

    def _new(self, agents: Agents, known: AgentKnown, ctx: Context) -> Outcome:
        node = known.identity.node
        if node in agents.leaving:
            return (Refuse(TooManyNodes(f"{node} has just been forgotten: dial again")),)
        spawn = Spawn(self.child(node))
        if len(agents.known) < self.max_nodes:
            return Decision(records=(known,), commands=(spawn, Reply()))
        oldest, held = next(iter(agents.known.items()))
        if ctx.wall - held.wall_ns < FORGET_AFTER:
            return (Refuse(TooManyNodes(f"the controller knows {len(agents.known)} nodes, and no more")),)
        agents.leaving[oldest] = None
        gone = (StopChild(oldest), Watch(AGENTS / oldest))
        return Decision(records=(NodeForgotten(oldest), known), commands=(*gone, spawn, Reply()))

    def forget(self, agents: Agents, message: ForgetNode, ctx: Context) -> Outcome:
        """Know a node no more: its mirror goes, and whoever dials from there is a new node's agent."""
        node = message.node
        if node not in agents.known:
            return (Refuse(NoSuchNode(f"no agent has dialled from a node {node[:80]!r}")),)
        agents.leaving[node] = None
        commands = (StopChild(node), Watch(AGENTS / node), Reply())
        return Decision(records=(NodeForgotten(node),), commands=commands)

    def terminated(self, agents: Agents, message: Terminated, ctx: Context) -> Outcome:
        """The mirror of a node that is forgotten is gone."""
        agents.leaving.pop(message.path.name, None)
        return None

    def list_nodes(self, agents: Agents, message: ListNodes, ctx: Context) -> Outcome:
        """Return the names."""
        return (Reply(tuple(sorted(agents.known))),)

    def undelivered(self, agents: Agents, message: Undelivered, ctx: Context) -> Outcome:
        """``/nodes/orders`` has no room: tell it again in a while."""
        if isinstance(message.message, AgentReplaced):
            agents.untold[message.message.node] = None
        return (SetTimer("again", AGAIN, Due("again")),)

    def due(self, agents: Agents, message: Due, ctx: Context) -> Outcome:
        """Tell again which agent each of those nodes has now."""
        untold, agents.untold = agents.untold, {}
        return tuple(
            Tell(ORDERS, AgentReplaced(node, agents.known[node].identity.agent_id))
            for node in untold
            if node in agents.known
        )
