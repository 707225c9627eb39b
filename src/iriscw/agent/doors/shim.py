"""``iriscw.v1.ShimService``: containers, for the shim of a container runtime.

A container is frozen by the process that its runtime's state names, into the folder that the caller names; see
:mod:`iriscw.agent.containers` and :mod:`iriscw.agent.paths` for what is believed of either.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio.to_thread

from iriscw._errors import InvalidArgument
from iriscw.agent import wire
from iriscw.agent.containers import FoundContainer, check_id, checked_root, container_of, has_own_numbers
from iriscw.agent.doors.rules import SHIM_RULES
from iriscw.agent.errors import ContainerRefused, OperationPutAside
from iriscw.agent.local import OperationStuck, failure_of, new_id
from iriscw.agent.operation_views import RunningOperation
from iriscw.checkpoint.messages import MoveCheckpoint
from iriscw.checkpoint.model import MovePlan
from iriscw.freeze.drivers.runtime import become_criu
from iriscw.freeze.messages import FreezeTree, ThawTree
from iriscw.freeze.model import Container, CriuOptions, FreezePlan, ThawPlan
from iriscw.proto.iriscw import v1
from iriscw.runtime.vocabulary import MILLISECOND

if TYPE_CHECKING:
    from iriscw.agent.daemon import Agent

CONTAINER_LABEL = "container-id"
"""The label that says which container a checkpoint is of."""

CGROUPS_MODES = ("", "soft", "full", "strict", "ignore")
NAMESPACES = ("network",)
"""Those that may come back empty, as ``runc --empty-ns`` names them."""


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
        found = await anyio.to_thread.run_sync(lambda: container_of(message.container_id, roots))
        own = await anyio.to_thread.run_sync(has_own_numbers, found.task)  # only its runtime brings that back
        container = Container(message.container_id, str(found.root)) if own else None
        operation = await self._freeze(found, message.destination_path, message.container_id, container=container)
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
        return v1.RestoreResponse(checkpoint_id=artifact, pid=view.pid, lasted_ms=view.lasted_ns // MILLISECOND)

    async def migrate_storage(self, message: v1.MigrateRequest) -> v1.MigrateResponse:
        """Move a checkpoint to another folder or tier; undone if the caller leaves."""
        if bool(message.destination_path) == bool(message.tier):
            raise InvalidArgument("either a destination_path or a tier")
        artifact, place = await self._agent.source_here(message.source_path)

        def order(tier: str) -> MoveCheckpoint:
            return MoveCheckpoint(MovePlan(new_id("mv"), artifact, tier, message.keep, source=place.name))

        tiers = self._agent.machine.tiers
        if message.destination_path:
            operation = await self._agent.begin_into(message.destination_path, order)
        else:
            if tiers.repository_named(message.tier) is None:
                tiers.tier(message.tier)  # before anything counts it: each word would be a metric of its own
            operation = await self._agent.begin(order(message.tier))
        view = await self._end_of(operation)
        return v1.MigrateResponse(
            checkpoint_id=artifact,
            size_bytes=view.made.size_bytes if view.made is not None else 0,
            lasted_ms=view.lasted_ns // MILLISECOND,
            note=wire.text(view.end.text if view.end is not None else ""),
        )

    # Through the container's runtime

    async def checkpoint_container(self, message: v1.CheckpointContainerRequest) -> AsyncIterator[v1.ContainerView]:
        """Freeze a container through its runtime; undone if the caller leaves."""
        check_id(message.container_id)
        roots = self._agent.settings.runtime_roots
        root = checked_root(message.runtime_root, roots)
        if message.cgroups_mode not in CGROUPS_MODES:
            raise InvalidArgument(f"{message.cgroups_mode[:80]!a} is not a mode for control groups")
        if odd := [name for name in message.empty_namespaces if name not in NAMESPACES]:
            raise InvalidArgument(f"a namespace {odd[0][:80]!a} cannot come back empty: only 'network' can")
        found = await anyio.to_thread.run_sync(lambda: container_of(message.container_id, roots, within=root))
        container = Container(
            message.container_id, str(root), message.cgroups_mode, tuple(dict.fromkeys(message.empty_namespaces))
        )
        options = CriuOptions(
            tcp_established=message.tcp_established,
            shell_job=message.shell_job,
            file_locks=message.file_locks,
            external_unix_sockets=message.external_unix_sockets,
            link_remap=message.link_remap,
        )
        operation = await self._freeze(
            found,
            message.image_path,
            message.container_id,
            container=container,
            options=options,
            leave_running=message.leave_running,
        )
        async with aclosing(self._views(operation)) as views:
            async for view in views:
                yield v1.ContainerView(operation=wire.operation_view(view))

    async def restore_container(self, message: v1.RestoreContainerRequest) -> AsyncIterator[v1.ContainerView]:
        """Bring a container back by the runtime that the caller runs; what came back is killed if the caller leaves."""
        check_id(message.container_id)
        root = checked_root(message.runtime_root, self._agent.settings.runtime_roots)
        runtime = self._agent.machine.runtime
        if runtime is None:
            raise ContainerRefused("this agent brings no containers back")
        # containerd unpacks each checkpoint anew, and leaves old copies lying: it is this one that is meant.
        artifact, place = await self._agent.source_here(message.image_path)
        images = str(place.images(artifact))
        operation = new_id("th")
        door = await anyio.to_thread.run_sync(runtime.expect, operation)
        turn = v1.RuntimeTurn(str(door.folder), images, {become_criu.FOLDER: str(door.folder)})
        try:
            plan = ThawPlan(operation, artifact, container=Container(message.container_id, str(root)), tier=place.name)
            await self._agent.begin(ThawTree(plan))
            async with aclosing(self._views(operation)) as views:
                async for view in views:
                    yield v1.ContainerView(operation=wire.operation_view(view), turn=turn)
        finally:
            runtime.expect_no_more(operation)

    async def container_operations(self, message: v1.ContainerOperationsRequest) -> v1.ListOperationsResponse:
        """Say what runs on a container; have it undone first, if that is asked for."""
        running = self._agent.on_container(message.container_id, message.runtime_root)
        if message.stop:
            for view in running:
                self._agent.stop(view.asked.operation, "its container is to end")
            for view in running:
                async with aclosing(self._agent.board.follow(view.asked.operation)) as views:
                    async for _ in views:
                        pass
            running = self._agent.on_container(message.container_id, message.runtime_root)
        return v1.ListOperationsResponse(operations=[wire.operation_view(view) for view in running])

    # What they share

    async def _freeze(
        self,
        found: FoundContainer,
        path: str,
        container_id: str,
        *,
        container: Container | None,
        options: CriuOptions | None = None,
        leave_running: bool = False,
    ) -> str:
        labels = ((CONTAINER_LABEL, container_id),)

        def order(tier: str) -> FreezeTree:
            chosen = options or CriuOptions()
            plan = FreezePlan(
                new_id("ck"),
                found.task,
                tier,
                leave_running=leave_running,
                options=chosen,
                labels=labels,
                container=container,
            )
            return FreezeTree(plan)

        return await self._agent.begin_into(path, order)

    async def _check_container(self, artifact: str, container_id: str) -> None:
        for each in await self._agent.listing():
            if each.artifact == artifact and each.manifest is not None:
                named = dict(each.manifest.labels).get(CONTAINER_LABEL, "")
                if named != container_id:
                    raise ContainerRefused(f"checkpoint {artifact} is of container {named!r}, not of {container_id!r}")

    async def _views(self, operation: str) -> AsyncGenerator[RunningOperation, None]:
        """Yield the views of an operation, and have it undone when they are left before its end."""
        over = False
        try:
            async with aclosing(self._agent.board.follow(operation)) as views:
                async for view in views:
                    over = view.over
                    yield view
        finally:
            if not over:
                self._agent.stop(operation, "its caller left")

    async def _end_of(self, operation: str) -> RunningOperation:
        last = self._agent.board.view(operation)
        async with aclosing(self._views(operation)) as views:
            async for view in views:
                last = view
        if last.aside:
            raise OperationPutAside(last.aside)
        if last.end is None:
            raise OperationStuck(f"operation {operation} did not end; the next agent takes it up")
        failure = failure_of(last.end)
        if failure is not None:
            raise failure
        return last
