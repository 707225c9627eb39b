"""What a thaw does first where only the repository has the checkpoint: it is moved into a tier of this machine.

Whether this machine can thaw it is asked before that, of the manifest alone: what is missing is named, and nothing is
moved.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from iriscw.agent.errors import AgentStopping
from iriscw.agent.local import failure_of, new_id
from iriscw.agent.operation_views import RunningOperation
from iriscw.agent.order import Order
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import MovePlan
from iriscw.freeze.model import ThawPlan

if TYPE_CHECKING:
    from iriscw.agent.daemon import Agent


async def followed(agent: Agent, order: Order, *, detached: bool) -> AsyncGenerator[RunningOperation, None]:
    """Begin an operation and yield its views; undone if the caller leaves before its end, unless it is detached."""
    operation = await agent.begin(order)
    ended = False
    try:
        async with aclosing(agent.board.follow(operation)) as views:
            async for view in views:
                ended = view.over
                yield view
    finally:
        if not ended and not detached:
            agent.stop(operation, "its caller left")


async def fetched(agent: Agent, plan: ThawPlan) -> AsyncGenerator[RunningOperation, None]:
    """Have a checkpoint that only the repository has lie in the tier that the balancer says; the views until it does.

    Raises:
        GateRefused: this machine cannot thaw it. Nothing was moved.
        AgentStopping: the agent ends, which undid the move; a later agent can fetch it.
        IriscwError: it does not lie here; nothing of it is left here.
    """
    tiers = agent.machine.tiers
    if tiers.repository is None or await (await agent.tiers()).holding(plan.artifact):
        return
    found = await tiers.find(plan.artifact)
    if found is None:
        return
    await agent.machine.check_gates(plan, found)
    move = MovePlan(new_id("mv"), plan.artifact, await agent.balancer.admit(found.size_bytes), keep=True)
    async with aclosing(followed(agent, MoveCheckpoint(move), detached=False)) as views:
        async for view in views:
            failure = failure_of(view.end) if view.over and view.end is not None else None
            if failure is not None and agent.ending:
                raise AgentStopping(f"the agent was told to end while it fetched {plan.artifact}") from failure
            if failure is not None:
                raise failure
            if view.over:
                agent.balancer.fetched(view, found.size_bytes)
            else:  # the thaw comes next
                yield view
