"""The calling side of ``iriscw.v1.ShimService``, as far as containers are concerned: what ``iriscw-runc`` uses."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from iriscw.agent.channel import Calling
from iriscw.proto.iriscw import v1

ROUTE = "/iriscw.v1.ShimService/"


class ShimCaller(Calling):
    """Calls to one agent: an async context manager. Whoever leaves a stream early has the agent undo what it began."""

    async def checkpoint(self, request: v1.CheckpointContainerRequest) -> AsyncGenerator[v1.ContainerView, None]:
        """Freeze a container, and give views of that until it is over.

        Raises:
            ContainerUnknown, ContainerRefused, PathNotAllowed, TargetBusy, TooManyOperations: nothing was begun.
            RpcUnavailable: no agent listens there, or it went away: the next one takes the operation up.
        """
        call = self._channel.server_stream(ROUTE + "CheckpointContainer", request, v1.ContainerView)
        async with call as views:
            async for view in views:
                yield view

    async def restore(self, request: v1.RestoreContainerRequest) -> AsyncGenerator[v1.ContainerView, None]:
        """Bring a container back, with a runtime that the caller runs. Errors as :meth:`checkpoint`, and those of
        ``Agent.source``.
        """
        call = self._channel.server_stream(ROUTE + "RestoreContainer", request, v1.ContainerView)
        async with call as views:
            async for view in views:
                yield view

    async def operations(self, container_id: str, root: str, *, stop: bool = False) -> list[v1.OperationView]:
        """Return the operations that run on a container; with ``stop``, have them undone and wait for that."""
        request = v1.ContainerOperationsRequest(container_id=container_id, runtime_root=root, stop=stop)
        return (await self._channel.unary(ROUTE + "ContainerOperations", request, v1.ListOperationsResponse)).operations
