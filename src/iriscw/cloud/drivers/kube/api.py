"""The port to an API server, over HTTP: one request, one answer; one watch, one connection.

Theory of operation. This is transport and nothing else: it decides nothing about Kubernetes, and repeats nothing. Each
request has a deadline, each answer a size, and each watch a longest silence and a longest line; what goes beyond is
``ApiUnreachable``, as is everything that a network does. An answer is an answer whatever its code and its body: a
proxy's error page, a redirect (which is not followed: it would carry the token elsewhere), a ``Status``.

*A connection can die without anybody being told.* TCP's own probes find a host that is gone, the longest silence a
program that hangs. *A reader may be slow*: then nothing is read ahead but the socket's buffer, and the server waits.

*Secrets stay in.* Neither the token nor the server's path, in which some have one, nor a proxy's password is in any
text that leaves: what the libraries say is not passed on, but for the operating system's and OpenSSL's own words.
"""

from __future__ import annotations

import io
import json
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import anyio
import attrs
from aiohttp.http_exceptions import HttpProcessingError

from iriscw._version import __version__
from iriscw.cloud.drivers.kube.access import Access
from iriscw.cloud.drivers.kube.answers import decoded, event_of, refusal_event, retry_after_of
from iriscw.cloud.drivers.kube.limits import TransportLimits
from iriscw.cloud.drivers.kube.lines import Lines, LineTooLong
from iriscw.cloud.drivers.kube.sockets import Sockets
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable

NETWORK_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError)
"""All that the transport raises because of the world; ``TimeoutError`` is an ``OSError``."""


@attrs.frozen
class ApiStatistics:
    """What a connection to an API server has done so far."""

    requests: int = 0
    """Sent, watches included."""
    refusals: int = 0
    """Answers with a code of 400 or more."""
    throttled: int = 0
    """Of them, 429."""
    unreachable: int = 0
    """Requests without an answer, and watches that broke."""
    events: int = 0
    """Lines of watches."""
    received_bytes: int = 0
    """Of bodies."""
    open_watches: int = 0
    """Now."""
    open_sockets: int = 0
    """Now: of requests and watches, and those that wait to be used again."""


