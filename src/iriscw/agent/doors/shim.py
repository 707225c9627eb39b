"""``iriscw.v1.ShimService``: containers, for the shim of a container runtime.

A container is frozen by the process that its runtime's state names, into the folder that the caller names; see
:mod:`iriscw.agent.containers` and :mod:`iriscw.agent.paths` for what is believed of either.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio.to_thread

from iriscw.agent.board import View
from iriscw.agent.containers import check_id, process_of
from iriscw.agent.doors.rules import SHIM_RULES
from iriscw.agent.errors import ContainerRefused, OperationPutAside
from iriscw.agent.local import OperationStuck, failure_of, new_id
from iriscw.errors import InvalidArgument
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import FreezePlan, ThawPlan
from iriscw.proto.iriscw import v1

if TYPE_CHECKING:
    from iriscw.agent.daemon import Agent

CONTAINER_LABEL = "container-id"
"""The label that says which container a checkpoint is of."""

MILLISECOND = 1_000_000


class ShimDoor(v1.ShimServiceBase):
    """ShimService.

    Args:
        agent: does it.
    """

    method_rules = SHIM_RULES

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def checkpoint(self, message: v1.CheckpointRequest) -> v1.CheckpointResponse:
        """Freeze a container; undone if the caller leaves."""
        if message.compress:
            raise InvalidArgument("compress: images are what a restore reads as they are, so they are not compressed")
        check_id(message.container_id)
        roots = self._agent.settings.runtime_roots
        root = await anyio.to_thread.run_sync(lambda: process_of(message.container_id, roots))
        labels = ((CONTAINER_LABEL, message.container_id),)
        operation = await self._agent.begin_into(
            message.destination_path, lambda tier: FreezeTree(FreezePlan(new_id("ck"), root, tier, labels=labels))
        )
        view = await self._end_of(operation)
        size = view.made.size_bytes if view.made is not None else 0
        lasted = view.lasted_ns // MILLISECOND
        return v1.CheckpointResponse(checkpoint_id=view.artifact, size_bytes=size, lasted_ms=lasted)

    async def restore(self, message: v1.RestoreRequest) -> v1.RestoreResponse:
        """Bring a container back; undone if the caller leaves."""
        artifact = await self._agent.source(message.source_path)
        if message.container_id:
            await self._check_container(artifact, message.container_id)
        view = await self._end_of(await self._agent.begin(ThawTree(ThawPlan(new_id("th"), artifact))))
        pid = view.made.pid if view.made is not None else 0
        return v1.RestoreResponse(checkpoint_id=artifact, pid=pid, lasted_ms=view.lasted_ns // MILLISECOND)

    async def _check_container(self, artifact: str, container_id: str) -> None:
        for each in await self._agent.listing():
            if each.artifact == artifact and each.manifest is not None:
                named = dict(each.manifest.labels).get(CONTAINER_LABEL, "")
                if named != container_id:
                    raise ContainerRefused(f"checkpoint {artifact} is of container {named!r}, not of {container_id!r}")

    async def _end_of(self, operation: str) -> View:
        last = self._agent.board.view(operation)
        try:
            async with aclosing(self._agent.board.follow(operation)) as views:
                async for view in views:
                    last = view
        finally:
            if not last.over:
                self._agent.stop(operation, "its caller left")
        if last.aside:
            raise OperationPutAside(last.aside)
        if last.end is None:
            raise OperationStuck(f"operation {operation} did not end; the next agent takes it up")
        failure = failure_of(last.end)
        if failure is not None:
            raise failure
        return last
