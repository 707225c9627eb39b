"""A simulated cluster behind a port: assembled, listening, and taken down without a trace.

Theory of operation. One task lets simulated time pass (:mod:`iriscw_sims.serve.live`); each connection has one of its
own. Leaving the ``async with`` block ends them in order: no new connections, watches and streams cancelled (their
readers see the end of an answer, and list again elsewhere), then time stands still. If simulated time fails, because
its controllers do again and again, the block is cancelled and the error comes out of it.

The port is loopback's unless the settings say otherwise, and off loopback it speaks TLS, as every door of iriscw does
that was not told otherwise in words. Every request needs the token, which is drawn at the start and only ever written
to the kubeconfig.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
import time
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Self

import attrs
from aiohttp import web

from iriscw._errors import InvalidArgument
from iriscw.files import read_bounded
from iriscw.rpc.errors import InsecureDoor, InvalidTls
from iriscw.rpc.listening import exposed_addresses, named_errors
from iriscw.rpc.tokens import Secret, mint_token
from iriscw_sims.coreweave.deployments import Deployments
from iriscw_sims.kube.store import Store
from iriscw_sims.serve.cluster import Inhabitants, build
from iriscw_sims.serve.door import Door, DoorStatistics
from iriscw_sims.serve.kubeconfig import write_kubeconfig
from iriscw_sims.serve.live import Controllers, Live
from iriscw_sims.serve.scripted import ScriptedStreams
from iriscw_sims.serve.settings import ServeSettings
from iriscw_sims.serve.streams import PodStreams
from iriscw_sims.serve.surroundings import LiveSurroundings
from iriscw_sims.serve.timeline import Clock, Timeline


def _without_request(record: logging.LogRecord) -> bool:
    """Take off what aiohttp shows of a request that it could not read: its first line may hold the token."""
    record.exc_info = record.exc_text = None
    return True


_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_without_request)

CERTIFICATE_BYTES = 2**16
"""Of a certificate chain; each of its certificates has some 2 KiB."""

CLOSE_S = 2.0
"""Seconds that answers in the making have left when the server ends, before they are cut off."""

MAX_LINE_BYTES = 2**16
"""Of a request line: a list's token and a command's words stand in it. Go's server takes 1 MiB of headers in all."""

LINGER_S = 1.0
"""Seconds in which the rest of a refused body is read, so that its sender sees the refusal."""

FILES_KEPT = 64
"""Of the files that the process may open, those that are not for connections: without one left, none can be refused."""


@attrs.frozen
class ServeStatistics:
    """A served simulation in figures."""

    door: DoorStatistics
    connections: int
    now: int
    """Simulated, in ns since 1970."""
    behind: int
    """Simulated ns that the machine is too slow for the speed."""
    timers: int
    objects: int
    failures: int
    """Errors of simulated controllers; each is in the log."""


