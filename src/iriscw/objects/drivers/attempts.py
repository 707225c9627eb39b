"""Requests to one storage service: bounded in number, and repeated only where that does no harm.

What was certainly not done (the server was too busy, or never reached) is tried again whatever it was. What may have
been done is tried again only if doing it twice is the same as once: reads, parts of an upload, and writes with a
condition, whose second try the first one makes impossible. A plain write or delete is not: if the first request landed
late, behind what somebody wrote in the meantime, that would be lost, and nobody would have been told. So these end
with the doubt, and the caller decides.

The doubt stays with a request: what is told at the end says that nothing has happened only if that is so of every try.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import anyio
import attrs

from iriscw.objects.drivers.failure import AttemptFailed, TryFailure
from iriscw.objects.drivers.limits import ServiceLimits
from iriscw.objects.ports import StoreUnreachable

Answer = TypeVar("Answer")


class Attempts:
    """The requests under way, and those that are tried again.

    Args:
        where: The store, for people.
        limits: Of number and time.
    """

    def __init__(self, where: str, limits: ServiceLimits) -> None:
        self._where, self._limits = where, limits
        self._requests = anyio.Semaphore(limits.requests)
        self._readings = anyio.Semaphore(limits.readings)

    async def repeated(
        self,
        once: Callable[[], Awaitable[Answer]],
        *,
        reads: bool,
        repeat: bool,
        renewed: Callable[[TryFailure], Awaitable[bool]],
    ) -> Answer:
        """Make a request, more than once if need be.

        Args:
            once: Makes it; raises ``AttemptFailed``.
            reads: Whether it changes nothing: no doubt stays of such.
            repeat: Whether it may be done twice.
            renewed: Tells whether there are other credentials now than those that were refused.

        Raises:
            AttemptFailed: the last try failed; it is certain only if all of them were.
        """
        certain = True
        for attempt in itertools.count(1):
            try:
                return await once()
            except AttemptFailed as failed:
                failure = failed.failure
                certain = failure.certain and (certain or reads)
                may = attempt < self._limits.attempts and (certain or repeat)
                if not may or not (failure.passing or await renewed(failure)):
                    raise AttemptFailed(attrs.evolve(failure, certain=certain)) from failed
            await anyio.sleep(self.pause(attempt))
        raise AssertionError("unreachable")

    def request(self) -> AbstractAsyncContextManager[None]:
        """Hold a place for a request.

        Raises:
            StoreUnreachable: none came free in time.
        """
        return self._place(self._requests, "request")

    def reading(self) -> AbstractAsyncContextManager[None]:
        """Hold a place for an open answer.

        Raises:
            StoreUnreachable: none came free in time.
        """
        return self._place(self._readings, "reading")

    def pause(self, attempt: int) -> float:
        """Draw how long to wait behind an attempt, in s; the first has number 1."""
        bound = min(self._limits.most_pause_s, self._limits.first_pause_s * 2 ** (attempt - 1))
        return random.uniform(bound / 2, bound)  # noqa: S311 - spreads retries, guards nothing

    @asynccontextmanager
    async def _place(self, places: anyio.Semaphore, kind: str) -> AsyncIterator[None]:
        try:
            with anyio.fail_after(self._limits.place_s):
                await places.acquire()
        except TimeoutError as error:
            waited = f"{self._limits.place_s:g} s"
            raise StoreUnreachable(f"{self._where}: no {kind} of those under way ended for {waited}") from error
        try:
            yield
        finally:
            places.release()
