"""Requests to one S3 service: each bounded in time, all bounded in number, and repeated only where that does no harm
(:mod:`iriscw.objects.drivers.attempts`).

Keys are replaced while a process lives, CoreWeave's expire. When they are refused, the shared files are read again,
and if there are others in them by now, the request is tried with these.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import anyio
import anyio.to_thread

from iriscw._errors import is_stray
from iriscw.objects.drivers.attempts import Attempts
from iriscw.objects.drivers.failure import GIVEN_UP, AttemptFailed, TryFailure
from iriscw.objects.drivers.s3_answers import foreign
from iriscw.objects.drivers.s3_body import sent
from iriscw.objects.drivers.s3_place import S3Limits, S3Place
from iriscw.objects.ports import (
    Data,
    StoreUnreachable,
)

READS = ("get_", "head_", "list_")
"""How operations begin that change nothing: no doubt stays of them."""

RENEWAL_S = 10.0
"""Between two readings of the shared files: a key that is wrong stays so for longer."""


class S3Connection:
    """The connections to one bucket's service. The client is made when it is first needed, on the loop that needs it.

    Args:
        place: The bucket.
        limits: Of time and number.
        connector: For aiohttp's connector: a resolver, in tests.
    """

    def __init__(self, place: S3Place, limits: S3Limits, connector: dict[str, Any] | None = None) -> None:
        self.place = place
        self.limits = limits
        self._connector = connector or {}
        self._attempts = Attempts(str(place), limits)
        self._opening = anyio.Lock()
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._library: Any = None
        self._credentials: Any = None
        """Those that have to be read again when they are replaced, or None: others renew themselves."""
        self._read_at = -RENEWAL_S
        self._md5 = False
        """Whether bodies have an MD5 digest, too: a bucket that locks objects has asked for one."""
        self._closed = False

    async def ask(
        self, operation: str, said: dict[str, Any], *, body: Data | None = None, repeat: bool = True
    ) -> dict[str, Any]:
        """Make a request, more than once if need be.

        Args:
            operation: botocore's name of it.
            said: botocore's arguments, without bucket and body.
            body: What is sent.
            repeat: Whether it may be done twice.

        Raises:
            AttemptFailed: the last try failed; it is certain only if all of them were.
            StoreUnreachable: the store is closed, or too much goes on.
        """
        key, md5 = "", False

        async def once() -> dict[str, Any]:
            nonlocal key, md5
            key, md5 = "", self._md5
            await self._opened()
            key = self._access_key
            async with self._attempts.request():
                return await self._once(operation, body, said, md5=md5)

        async def renewed(failure: TryFailure) -> bool:
            return self._learned(failure, md5=md5) or await self._renewed(failure, key)

        return await self._attempts.repeated(once, reads=operation.startswith(READS), repeat=repeat, renewed=renewed)

    def reading(self) -> AbstractAsyncContextManager[None]:
        """Hold a place for an open answer.

        Raises:
            StoreUnreachable: none came free in time.
        """
        return self._attempts.reading()

    @property
    def troubles(self) -> tuple[type[Exception], ...]:
        """What reading a body may raise when the world is at fault."""
        found: tuple[type[Exception], ...] = self._library.TROUBLES
        return found

    async def aclose(self) -> None:
        """Close all connections; requests under way fail."""
        self._closed = True
        async with self._opening:
            self._client = None
            await self._stack.aclose()

    async def _once(self, operation: str, body: Data | None, said: dict[str, Any], *, md5: bool) -> dict[str, Any]:
        client, library = await self._opened()
        if body is not None:
            digest = {"ContentMD5": await anyio.to_thread.run_sync(_md5, body)} if md5 else {}
            said = {**said, **digest, "Body": await sent(body)}
        try:
            with anyio.fail_after(self.limits.attempt_s(len(body or b""))):
                answer: dict[str, Any] = await getattr(client, operation)(Bucket=self.place.bucket, **said)
        except library.TROUBLES as error:
            raise AttemptFailed(library.judged(error)) from error
        except asyncio.CancelledError as error:
            if not is_stray(error):
                raise
            raise AttemptFailed(GIVEN_UP) from error
        wrong = foreign(operation, answer, said)
        if wrong is not None:
            if "Body" in answer:
                answer["Body"].close()
            raise AttemptFailed(wrong)
        return answer

    @property
    def _access_key(self) -> str:
        return str(self._credentials.access_key) if self._credentials is not None else ""

    def _learned(self, failure: TryFailure, *, md5: bool) -> bool:
        """Tell whether a request was refused for its missing MD5 digest, which the next ones have then."""
        if md5 or failure.status != 400 or "content-md5" not in failure.said.lower():
            return False
        self._md5 = True
        return True

    async def _renewed(self, failure: TryFailure, key: str) -> bool:
        """Tell whether there are other credentials now than those that were refused."""
        if not failure.denied or not key:
            return False
        async with self._opening:
            if self._access_key == key and anyio.current_time() - self._read_at >= RENEWAL_S:
                self._read_at = anyio.current_time()
                await self._library.renew(self._credentials)
            return self._access_key != key

    async def _opened(self) -> tuple[Any, Any]:
        """Return the client, and the module that knows it."""
        if self._client is not None and not self._closed:
            return self._client, self._library
        async with self._opening:
            if self._closed:
                raise StoreUnreachable(f"{self.place} is closed")
            if self._client is None:
                # It takes some hundred milliseconds, in which a loop should do something else.
                self._library = await anyio.to_thread.run_sync(_imported)
                session = await anyio.to_thread.run_sync(self._library.new_session)
                opening = self._library.open_client(self._stack, session, self.place, self.limits, self._connector)
                try:
                    with anyio.fail_after(self.limits.attempt_s(0)):
                        self._client, self._credentials = await opening
                except TimeoutError as error:
                    raise AttemptFailed(TryFailure("no credentials came in time", certain=True)) from error
        return self._client, self._library


def _imported() -> Any:
    from iriscw.objects.drivers import s3_client

    return s3_client


def _md5(body: Data) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
