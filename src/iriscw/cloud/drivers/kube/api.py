"""The port to an API server, over HTTP: one request, one answer; one watch, one connection.

Theory of operation. This is transport and nothing else: it decides nothing about Kubernetes, and repeats nothing. Each
request has a deadline, each answer a size, and each watch a longest silence and a longest line; what goes beyond is
``ApiUnreachable``, as is everything that a network does. An answer is an answer whatever its code and its body: a
proxy's error page, a redirect (which is not followed: it would carry the token elsewhere), a ``Status``.

*A connection can die without anybody being told.* TCP's own probes find a host that is gone, the longest silence a
program that hangs. *A reader may be slow*: then nothing is read ahead but the socket's buffer, and the server waits.

*Secrets stay in*: :mod:`iriscw.cloud.drivers.kube.faults`.
"""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import anyio
import attrs

from iriscw.cloud.drivers.kube.access import ClusterAccess
from iriscw.cloud.drivers.kube.answers import decoded, event_of, refusal_event, retry_after_of
from iriscw.cloud.drivers.kube.faults import deadline, hang_up, network
from iriscw.cloud.drivers.kube.limits import TransportLimits
from iriscw.cloud.drivers.kube.lines import Lines
from iriscw.cloud.drivers.kube.sockets import Sockets
from iriscw.cloud.drivers.kube.streams import AnswerBody, Channels
from iriscw.cloud.drivers.kube.upgrades import Upgrades, new_session, refusal_kept
from iriscw.cloud.kube.messages import ApiRequest, ApiResponse, ApiUnreachable
from iriscw.cloud.kube.refusals import answered, judged, names_absence
from iriscw.cloud.model import Forbidden


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
    open_streams: int = 0
    """Now: commands, logs and ports."""
    open_sockets: int = 0
    """Now: of requests and watches, and those that wait to be used again."""


