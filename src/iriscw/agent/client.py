"""The calling side of an agent's socket: what ``iriscw checkpoint --agent`` and programs use.

::

    async with AgentCaller(Path("/run/kybernate/shim.sock")) as agent:
        async for view in agent.freeze(plan): ...

A caller that is cancelled while it waits for an operation has the agent undo it, and waits until that is done.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path

import anyio

from iriscw._errors import IriscwError
from iriscw.agent import wire
from iriscw.agent.channel import Calling
from iriscw.agent.local import UNDO_PATIENCE_S
from iriscw.agent.operation_views import RunningOperation
from iriscw.checkpoint.model import MovePlan
from iriscw.freeze.model import FreezePlan, ThawPlan
from iriscw.proto.iriscw import v1

log = logging.getLogger(__name__)

ROUTE = "/iriscw.v1.NodeAgent/"


class AgentCaller(Calling):
    """Calls to one agent: an async context manager; see :class:`~iriscw.agent.channel.Calling`.

    Args:
        socket: where it listens.
    """

    def __init__(self, socket: Path) -> None:
        super().__init__(str(socket.absolute()))

    async def freeze(self, plan: FreezePlan, *, detached: bool = False) -> AsyncGenerator[RunningOperation, None]:
        """Freeze a tree, and give views of it until it is over. The agent gives the checkpoint its id.

        Raises:
            TargetGone, TargetBusy, TooManyOperations, AgentStopping: nothing was begun.
            RpcUnavailable: no agent listens there, or it went away: the next one takes the operation up.
        """
        request = wire.freeze_request(plan)
        request.detached = detached
        call = self._channel.server_stream(ROUTE + "Freeze", request, v1.OperationView)
        async with aclosing(_views(call)) as views:
            async for view in views:
                yield view

    async def thaw(self, plan: ThawPlan, *, detached: bool = False) -> AsyncGenerator[RunningOperation, None]:
        """Bring a tree back. Views and errors are those of :meth:`freeze`."""
        request = wire.thaw_request(plan)
        request.detached = detached
        call = self._channel.server_stream(ROUTE + "Thaw", request, v1.OperationView)
        async with aclosing(_views(call)) as views:
            async for view in views:
                yield view

    async def move(self, plan: MovePlan, *, detached: bool = False) -> AsyncGenerator[RunningOperation, None]:
        """Bring a checkpoint to another tier. Views and errors are those of :meth:`freeze`."""
        request = wire.move_request(plan)
        request.detached = detached
        call = self._channel.server_stream(ROUTE + "Move", request, v1.OperationView)
        async with aclosing(_views(call)) as views:
            async for view in views:
                yield view

    async def watch(self, operation: str) -> AsyncGenerator[RunningOperation, None]:
        """Yield views of an operation that somebody else began.

        Raises:
            OperationUnknown: there is none.
            RpcUnavailable: as :meth:`freeze`.
        """
        request = v1.WatchOperationRequest(operation_id=operation)
        call = self._channel.server_stream(ROUTE + "Watch", request, v1.OperationView)
        async with aclosing(_views(call)) as views:
            async for view in views:
                yield view

    async def cancel(self, operation: str) -> RunningOperation:
        """Have an operation undone, and say how it ended.

        Raises:
            OperationUnknown: there is none.
            RpcUnavailable: as :meth:`freeze`.
        """
        request = v1.CancelOperationRequest(operation_id=operation)
        return wire.read_view(await self._channel.unary(ROUTE + "Cancel", request, v1.OperationView))

    async def operations(self) -> list[RunningOperation]:
        """Return the operations that run."""
        request = v1.ListOperationsRequest()
        reply = await self._channel.unary(ROUTE + "ListOperations", request, v1.ListOperationsResponse, safe=True)
        return [wire.read_view(view) for view in reply.operations]

    async def checkpoints(self, labels: tuple[tuple[str, str], ...] = ()) -> list[v1.CheckpointView]:
        """Return the checkpoints with all of these labels."""
        request = v1.ListCheckpointsRequest(labels=dict(labels))
        async with self._channel.server_stream(ROUTE + "List", request, v1.CheckpointView) as found:
            return [each async for each in found]

    async def remove(self, checkpoint: str) -> None:
        """Remove a checkpoint.

        Raises:
            ArtifactUnknown: there is none.
            ArtifactInUse: a thaw has it.
        """
        request = v1.RemoveCheckpointRequest(checkpoint_id=checkpoint)
        await self._channel.unary(ROUTE + "Remove", request, v1.RemoveCheckpointResponse)

    async def capabilities(self) -> v1.CapabilitiesResponse:
        """Say what the agent's machine can freeze.

        Raises:
            RpcUnavailable: no agent listens there.
        """
        request = v1.CapabilitiesRequest()
        return await self._channel.unary(ROUTE + "Capabilities", request, v1.CapabilitiesResponse)

    async def run(
        self, views: AsyncGenerator[RunningOperation, None], seen: Callable[[RunningOperation], None]
    ) -> RunningOperation:
        """Follow an operation to its end; when this is cancelled, have it undone first, within a bound.

        Args:
            views: what :meth:`freeze`, :meth:`thaw` or :meth:`move` gives.
            seen: told of each view.

        Returns:
            The last view.
        """
        last: list[RunningOperation] = []
        failures: list[Exception] = []
        interrupted = anyio.Event()

        async def follow() -> None:
            try:
                async with aclosing(views):
                    async for view in views:
                        last[:] = [view]
                        seen(view)
            except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
                failures.append(error)

        async def undo(scope: anyio.CancelScope) -> None:
            await interrupted.wait()
            if not last:  # nobody here knows its name yet: the agent undoes it because we leave
                scope.cancel()
                return
            scope.deadline = anyio.current_time() + UNDO_PATIENCE_S
            try:
                await self.cancel(last[-1].asked.operation)
            except IriscwError as error:  # that is what following it meets, too
                log.debug("the operation could not be cancelled: %s", error)

        async def shielded() -> None:
            # In a task of its own: Ctrl-C cancels the program's first task itself, whatever shields it has.
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as inner:
                    inner.start_soon(undo, inner.cancel_scope)
                    await follow()
                    inner.cancel_scope.cancel()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shielded)
            try:
                await anyio.sleep_forever()
            finally:
                interrupted.set()
        if failures:
            raise failures[0]
        return last[-1]


async def _views(
    call: AbstractAsyncContextManager[AsyncIterator[v1.OperationView]],
) -> AsyncGenerator[RunningOperation, None]:
    async with call as replies:
        async for reply in replies:
            yield wire.read_view(reply)
