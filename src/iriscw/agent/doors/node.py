"""``iriscw.v1.NodeAgent``: freezing and thawing for whoever is the agent's user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from iriscw._errors import InvalidArgument, IriscwError
from iriscw._version import __version__
from iriscw.agent import wire
from iriscw.agent.doors.rules import NODE_RULES
from iriscw.agent.fetching import fetched, followed
from iriscw.agent.local import new_id
from iriscw.checkpoint.drivers.fullness import fullness
from iriscw.checkpoint.listing import together
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import CriuAbility, TargetGone
from iriscw.proto.iriscw import v1

if TYPE_CHECKING:
    from iriscw.agent.daemon import Agent


class NodeDoor(v1.NodeAgentBase):
    """NodeAgent.

    Args:
        agent: does it.
    """

    method_rules = NODE_RULES

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def freeze(self, message: v1.FreezeRequest) -> AsyncIterator[v1.OperationView]:
        """Freeze a process with all below it; undone if the caller leaves."""
        root = await self._agent.machine.processes.identify(message.pid)
        if message.start_ticks and message.start_ticks != root.start_ticks:
            raise TargetGone(f"process {message.pid} has ended, and its number belongs to another one")
        plan = wire.freeze_plan(new_id("ck"), root, message)
        tiers = self._agent.machine.tiers.folders
        if plan.tier not in tiers:  # before anything counts it: each word would be a metric of its own
            raise InvalidArgument(f"there is no tier {plan.tier!r}: there are {', '.join(tiers)}")
        order = FreezeTree(plan)
        async with aclosing(followed(self._agent, order, detached=message.detached)) as views:
            async for view in views:
                yield wire.operation_view(view)

    async def thaw(self, message: v1.ThawRequest) -> AsyncIterator[v1.OperationView]:
        """Bring a tree back; undone if the caller leaves. What only the repository has comes here first."""
        order = ThawTree(wire.thaw_plan(new_id("th"), message))
        async with aclosing(fetched(self._agent, order.plan)) as views:
            async for view in views:
                yield wire.operation_view(view)
        async with aclosing(followed(self._agent, order, detached=message.detached)) as views:
            async for view in views:
                yield wire.operation_view(view)

    async def move(self, message: v1.MoveRequest) -> AsyncIterator[v1.OperationView]:
        """Bring a checkpoint to another tier; undone if the caller leaves."""
        plan = wire.move_plan(new_id("mv"), message)
        tiers = self._agent.machine.tiers
        if tiers.repository_named(plan.target) is None:
            tiers.tier(plan.target)  # before anything counts it: each word would be a metric of its own
        async with aclosing(followed(self._agent, MoveCheckpoint(plan), detached=message.detached)) as views:
            async for view in views:
                yield wire.operation_view(view)

    async def watch(self, message: v1.WatchOperationRequest) -> AsyncIterator[v1.OperationView]:
        """Yield the views of an operation until it is over."""
        async with aclosing(self._agent.board.follow(message.operation_id)) as views:
            async for view in views:
                yield wire.operation_view(view)

    async def cancel(self, message: v1.CancelOperationRequest) -> v1.OperationView:
        """Have an operation undone, and say how it ended."""
        last = self._agent.board.view(message.operation_id)
        if not last.over:
            self._agent.stop(message.operation_id, "it was cancelled")
        async with aclosing(self._agent.board.follow(message.operation_id)) as views:
            async for view in views:
                last = view
        return wire.operation_view(last)

    async def list_operations(self, message: v1.ListOperationsRequest) -> v1.ListOperationsResponse:
        """Return the operations that run."""
        return v1.ListOperationsResponse(operations=[wire.operation_view(view) for view in self._agent.board.running()])

    async def list(self, message: v1.ListCheckpointsRequest) -> AsyncIterator[v1.CheckpointView]:
        """Yield the checkpoints, those first that were made first in each tier; each once, with its copies."""
        wanted = wire.pairs(message.labels)
        for each in together([*await self._agent.listing(), *await self._agent.stored()]):
            if not wanted or (each.manifest is not None and all(pair in each.manifest.labels for pair in wanted)):
                yield wire.checkpoint_view(each)

    async def remove(self, message: v1.RemoveCheckpointRequest) -> v1.RemoveCheckpointResponse:
        """Remove a checkpoint."""
        await self._agent.remove(message.checkpoint_id, here_only=message.here_only)
        return v1.RemoveCheckpointResponse()

    async def capabilities(self, message: v1.CapabilitiesRequest) -> v1.CapabilitiesResponse:
        """Look at what this machine can freeze."""
        machine = self._agent.machine
        criu, trouble = CriuAbility("", ""), ""
        try:
            criu = await machine.criu.ability()
        except IriscwError as error:  # what is missing is the answer
            trouble = f"{type(error).__name__}: {error}"
        cuda = await machine.cuda.ability()
        host = await machine.processes.host()
        return v1.CapabilitiesResponse(
            node=host.node,
            software=__version__,
            criu_version=criu.version,
            criu_trouble=wire.text(trouble),
            criu_features=[*criu.features],
            cuda_available=cuda.available,
            cuda_driver_version=cuda.driver_version,
            cuda_trouble=wire.text(cuda.reason),
            gpus=[
                v1.GpuView(
                    uuid=gpu.uuid,
                    model=gpu.model,
                    index=gpu.index,
                    total_bytes=gpu.total_bytes,
                    used_bytes=gpu.used_bytes,
                )
                for gpu in await machine.gpus.list()
            ],
            tiers=[wire.tier_view(each) for each in await fullness(machine.tiers)],
            max_operations=self._agent.settings.max_operations,
            operations=len(self._agent.board.running()),
            repository=wire.text("" if machine.tiers.repository is None else machine.tiers.repository.place),
            roots=[root.given or "/" for root in self._agent.settings.roots],
        )
