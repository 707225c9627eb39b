"""Commands in a container that a small program attends, whatever the way to it: through an API server, or an engine's.

See :mod:`iriscw.cloud.drivers.kube.attendant` for that program, and what it guarantees.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import anyio

from iriscw.cloud.drivers.kube.exec import CHUNK_BYTES, LEASE_S, MARGIN_S, STDERR, Attended, ExecOrder
from iriscw.cloud.drivers.kube.places import BEGIN_S
from iriscw.cloud.kube.messages import ApiUnreachable
from iriscw.cloud.model import ExecEnd, ExecOutput, ExecResult, Unavailable


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
        order = ExecOrder(tuple(argv), environment or {}, timeout_s=timeout_s + MARGIN_S).encoded()
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
        order = ExecOrder(tuple(argv)).encoded()
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