class _BoundedServer(web.Server):
    """Takes a limited number of connections."""

    def __init__(self, answer: Callable[[web.BaseRequest], Any], limit: int, headers_s: float) -> None:
        super().__init__(
            answer,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=headers_s,
            lingering_time=LINGER_S,
            logger=_http_log,
            max_line_size=MAX_LINE_BYTES,
        )
        self._limit = limit

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Take a connection, or close it at once if there are too many."""
        super().connection_made(handler, transport)
        if len(self.connections) > self._limit:
            transport.abort()


class SimServer:
    """A simulated cluster, served over HTTP. An async context manager.

    Args:
        settings: Where, as what, how fast.
        streams: Who knows the inside of containers; by default they only say that they are simulated.
        containers: Who runs what is in pods; by default nothing runs there.
        monotonic_ns: Real time, for tests.

    Raises:
        InvalidArgument: a pool to begin with is none.
        InsecureDoor: (on entering) the host is not loopback, there is no TLS, and nobody said ``insecure_plaintext``.
        InvalidAddress: (on entering) the host has no address.
        AddressInUse: (on entering) another process listens there.
        AddressUnavailable: (on entering) the address is not this machine's, or not permitted.
        InvalidTls: (on entering) the certificate or its key cannot be used.
        OSError: (on entering) the kubeconfig cannot be written.
    """

    def __init__(
        self,
        settings: ServeSettings,
        *,
        streams: PodStreams | None = None,
        containers: Inhabitants | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.settings = settings
        self.timeline = Timeline(Clock(time.time_ns(), monotonic_ns, settings.speed))
        self.store = Store(rng=Random(settings.seed), version=settings.version, now=self.timeline.now)
        self.surroundings = LiveSurroundings(self.timeline, settings.seed, settings.faults)
        self.coreweave = build(settings, self.store, self.surroundings, containers) if settings.controllers else None
        """The simulated CoreWeave, for those who want to strike it; None if there is an API server alone."""
        controllers: list[Controllers] = []
        if self.coreweave is not None:
            controllers += [self.coreweave, Deployments(self.coreweave.site)]
        self.live = Live(self.store, self.timeline, controllers)
        self._token = mint_token()
        inside = streams or ScriptedStreams(self.coreweave.exec_ready if self.coreweave else None)
        self._door = Door(self.live, self._token, inside, settings.limits)
        self._server: _BoundedServer | None = None
        self._listening: asyncio.Server | None = None
        self._time: asyncio.Task[None] | None = None
        self._host_task: asyncio.Task[Any] | None = None
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """Where the server is reached: ``http://127.0.0.1:41234``."""
        if self._listening is None:
            raise InvalidArgument("the server has no address outside of its block")
        host, port = self._listening.sockets[0].getsockname()[:2]
        scheme = "https" if self.settings.tls_cert else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def token(self) -> Secret:
        """What callers have to show."""
        return self._token

    def statistics(self) -> ServeStatistics:
        """Return figures of now."""
        return ServeStatistics(
            door=self._door.statistics(),
            connections=len(self._server.connections) if self._server else 0,
            now=self.timeline.now,
            behind=self.timeline.behind,
            timers=self.timeline.waiting,
            objects=sum(len(each.objects) for each in self.store.collections),
            failures=self.live.failures,
        )

    async def __aenter__(self) -> Self:
        """Listen, write the kubeconfig, and let time pass."""
        settings = self.settings
        context, certificate = _tls(settings)
        exposed = await exposed_addresses(settings.host, settings.port)
        if exposed and context is None and not settings.insecure_plaintext:
            raise InsecureDoor(
                f"{settings.host}:{settings.port} can be reached from other machines ({', '.join(exposed)}) and would "
                "receive the token in plain text: give certificates, or say insecure_plaintext=True"
            )
        self._server = _BoundedServer(self._door.answer, _connections(settings), settings.limits.headers_s)
        loop = asyncio.get_running_loop()
        with named_errors(f"{settings.host}:{settings.port}"):
            self._listening = await loop.create_server(self._server, settings.host, settings.port, ssl=context)
        try:
            if settings.kubeconfig is not None:
                write_kubeconfig(settings.kubeconfig, self.url, self._token, certificate)
        except BaseException:
            self._listening.close()
            raise
        self._host_task = asyncio.current_task()
        self._time = loop.create_task(self.live.run(), name="iriscw simulated time")
        self._time.add_done_callback(self._time_ended)
        return self

    def _time_ended(self, task: asyncio.Task[None]) -> None:
        """End the block if time failed."""
        if task.cancelled() or task.exception() is None:
            return
        self._failure = task.exception()
        if self._host_task is not None:
            self._host_task.cancel("simulated time failed")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything that was begun."""
        try:
            await self._close()
        except asyncio.CancelledError as cancelled:
            error = cancelled
            if self._failure is None:
                raise
        if self._failure is not None:
            if self._host_task is not None and isinstance(error, asyncio.CancelledError):
                self._host_task.uncancel()  # the cancellation was ours
            raise self._failure

    async def _close(self) -> None:
        assert self._listening is not None
        assert self._server is not None
        assert self._time is not None
        self._listening.close()
        self._server.pre_shutdown()
        self.live.close()
        try:
            await self._server.shutdown(CLOSE_S)
        finally:
            self._time.cancel()
            await asyncio.wait([self._time])
            self._listening = None


def _connections(settings: ServeSettings) -> int:
    """Return how many connections there may be: what the process may open limits them, too."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(settings.limits.connections, max(1, files - FILES_KEPT))


def _tls(settings: ServeSettings) -> tuple[ssl.SSLContext | None, bytes]:
    if settings.tls_cert is None or settings.tls_key is None:
        return None, b""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
        certificate = read_bounded(settings.tls_cert, CERTIFICATE_BYTES)
    except (OSError, ValueError) as wrong:
        raise InvalidTls(
            f"the certificate {settings.tls_cert} with the key {settings.tls_key} cannot be used: {wrong}"
        ) from wrong
    return context, certificate


async def serve(settings: ServeSettings, ready: Callable[[SimServer], None] = lambda _server: None) -> None:
    """Serve a simulated cluster until cancelled.

    Args:
        settings: Where, as what, how fast.
        ready: Is called once, when the server can be reached.

    Raises:
        InvalidArgument: a pool to begin with is none.
        InsecureDoor: the host is not loopback, there is no TLS, and nobody said ``insecure_plaintext``.
        InvalidAddress: the host has no address.
        AddressInUse: another process listens there.
        AddressUnavailable: the address is not this machine's, or not permitted.
        InvalidTls: the certificate or its key cannot be used.
        OSError: the kubeconfig cannot be written.
    """
    async with SimServer(settings) as server:
        ready(server)
        await asyncio.Event().wait()
