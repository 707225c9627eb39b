"""Requests to Google's JSON interface: each bounded in time and sent once, all bounded in number, and repeated only
where that does no harm (:mod:`iriscw.objects.drivers.attempts`).

aiohttp by itself sends a request again when a connection that was kept breaks; that is switched off here, as for S3. No
redirect is followed, and where requests go, a token with them, is said by the store's own address alone: of the address
of an upload that the service gives, only path and query are used.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import anyio
import anyio.to_thread
import attrs

from iriscw._errors import is_stray
from iriscw.objects.drivers.attempts import Attempts
from iriscw.objects.drivers.failure import GIVEN_UP, AttemptFailed, TryFailure
from iriscw.objects.drivers.gs_failure import answered
from iriscw.objects.drivers.gs_place import GsLimits, GsPlace
from iriscw.objects.drivers.gs_token import GsTokens
from iriscw.objects.ports import Data, StoreUnreachable
from iriscw.rpc.proxies import proxy_of

if TYPE_CHECKING:
    from iriscw.objects.drivers.gs_credentials import Reply

MAX_ANSWER_BYTES = 8 << 20
"""Of an answer that is not an object: a page of 1000 objects with the longest names has 2 MiB, escaped 6."""

MAX_TOKEN_BYTES = 1 << 20
MAX_REFUSAL_BYTES = 16 << 10
"""Of an answer that says no: what is behind it is not read."""

SLICE_BYTES = 1 << 18
"""Of a body, written in one step of the loop."""


@attrs.frozen
class Ask:
    """One request to the store."""

    method: str
    path: str
    """Quoted."""
    query: Mapping[str, str] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    body: tuple[Data, ...] = attrs.field(default=(), repr=False)
    """What is sent, one behind the other."""
    fine: tuple[int, ...] = ()
    """Statuses that are answers, besides 200 to 299."""
    reads: bool = False
    """Whether it changes nothing."""
    repeat: bool = True
    """Whether it may be done twice."""

    @property
    def length(self) -> int:
        """Return the body's, in bytes."""
        return sum(map(len, self.body))


