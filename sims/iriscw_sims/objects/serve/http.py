"""A simulated storage behind a port of the loopback, whatever its clients speak: requests are read, sent through a
front, and answered, or their connections are broken.
"""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Self

import attrs
from aiohttp import web

from iriscw._errors import InvalidArgument
from iriscw.runtime.vocabulary import MILLISECOND
from iriscw_sims.coreweave.settings import Span
from iriscw_sims.objects.front import ObjectFront, Outcome
from iriscw_sims.objects.messages import Answer, Request
from iriscw_sims.objects.refusals import Refused
from iriscw_sims.objects.rules import GIB
from iriscw_sims.objects.serve.answers import HttpAnswer
from iriscw_sims.objects.serve.requests import HttpRequest
from iriscw_sims.objects.serve.surroundings import HostSurroundings
from iriscw_sims.objects.settings import FrontSettings
from iriscw_sims.objects.storage import ObjectStorage

CLOSE_S = 2.0
"""Seconds that answers in the making have left when the server ends, before they are cut off."""

CHUNK_BYTES = 1 << 18
"""Of an answer's body, written at a time."""

MAX_BODY_BYTES = GIB // 4
"""Of a request: what the memory of a test machine has room for."""

HASTY = FrontSettings(
    latency=Span(0, MILLISECOND),
    latency_slow=Span(20 * MILLISECOND, 200 * MILLISECOND),
    patience=300 * MILLISECOND,
    landing_late=Span(0, 300 * MILLISECOND),
    up_bytes_per_s=4 * GIB,
    down_bytes_per_s=4 * GIB,
    stream_bytes_per_s=GIB,
    propagation=Span(100 * MILLISECOND, 500 * MILLISECOND),
    denial=Span(20 * MILLISECOND, 200 * MILLISECOND),
)
"""Real time is dear: everything takes milliseconds, and patience ends soon."""


class HttpServer:
    """A simulated storage, served over HTTP. An async context manager.

    Args:
        storage: What is served.
        surroundings: Time, chance and a trace.
        settings: How long everything takes.
        tls: With which certificate; None: plain HTTP.

    Raises:
        OSError: (on entering) there is no port to be had.
    """

    def __init__(
        self,
        storage: ObjectStorage,
        surroundings: HostSurroundings | None = None,
        settings: FrontSettings = HASTY,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.storage = storage
        self.surroundings = surroundings or HostSurroundings()
        self.front = ObjectFront(storage, self.surroundings, settings)
        self.served: list[HttpRequest] = []
        """What came in, without the bodies."""
        self._tls = tls
        self._server: web.Server | None = None
        self._listening: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where it listens.

        Raises:
            InvalidArgument: it does not, yet.
        """
        if self._listening is None:
            raise InvalidArgument("the server was not entered")
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self._server = web.Server(self._answer, access_log=None, auto_decompress=False, handler_cancellation=True)
        self._listening = await asyncio.get_running_loop().create_server(self._server, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listening is not None
        assert self._server is not None
        self._listening.close()
        self._server.pre_shutdown()
        await self._server.shutdown(CLOSE_S)
        self._listening = None

    async def answered(self, asked: HttpRequest) -> HttpAnswer | None:
        """Return the answer to a request; None: its connection breaks.

        Raises:
            Refused: the request cannot be read.
        """
        raise NotImplementedError

    def refused(self, answer: Answer) -> HttpAnswer:
        """Say no to what could not be read."""
        raise NotImplementedError

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        try:
            asked = await _read(http)
            self.served.append(attrs.evolve(asked, body=b""))
            answer = await self.answered(asked)
        except Refused as no:
            return await _send(http, self.refused(no.answer))
        except (ConnectionError, web.HTTPException):
            return _hang_up(http)
        return _hang_up(http) if answer is None else await _send(http, answer)

    async def send(self, request: Request) -> Outcome:
        """Send a request through the front; a caller who goes away abandons it."""
        heard: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def answered(outcome: Outcome) -> None:
            if not heard.done():
                heard.set_result(outcome)

        exchange = self.front.send(request, answered)
        try:
            return await heard
        finally:
            exchange.abandon()


async def _read(http: web.BaseRequest) -> HttpRequest:
    if (http.content_length or 0) > MAX_BODY_BYTES:
        raise Refused("EntityTooLarge")
    body = bytearray()
    async for chunk in http.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise Refused("EntityTooLarge")
    path, _, query = http.raw_path.partition("?")
    headers = {name.lower(): value for name, value in http.headers.items()}
    host = http.host.rpartition(":")[0] or http.host
    return HttpRequest(http.method, host, path, query, headers, bytes(body))


async def _send(http: web.BaseRequest, answer: HttpAnswer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    try:
        await response.prepare(http)
        for chunk in answer.body.chunks(CHUNK_BYTES):
            await response.write(chunk)
        if len(answer.body) < answer.length:
            return _hang_up(http)
        await response.write_eof()
    except ConnectionError:
        return _hang_up(http)
    return response


def _hang_up(http: web.BaseRequest) -> web.StreamResponse:
    """Break the connection; what is returned reaches nobody."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response()