class KubernetesApi:
    """Reaches one API server. Made by :func:`open_api`.

    Args:
        access: The way there.
        session: What carries the requests.
        sockets: What it makes its connections of.
        limits: Deadlines and sizes.
    """

    def __init__(
        self, access: Access, session: aiohttp.ClientSession, sockets: Sockets, limits: TransportLimits
    ) -> None:
        self._access = access
        self._sockets = sockets
        self._session = session
        self._limits = limits
        self._counts = dict.fromkeys((field.name for field in attrs.fields(ApiStatistics)), 0)

    def __repr__(self) -> str:
        return f"<KubernetesApi of {self._access.server}>"

    def statistics(self) -> ApiStatistics:
        """Give figures of now."""
        return ApiStatistics(**{**self._counts, "open_sockets": self._sockets.open})

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Make a request once, and give the answer, whatever its code.

        Raises:
            ApiUnreachable: there was none.
        """
        with _network(self._counts), _deadline(self._limits.request_s, "an answer"):
            response = await self._send(request)
            try:
                answer = await self._answer(response)
            finally:
                _hang_up(response)
        return answer

    async def watch(self, request: ApiRequest) -> AsyncGenerator[Mapping[str, Any], None]:
        """Give the events of a watch until the server ends it; a refusal comes as one event of type ``ERROR``.

        Leaving the iteration closes the connection. A reader who does not come holds up the server, not memory.

        Raises:
            ApiUnreachable: the connection could not be made, broke, went silent, or brought what is no watch.
        """
        with _network(self._counts):
            with _deadline(self._limits.open_s, "the beginning of a watch"):
                response = await self._send(request)
            self._counts["open_watches"] += 1
            try:
                if response.status != 200:
                    with _deadline(self._limits.request_s, "an answer"):
                        answer = await self._answer(response)
                    yield refusal_event(answer)
                    return
                lines = Lines(self._limits.line_bytes)
                while chunk := await self._more(response):
                    for line in lines.feed(chunk):
                        self._counts["events"] += 1
                        yield event_of(line)
                if lines.held_bytes:
                    raise ApiUnreachable("a watch ended in the middle of an event")
            finally:
                self._counts["open_watches"] -= 1
                _hang_up(response)

    async def _more(self, response: aiohttp.ClientResponse) -> bytes:
        """Give what has come, or wait for it; empty at the end."""
        with _deadline(self._limits.silence_s, "anything on a watch"):
            chunk = await response.content.readany()
        self._counts["received_bytes"] += len(chunk)
        return chunk

    async def _send(self, request: ApiRequest) -> aiohttp.ClientResponse:
        if self._session.closed:
            raise ApiUnreachable("the way to the cluster was closed")
        access = self._access
        header = await access.credentials.header()
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if header is not None:
            headers["Authorization"] = header.reveal()
        body = None
        if request.body is not None:
            headers["Content-Type"] = request.content_type
            # As a file, for that is sent in pieces: a long text would be handed to the socket in one, without a pause.
            body = io.BytesIO(json.dumps(request.body, separators=(",", ":")).encode())
        self._counts["requests"] += 1
        response = await self._session.request(
            request.method,
            url_of(access.url, request),
            data=body,
            headers=headers,
            allow_redirects=False,
            proxy=access.proxy,
            server_hostname=access.tls_name,
        )
        self._counts["refusals"] += response.status >= 400
        self._counts["throttled"] += response.status == 429
        if response.status in (401, 403):
            access.credentials.refused()
        return response

    async def _answer(self, response: aiohttp.ClientResponse) -> ApiResponse:
        limit = self._limits.response_bytes
        too_long = ApiUnreachable(f"the answer is longer than {limit} bytes")
        if (response.content_length or 0) > limit:
            raise too_long
        data = bytearray()
        while chunk := await response.content.readany():
            self._counts["received_bytes"] += len(chunk)
            data += chunk
            if len(data) > limit:
                raise too_long
        retry_after = retry_after_of(response.headers, datetime.now(UTC))
        return ApiResponse(response.status, decoded(data), retry_after)


def url_of(base: str, request: ApiRequest) -> str:
    """Write where a request goes."""
    query = f"?{urlencode(request.query)}" if request.query else ""
    return f"{base}{quote(request.path)}{query}"


@contextmanager
def _network(counts: dict[str, int]) -> Iterator[None]:
    """Translate what a network does into ``ApiUnreachable``, and count it."""
    try:
        yield
    except ApiUnreachable:
        counts["unreachable"] += 1
        raise
    except (LineTooLong, *NETWORK_ERRORS) as error:
        counts["unreachable"] += 1
        raise ApiUnreachable(_told(error)) from None  # the libraries' errors hold URLs and headers


@contextmanager
def _deadline(timeout_s: float, what: str) -> Iterator[None]:
    """End what takes too long with ``ApiUnreachable``, which says what did not come."""
    with anyio.move_on_after(timeout_s) as scope:
        yield
    if scope.cancelled_caught:
        raise ApiUnreachable(f"{what} did not come within {timeout_s:g} s")


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Close the connection at once, without a goodbye; one whose answer was read to its end is gone already."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _told(error: BaseException) -> str:
    """Say what a network did, without what a library adds: that has URLs, and headers, in it."""
    match error:
        case LineTooLong():
            return str(error)
        case aiohttp.ClientConnectorCertificateError():
            cause = error.certificate_error
            return f"the server's certificate is not accepted: {getattr(cause, 'verify_message', type(cause).__name__)}"
        case aiohttp.ClientConnectorError(os_error=ssl.SSLError() as cause):
            return f"no TLS connection: {cause.reason or type(cause).__name__}"
        case aiohttp.ClientConnectorError(os_error=cause):
            return f"no connection: {_reason(cause)}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refuses: it answered {error.status}"
        case TimeoutError():
            return "no connection in time"
        case OSError():
            return f"the connection broke: {_reason(error)}"
        case _:
            return f"the connection broke: {type(error).__name__}"


def _reason(error: OSError) -> str:
    """Give the operating system's own words; those of name servers have negative numbers."""
    number = error.errno or 0
    return (os.strerror(number) if number > 0 else error.strerror) or type(error).__name__


@asynccontextmanager
async def open_api(access: Access, limits: TransportLimits | None = None) -> AsyncIterator[KubernetesApi]:
    """Give an API server to talk to; nothing is dialled before it is used, and nothing is left open behind."""
    limits = limits or TransportLimits()
    sockets = Sockets()
    connector = aiohttp.TCPConnector(
        limit=limits.connections,
        ssl=access.tls if access.tls is not None else True,
        socket_factory=sockets.make,
    )
    session = aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # nothing compressed is asked for; what is sent all the same is no JSON
        headers={"User-Agent": f"iriscw/{__version__}"},
    )
    session._retry_connection = False  # aiohttp would repeat what is idempotent; the driver counts its attempts itself
    try:
        yield KubernetesApi(access, session, sockets, limits)
    finally:
        with anyio.CancelScope(shield=True):
            await session.close()
            await sockets.end()
