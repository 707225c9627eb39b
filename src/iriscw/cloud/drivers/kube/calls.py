"""Calls carried out: request by request, in turn, within a deadline.

Theory of operation. A call is the driver's generator (:mod:`iriscw.cloud.kube.messages`); here it is given what it
asks for, until it returns, raises, or its deadline has passed. Whoever is cancelled closes it, and what was on its way
lands or does not.

*Turns.* A place under the rate limit is taken in the instant in which its request leaves. Only the first in line looks
when that is; those behind it wait for their turn, in order, and whoever gives up leaves the line for free. If places
were reserved before the wait, a thousand calls that gave up after a minute would have filled the next minute too; and
who wakes late would leave together with the one behind it, one request more than the rate allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from random import Random
from typing import TypeVar

import anyio
import attrs

from iriscw.cloud.kube.limits import RateLimit
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable, Call, Pause
from iriscw.cloud.kube.ports import KubeApi
from iriscw.cloud.kube.settings import KubeSettings
from iriscw.cloud.model import Unavailable
from iriscw.cloud.ports import CALL_TIMEOUT_S
from iriscw.runtime.vocabulary import SECOND

T = TypeVar("T")


@attrs.frozen
class CallStatistics:
    """What was done so far."""

    calls: int = 0
    open_calls: int = 0
    """Now."""
    timed_out: int = 0
    """Calls whose deadline passed."""
    waiting: int = 0
    """Requests that wait for their turn now."""


async def rest(span: int) -> None:
    """Wait for ``span`` ns."""
    await anyio.sleep(max(0, span) / SECOND)


class Caller:
    """Makes requests and carries out calls, for all drivers of one cluster: they share one rate.

    Args:
        api: The API server.
        settings: How to behave towards it.
        timeout_s: The deadline of a call.
        rng: For the driver's pauses.
        fence: Called before each request that may change something; raises when this process must not act any more.
    """

    def __init__(
        self,
        api: KubeApi,
        settings: KubeSettings,
        *,
        timeout_s: float = CALL_TIMEOUT_S,
        rng: Random | None = None,
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        self.api = api
        self.settings = settings
        self.rng = rng or Random()  # noqa: S311 - spreads pauses, guards nothing
        self._timeout_s = timeout_s
        self._fence = fence
        self._limit = RateLimit(settings.qps, settings.burst)
        self._line = anyio.Lock()
        self._counts = {"calls": 0, "open_calls": 0, "timed_out": 0}

    def statistics(self) -> CallStatistics:
        """Return figures of now."""
        return CallStatistics(**self._counts, waiting=self._line.statistics().tasks_waiting)

    async def turn(self) -> None:
        """Wait until the next request may leave."""
        async with self._line:
            while span := self._limit.wait(now := time.monotonic_ns()):
                await rest(span)
            self._limit.take(now)

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Make a request when its turn comes.

        Raises:
            ApiUnreachable: it was not answered.
        """
        await self.turn()
        if request.method != "GET":
            self._fence()
        return await self.api.request(request)

    async def carry_out(self, call: Call[T]) -> T:
        """Carry a call out, and give what it returns.

        Raises:
            CloudError: what the call's own contract names.
            Unavailable: its deadline passed; it may have had its effect, or have it later.
        """
        self._counts["calls"] += 1
        self._counts["open_calls"] += 1
        try:
            with closing(call), anyio.move_on_after(self._timeout_s):
                return await self._converse(call)
        finally:
            self._counts["open_calls"] -= 1
        self._counts["timed_out"] += 1
        raise Unavailable(f"the Kubernetes API did not answer within {self._timeout_s:g} s")

    async def _converse(self, call: Call[T]) -> T:
        resume = partial(next, call)
        while True:
            try:
                step = resume()
            except StopIteration as done:
                result: T = done.value
                return result
            try:
                answer = await self._step(step)
            except ApiUnreachable as silence:
                resume = partial(call.throw, silence)
            else:
                resume = partial(call.send, answer)

    async def _step(self, step: ApiRequest | Pause) -> ApiResponse | None:
        if isinstance(step, Pause):
            await rest(step.span)
            return None
        return await self.request(step)
