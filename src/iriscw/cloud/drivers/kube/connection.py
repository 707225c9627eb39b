"""Commands inside a pod: :class:`~iriscw.cloud.ports.Connection` by the ``exec`` subresource.

Theory of operation. ``exec`` names a pod, not a uid, and pods of one name follow each other. So the pod is looked at
*behind* the opened connection and *before* the command is sent: if it has the uid then, the connection leads to it, for
whoever knew the uid had seen it made before, and a pod that went does not come back.

On a fresh node the way to the kubelet takes up to half a minute to stand; until then ``exec`` is refused with 500, and
with version 5 the refusal comes as the command's Status. Nothing was run then, so it is tried again, for
45 s (:data:`~iriscw.cloud.drivers.kube.places.BEGIN_S`) or the caller's time.

*What is guaranteed*: a command that is over (its time, its reader gone, its connection broken, this process killed) is
killed with all that it started: at once where the connection still stands or is seen to break, else when its lease has
run out. See :mod:`iriscw.cloud.drivers.kube.attendant` for the one exception.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import anyio
import attrs

from iriscw.cloud.drivers.kube.api import KubernetesApi
from iriscw.cloud.drivers.kube.calls import Caller
from iriscw.cloud.drivers.kube.exec import (
    CHUNK_BYTES,
    LEASE_S,
    MARGIN_S,
    STDERR,
    Attended,
    Order,
    exec_request,
    new_mark,
)
from iriscw.cloud.drivers.kube.objects import Objects
from iriscw.cloud.drivers.kube.places import BEGIN_S, PodPlace
from iriscw.cloud.drivers.kube.streams import V4, V5
from iriscw.cloud.kube.manifests import CONTAINER
from iriscw.cloud.kube.messages import ApiResponse, ApiUnreachable
from iriscw.cloud.model import ExecEnd, ExecOutput, ExecResult, Throttled, Unavailable

RIGHTS = "get and create on pods/exec, and get on pods"

ENDLESS_S = 1e9


class AttendedConnection(abc.ABC):
    """Commands below an attendant, whatever the way to it is; see :class:`~iriscw.cloud.ports.Connection`."""

    @abc.abstractmethod
    async def _reached(self, stack: AsyncExitStack, patience_s: float) -> Attended:
        """Return an attendant that is there; trouble that may pass is waited out for so long.

        Raises:
            Gone, InvalidSpec, Forbidden, Unavailable: see the port. Nothing was run.
        """

    @abc.abstractmethod
    async def _check(self) -> None:
        """Look whether the container is still there.

        Raises:
            Gone, Forbidden: see the port.
        """

    async def run(
        self, argv: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> ExecResult:
        """Run a command to its end."""
        order = Order(tuple(argv), environment or {}, timeout_s=timeout_s + MARGIN_S).encoded()
        until = anyio.current_time() + timeout_s
        async with self._attended(min(BEGIN_S, timeout_s), until) as attended:
            try:
                with anyio.CancelScope(deadline=until):
                    await attended.begin(order)
                    return await attended.result()
            except ApiUnreachable as broken:
                raise Unavailable(f"the connection broke, and nobody saw how the command ended: {broken}") from None
            finally:
                killed = attended.code is not None or await attended.kill()
            fate = "was killed" if killed else f"is killed within {LEASE_S:g} s"
            raise TimeoutError(f"the command did not end within {timeout_s:g} s, and {fate}")

    async def stream(self, argv: Sequence[str]) -> AsyncGenerator[ExecOutput | ExecEnd, None]:
        """Run a command and give its outputs as they come, and how it ended."""
        order = Order(tuple(argv)).encoded()
        async with self._attended(BEGIN_S) as attended:
            try:
                await attended.begin(order)
                async with aclosing(attended.output(self._check)) as output:
                    async for channel, data in output:
                        for begin in range(0, len(data), CHUNK_BYTES):
                            yield ExecOutput(data[begin : begin + CHUNK_BYTES], channel == STDERR)
            except ApiUnreachable as broken:
                raise Unavailable(f"the connection broke: {broken}") from None
            finally:
                if attended.code is None:
                    await attended.kill()
            assert attended.code is not None, "an output ends with its command"
            yield ExecEnd(attended.code)

    @asynccontextmanager
    async def _attended(self, patience_s: float, until: float | None = None) -> AsyncIterator[Attended]:
        """Yield an attendant, for as long as the block lasts.

        Raises:
            Gone, InvalidSpec, Forbidden, Unavailable: see the port. Nothing was run.
        """
        async with AsyncExitStack() as stack:
            attended = None
            with anyio.CancelScope(deadline=float("inf") if until is None else until):
                attended = await self._reached(stack, patience_s)
            if attended is None:
                raise Unavailable("the container could not be reached in time; nothing was run")
            pulse = asyncio.get_running_loop().create_task(attended.pulse())
            try:
                yield attended
            finally:
                pulse.cancel()
                with anyio.CancelScope(shield=True):  # it ends in this turn of the loop
                    await asyncio.wait((pulse,))


@attrs.frozen
class KubeConnection(AttendedConnection):
    """Runs commands in one pod; see :class:`~iriscw.cloud.ports.Connection`.

    Args:
        api: The API server.
        caller: The rate of requests, and calls.
        pod: The pod's name.
        uid: Its uid.
        container: Which of its containers.
        interpreter: How Python is started there.
        protocols: The versions of the protocol that are understood, the best first.
    """

    api: KubernetesApi
    caller: Caller
    pod: str
    uid: str
    container: str = CONTAINER
    interpreter: tuple[str, ...] = ("python3",)
    protocols: tuple[str, ...] = (V5, V4)

    @property
    def place(self) -> PodPlace:
        """Where the pod is in the API."""
        return PodPlace(self.caller, self.pod, self.uid)

    async def _check(self) -> None:
        with contextlib.suppress(Throttled, Unavailable):  # it is asked again by and by
            await self.place.check()

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until the pod runs, and its node lets commands in."""
        with anyio.fail_after(timeout_s):
            self.place.judge(await Objects(self.caller).wait(self.place.path, self.place.is_decided, ENDLESS_S))
            async with self._attended(ENDLESS_S):
                pass

    async def _reached(self, stack: AsyncExitStack, patience_s: float) -> Attended:
        return await self.place.reached(stack, self._try, patience_s)

    async def _try(self, stack: AsyncExitStack) -> Attended:
        mark = new_mark()
        request = exec_request(self.place.path, self.container, self.interpreter, mark)
        await self.caller.turn()
        opened = await stack.enter_async_context(self.api.channels(request, self.protocols))
        if isinstance(opened, ApiResponse):
            await self.place.refused(opened, RIGHTS)
        attended = Attended(opened, mark, self.interpreter[0])
        await attended.ready()
        await self.place.check()
        return attended