class KubernetesApi:
    """Reaches one API server. Made by :func:`open_api`.

    Args:
        access: The way there.
        session: What carries the requests.
        upgrades: What opens websockets, over the same connections.
        sockets: What it makes its connections of.
        limits: Deadlines and sizes.
    """

    def __init__(
        self,
        access: ClusterAccess,
        session: aiohttp.ClientSession,
        upgrades: Upgrades,
        sockets: Sockets,
        limits: TransportLimits,
    ) -> None:
        self._access = access
        self._upgrades = upgrades
        self._sockets = sockets
        self._session = session
        self._limits = limits
        self._streams = anyio.Semaphore(limits.stream_places)
        self._counts = dict.fromkeys((field.name for field in attrs.fields(ApiStatistics)), 0)

    def __repr__(self) -> str:
        return f"<KubernetesApi of {self._access.server}>"

    def statistics(self) -> ApiStatistics:
        """Return figures of now."""
        return ApiStatistics(**{**self._counts, "open_sockets": self._sockets.open})

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Make a request once, and give the answer, whatever its code.

        Raises:
            ApiUnreachable: there was none.
        """
        with network(self._counts), deadline(self._limits.request_s, "an answer"):
            response = await self._send(request)
            try:
                answer = await self._answer(response)
            finally:
                hang_up(response)
            # What comes out of a pod is its node's to refuse, in other words: it takes other ways.
            if answer.code == 404 and not names_absence(answer.body):
                raise ApiUnreachable("the answer 404 is not an API server's: it does not say what is not there")
        return answer

    async def watch(self, request: ApiRequest) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the events of a watch until the server ends it; a refusal comes as one event of type ``ERROR``.

        Leaving the iteration closes the connection. A reader who does not come holds up the server, not memory.

        Raises:
            ApiUnreachable: the connection could not be made, broke, went silent, or brought what is not a watch.
        """
        with network(self._counts):
            with deadline(self._limits.open_s, "the beginning of a watch"):
                response = await self._send(request)
            self._counts["open_watches"] += 1
            try:
                if response.status != 200:
                    with deadline(self._limits.request_s, "an answer"):
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
                hang_up(response)

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[None]:
        """Take a place among the streams."""
        with (
            network(self._counts),
            deadline(self._limits.open_s, f"a place among {self._limits.stream_places} streams"),
        ):
            await self._streams.acquire()
        self._counts["open_streams"] += 1
        try:
            yield
        finally:
            self._counts["open_streams"] -= 1
            self._streams.release()

    @asynccontextmanager
    async def body(self, request: ApiRequest) -> AsyncIterator[AnswerBody | ApiResponse]:
        """Make a request whose answer comes bit by bit; a refusal is given as the answer that it is.

        Raises:
            ApiUnreachable: there was no beginning of an answer.
        """
        async with self._stream():
            with network(self._counts), deadline(self._limits.open_s, "the beginning of an answer"):
                response = await self._send(request, accept="application/json, */*")
            try:
                if response.status == 200:
                    yield AnswerBody(response, self._counts)
                    return
                with network(self._counts), deadline(self._limits.request_s, "an answer"):
                    answer = await self._answer(response)
                yield answer
            finally:
                hang_up(response)

    @asynccontextmanager
    async def channels(self, request: ApiRequest, protocols: Sequence[str]) -> AsyncIterator[Channels | ApiResponse]:
        """Open a websocket of channels; a refusal is given as the answer that it is. Leaving the block closes it.

        Args:
            request: Where; its method and body do not count.
            protocols: Which subprotocols are understood, the best first.

        Raises:
            ApiUnreachable: there was no answer, or one that is not a websocket of ours.
        """
        async with self._stream():
            with network(self._counts), deadline(self._limits.open_s, "an open connection"):
                headers = await self._headers("*/*")
                self._counts["requests"] += 1
                url = url_of(self._access.url, request)
                opened = await self._upgrades.open(url, headers, protocols, self._answer)
            if isinstance(opened, ApiResponse):
                self._judge(opened.code)
                yield opened
                return
            channels = Channels(opened, self._counts, self._limits.request_s)
            try:
                yield channels
            finally:
                await channels.close()

    async def _more(self, response: aiohttp.ClientResponse) -> bytes:
        """Return what has come, or wait for it; empty at the end."""
        with deadline(self._limits.silence_s, "anything on a watch"):
            chunk = await response.content.readany()
        self._counts["received_bytes"] += len(chunk)
        return chunk

    async def _headers(self, accept: str) -> dict[str, str]:
        if self._session.closed:
            raise ApiUnreachable("the way to the cluster was closed")
        header = await self._access.credentials.header()
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        return headers if header is None else {**headers, "Authorization": header.reveal()}

    async def _send(self, request: ApiRequest, accept: str = "application/json") -> aiohttp.ClientResponse:
        access = self._access
        headers = await self._headers(accept)
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
        self._judge(response.status)
        return response

    def _judge(self, code: int) -> None:
        """Take note of an answer's code."""
        self._counts["refusals"] += code >= 400
        self._counts["throttled"] += code == 429
        if code == 401:
            self._access.credentials.refused()

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
        answer = ApiResponse(response.status, decoded(data), retry_after)
        if answer.code == 403 and isinstance(judged(answered(answer)), Forbidden):
            self._access.credentials.refused()
        return answer


def url_of(base: str, request: ApiRequest) -> str:
    """Write where a request goes."""
    query = f"?{urlencode(request.query)}" if request.query else ""
    return f"{base}{quote(request.path)}{query}"


@asynccontextmanager
async def open_api(access: ClusterAccess, limits: TransportLimits | None = None) -> AsyncIterator[KubernetesApi]:
    """Yield an API server to talk to; nothing is dialled before it is used, and nothing is left open behind."""
    limits = limits or TransportLimits()
    sockets = Sockets()
    connector = aiohttp.TCPConnector(
        limit=limits.connections,
        ssl=access.tls if access.tls is not None else True,
        socket_factory=sockets.make,
    )
    session = new_session(connector, limits)
    upgrades = Upgrades(new_session(connector, limits, [refusal_kept()]), access)
    try:
        yield KubernetesApi(access, session, upgrades, sockets, limits)
    finally:
        with anyio.CancelScope(shield=True):
            await upgrades.session.close()
            await session.close()
            await connector.close()
            await sockets.end()
