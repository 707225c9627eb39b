"""Forgetting a node: on somebody's word that its machine, or its agent, does not come back.

The controller itself never takes a node for gone: an agent that is away may come back, with all that it has. So what it
was ordered stays open, and its checkpoints stay listed, until a person says otherwise. In order::

    its agent has no stream, and none is let in meanwhile   -> NodeConnected
    /nodes/orders ends what is open (AbandonOrders), on disk
    /nodes/agent knows the node no more (ForgetNode), on disk

A controller that dies in between has a node without orders, of which the same can be asked again.
"""

from __future__ import annotations

from iriscw._errors import ActorStopped, InvalidArgument, NoSuchActor
from iriscw.controller.doors.access import Access
from iriscw.controller.doors.agents import AgentBoard
from iriscw.nodes.errors import NodeConnected, NoSuchNode
from iriscw.nodes.messages import AGENTS, ORDERS, AbandonOrders, DescribeNode, ForgetNode
from iriscw.nodes.model import NODE_NAME, NodeState, NodeView


async def forget_node(access: Access, board: AgentBoard, node: str) -> int:
    """Forget a node; give how many of its orders had not ended.

    Args:
        access: asks on behalf of a caller.
        board: the streams of agents.
        node: its name.

    Raises:
        InvalidArgument: it is not a valid node name.
        NoSuchNode: there is none, and no open order of one.
        NodeConnected: its agent has a stream, or begins one.
    """
    if not NODE_NAME.fullmatch(node):
        raise InvalidArgument(f"{node[:80]!a} is not a valid node name")
    with board.handshake(node) as turn:
        if not turn or board.find(node) is not None or await _is_up(access, node):
            raise NodeConnected(f"the agent of {node} has a stream: end it there before the node is forgotten")
        lost: int = await access.ask(ORDERS, AbandonOrders(node))
        try:
            await access.ask(AGENTS, ForgetNode(node))
        except NoSuchNode:
            if not lost:
                raise
    return lost


async def _is_up(access: Access, node: str) -> bool:
    """Tell whether the node's mirror has a stream still; it hears of the end a little later."""
    try:
        view: NodeView = await access.ask(AGENTS / node, DescribeNode(()))
    except (NoSuchActor, ActorStopped):
        return False
    return view.state is not NodeState.UNKNOWN