@attrs.frozen
class GsAnswer:
    """One answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes = attrs.field(repr=False)


class GsConnection:
    """The connections to one bucket's service. They are made when they are first needed, on the loop that needs them.

    Args:
        place: The bucket.
        limits: Of time and number.
        environment: Says where credentials are; None: the process's.
    """

    def __init__(self, place: GsPlace, limits: GsLimits, environment: Mapping[str, str] | None = None) -> None:
        self.place = place
        self.limits = limits
        self._attempts = Attempts(str(place), limits)
        self._tokens: GsTokens | None = None
        if not place.anonymous:
            given = os.environ if environment is None else environment
            self._tokens = GsTokens(given, self._send_for_token, 2 * limits.silence_s)
        self._opening = anyio.Lock()
        self._session: Any = None
        self._library: Any = None
        self._closed = False

    def object_path(self, name: str) -> str:
        """Return the path of an object."""
        return f"/storage/v1/b/{quote(self.place.bucket, safe='')}/o/{quote(name, safe='')}"

    @property
    def objects_path(self) -> str:
        """Return the path of all objects."""
        return f"/storage/v1/b/{quote(self.place.bucket, safe='')}/o"

    async def ask(self, ask: Ask) -> GsAnswer:
        """Make a request, more than once if need be, and read its answer.

        Raises:
            AttemptFailed: the last try failed; it is certain only if all of them were.
            StoreUnreachable: the store is closed, or too much goes on.
        """
        told: GsAnswer = await self._repeated(ask, self._told)
        return told

    async def open(self, ask: Ask) -> Any:
        """Make a request for an object, and give aiohttp's answer, whose body is still to be read.

        Raises:
            AttemptFailed: see :meth:`ask`.
            StoreUnreachable: see :meth:`ask`.
        """
        return await self._repeated(ask, _as_it_is)

    def reading(self) -> AbstractAsyncContextManager[None]:
        """Hold a place for an open answer.

        Raises:
            StoreUnreachable: none came free in time.
        """
        return self._attempts.reading()

    def pause(self, attempt: int) -> float:
        """Draw how long to wait behind an attempt, in s; the first has number 1."""
        return self._attempts.pause(attempt)

    @property
    def troubles(self) -> tuple[type[Exception], ...]:
        """What reading a body may raise when the world is at fault."""
        return (self._library.ClientError, OSError, TimeoutError) if self._library is not None else (OSError,)

    async def aclose(self) -> None:
        """Close all connections; requests under way fail."""
        self._closed = True
        async with self._opening:
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    async def _repeated(self, ask: Ask, taken: Any) -> Any:
        used = ""

        async def once() -> Any:
            nonlocal used
            used = ""
            await self._opened()
            if self._tokens is not None:
                used = await self._tokens.token()
            async with self._attempts.request():
                return await self._once(ask, used, taken)

        async def renewed(failure: TryFailure) -> bool:
            if self._tokens is None or not used or failure.status != 401:  # no token: none was refused
                return False
            return await self._tokens.renewed(used)

        return await self._attempts.repeated(once, reads=ask.reads, repeat=ask.repeat, renewed=renewed)

    async def _once(self, ask: Ask, token: str, taken: Any) -> Any:
        session = await self._opened()
        query = f"?{urlencode(ask.query, quote_via=quote)}" if ask.query else ""
        url = f"{self.place.endpoint}{ask.path}{query}"
        headers = {"Accept-Encoding": "identity", **ask.headers}
        if ask.length:
            headers["Content-Length"] = str(ask.length)  # else aiohttp says what the method needs
        if token:
            headers["Authorization"] = f"Bearer {token}"
        answer = None
        try:
            with anyio.fail_after(self.limits.attempt_s(ask.length)):
                answer = await self._send(session, ask.method, url, _sliced(ask.body), headers)
                await _check(ask, answer)
                return await taken(answer)
        except self.troubles as error:
            self._drop(answer)
            said = f"{type(error).__name__}: {error}"
            raise AttemptFailed(TryFailure(said, certain=isinstance(error, self._never_connected()))) from error
        except BaseException as error:
            self._drop(answer)
            if is_stray(error):
                raise AttemptFailed(GIVEN_UP) from error
            raise

    async def _told(self, answer: Any) -> GsAnswer:
        body = await _up_to(answer, MAX_ANSWER_BYTES + 1)
        if len(body) > MAX_ANSWER_BYTES:
            raise AttemptFailed(TryFailure(f"the answer has more than {MAX_ANSWER_BYTES} bytes", answer.status))
        answer.release()
        return GsAnswer(answer.status, answer.headers, body)

    async def _send(self, session: Any, method: str, url: str, body: Any, headers: Mapping[str, str]) -> Any:
        return await session.request(
            method,
            self._library_url(url),
            data=body,
            headers=headers,
            allow_redirects=False,
            proxy=proxy_of(url, os.environ),  # aiohttp's own way would read ~/.netrc, too
        )

    async def _send_for_token(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """Make a request for :class:`GsTokens`."""
        from iriscw.objects.drivers.gs_credentials import Reply  # it is loaded: its thread asks

        session = await self._opened()
        try:
            with anyio.fail_after(self.limits.silence_s):
                answer = await self._send(session, method, url, body, headers)
                try:
                    data = await _up_to(answer, MAX_TOKEN_BYTES)
                finally:
                    answer.close()
        except self.troubles as error:
            raise OSError(f"{type(error).__name__}: {error}") from error
        except BaseException as error:
            if is_stray(error):
                raise OSError(GIVEN_UP.said) from error
            raise
        return Reply(answer.status, answer.headers, data)

    async def _opened(self) -> Any:
        if self._session is not None and not self._closed:
            return self._session
        async with self._opening:
            if self._closed:
                raise StoreUnreachable(f"{self.place} is closed")
            if self._session is None:
                self._library, context = await anyio.to_thread.run_sync(_prepared)
                self._session = self._new_session(context)
        return self._session

    def _new_session(self, context: ssl.SSLContext) -> Any:
        aiohttp, limits = self._library, self.limits
        connector = aiohttp.TCPConnector(
            ssl=context, limit=limits.requests + limits.readings + 1, keepalive_timeout=limits.keepalive_s
        )
        session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "iriscw"},
        )
        session._retry_connection = False  # there is no other way; a test holds aiohttp to it
        return session

    def _library_url(self, url: str) -> Any:
        from yarl import URL

        return URL(url, encoded=True)

    def _never_connected(self) -> tuple[type[Exception], ...]:
        library = self._library
        return (library.ClientConnectorError, library.ClientProxyConnectionError, library.ConnectionTimeoutError)

    @staticmethod
    def _drop(answer: Any) -> None:
        if answer is not None:
            answer.close()


def _prepared() -> tuple[Any, ssl.SSLContext]:
    """Import the library and read certificates: both take some hundred milliseconds."""
    import aiohttp

    return aiohttp, ssl.create_default_context()


async def _check(ask: Ask, answer: Any) -> None:
    if not (200 <= answer.status < 300 or answer.status in ask.fine):
        raise AttemptFailed(answered(answer.status, await _up_to(answer, MAX_REFUSAL_BYTES)))


async def _as_it_is(answer: Any) -> Any:
    return answer


async def _up_to(answer: Any, size: int) -> bytes:
    """Read a body up to a size."""
    held = bytearray()
    while len(held) < size:
        chunk = await answer.content.read(size - len(held))
        if not chunk:
            break
        held += chunk
    return bytes(held)


def _sliced(body: tuple[Data, ...]) -> Any:
    """Return what aiohttp takes for a body: none, short ones as they are, long ones in slices."""
    if sum(map(len, body)) <= SLICE_BYTES:
        return b"".join(body) or None
    return _slices(body)


async def _slices(body: tuple[Data, ...]) -> AsyncIterator[bytes]:
    for piece in body:
        view = memoryview(piece)
        for start in range(0, len(view), SLICE_BYTES):
            yield bytes(view[start : start + SLICE_BYTES])
