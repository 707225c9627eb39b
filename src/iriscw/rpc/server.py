"""A door: gRPC and HTTP/1.1 on one TCP port, and on a unix socket for whoever may open it.

What the door promises, beyond what grpclib does (the hazards are named in :mod:`iriscw.rpc.transport` and
:mod:`iriscw.rpc.server_calls`):

* Every call and every route that is not public needs a token, from loopback too. The unix socket, mode 0600,
  is the one exception.
* Off loopback it listens in plain text only when told so in words (``insecure_plaintext=True``).
* Strangers cost little: bounded connections, bytes and time until the first right token.
* Peers that come all at once are let in a few per turn of the loop (:mod:`iriscw.rpc.pacing`); HTTP/1.1, and calls on
  connections that stand, are served in between.
* :meth:`RpcServer.drain` ends, within its grace and a few seconds, on every Python: it follows its own
  connections instead of :meth:`asyncio.Server.wait_closed`, which waits for clients to hang up.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import ssl
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import anyio
import attrs
from grpclib._typing import IServable
from grpclib.const import Handler
from grpclib.events import _DispatchServerEvents

from iriscw._errors import InvalidArgument
from iriscw.rpc.address import Address
from iriscw.rpc.door import FirstBytes
from iriscw.rpc.errors import InsecureDoor, RpcUnavailable
from iriscw.rpc.http1 import HttpSide, Route
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.listening import (
    bind_unix,
    exposed_addresses,
    named_errors,
    peer_uid,
    require_asyncio,
    widen_backlog,
)
from iriscw.rpc.pacing import Turnstile
from iriscw.rpc.rules import ServicePart
from iriscw.rpc.server_calls import Authenticate, Calls, Prove, RequestTasks
from iriscw.rpc.transport import LINGER_S, BoundedCodec, BoundedProtocol
from iriscw.rpc.unfinished import Share, UnfinishedPool, UnfinishedStatistics

log = logging.getLogger(__name__)

Service: TypeAlias = IServable
"""A generated service class's object, or anything with ``__mapping__``: its methods by their routes."""

BACKLOG = 1024
"""Connections the kernel holds until they are accepted; a restart of the controller meets every worker at
once."""

ASKED_PER_TURN = 32
"""Peers that are asked in one turn of the loop whether they live, at some 0.2 ms each. It is a matter of seconds for
none: of 10,000 that are due at once the last is asked a few hundred turns later."""

CLEAN_UP_S = 5.0
"""What a drain waits for methods that were cancelled and still clean up."""


@attrs.frozen
class RpcServerStatistics:
    """What a server has done and holds now."""

    connections: int
    connections_refused: int
    connections_waiting: int
    most_begun_in_turn: int
    most_asked_in_turn: int
    calls_started: int
    calls_in_flight: int
    calls_failed: int
    calls_refused: int
    unfinished: UnfinishedStatistics


@attrs.frozen
class DrainReport:
    """How a drain went."""

    calls_cut: int
    """Calls that the grace did not suffice for; their callers were told that the server is unavailable."""

    methods_left: int
    """Methods that did not end after they were cancelled: a bug in them, logged."""


class RpcServer:
    """Serves services and routes. Use it as an async context manager, or call :meth:`drain` yourself.

    Args:
        services: instances of generated service classes.
        authenticate: says who holds a token; None if nobody does. Must not block.
        prove: asks somebody else about a token that ``authenticate`` does not know, for methods whose rule says so.
        routes: the HTTP/1.1 side; exact path to route.
        limits: every bound.
        tls: from :func:`iriscw.rpc.tls.server_tls`; used for TCP only.
        insecure_plaintext: allow :meth:`listen_tcp` off loopback without ``tls``.

    Raises:
        InvalidArgument: two services offer the same method, or no part of a service offers one of its methods.
    """

    def __init__(
        self,
        services: Collection[IServable],
        *,
        authenticate: Authenticate,
        prove: Prove | None = None,
        routes: Mapping[str, Route] | None = None,
        limits: RpcLimits | None = None,
        tls: ssl.SSLContext | None = None,
        insecure_plaintext: bool = False,
    ) -> None:
        self._limits = limits or RpcLimits()
        self._tls = tls
        self._insecure_plaintext = insecure_plaintext
        self._calls = Calls(authenticate, self._limits, prove)
        self._methods = _merge([self._calls.table(service) for service in services])
        _refuse_gaps(services, self._methods)
        self._http = HttpSide(routes or {}, authenticate, self._limits)
        self._codec = BoundedCodec(self._limits)
        self._pool = UnfinishedPool(self._limits)
        self._listeners: list[asyncio.Server] = []
        self._addresses: list[Address] = []
        self._sockets_on_disk: dict[Path, int] = {}
        # In the order in which they came, not in that of a set: a drain says goodbye in it.
        self._undecided: dict[FirstBytes, None] = {}
        self._turnstile = Turnstile(self._limits.connections_per_turn)
        self._asking = Turnstile(ASKED_PER_TURN)
        self._waiting: dict[asyncio.Transport, None] = {}
        self._http2: dict[_ServerProtocol, None] = {}
        self._http1: dict[asyncio.Task[None], asyncio.Transport] = {}
        self._refused = 0
        self._empty = asyncio.Event()

    @property
    def address(self) -> Address:
        """The first address that the server listens on.

        Raises:
            InvalidArgument: it listens on none.
        """
        if not self._addresses:
            raise InvalidArgument("the server does not listen yet")
        return self._addresses[0]

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Every address that the server listens on, in the order in which they were opened."""
        return tuple(self._addresses)

    def statistics(self) -> RpcServerStatistics:
        """Return the counts of this moment."""
        return RpcServerStatistics(
            connections=self._connections,
            connections_refused=self._refused,
            connections_waiting=len(self._waiting),
            most_begun_in_turn=self._turnstile.statistics().most_in_turn,
            most_asked_in_turn=self._asking.statistics().most_in_turn,
            calls_started=self._calls.started,
            calls_in_flight=self._calls.in_flight,
            calls_failed=self._calls.failed,
            calls_refused=self._calls.refused,
            unfinished=self._pool.statistics(),
        )

    async def listen_tcp(self, host: str, port: int) -> Address:
        """Open a TCP door. Port 0 takes a free one; the answer names it.

        Raises:
            InsecureDoor: the host is not loopback, there is no TLS, and nobody said ``insecure_plaintext``.
            InvalidAddress: the host has no address.
            AddressInUse: another process listens there.
            AddressUnavailable: the address is not this machine's, or not permitted.
        """
        exposed = await exposed_addresses(host, port)
        if exposed and self._tls is None and not self._insecure_plaintext:
            raise InsecureDoor(
                f"{host}:{port} can be reached from other machines ({', '.join(exposed)}) and would receive tokens "
                "in plain text: give certificates, or say insecure_plaintext=True"
            )
        tls_bound_s = self._limits.tls_handshake_timeout_s if self._tls else None
        with named_errors(f"{host}:{port}"):
            listener = await asyncio.get_running_loop().create_server(
                functools.partial(self._door, is_local=False),
                host or None,
                port,
                backlog=self._limits.accepts_per_turn,  # asyncio accepts so many before it looks at anything else
                ssl=self._tls,
                ssl_handshake_timeout=tls_bound_s,
            )
            widen_backlog(listener.sockets, BACKLOG)
        bound = listener.sockets[0].getsockname()
        address = Address(host=bound[0], port=bound[1], tls=self._tls is not None)
        return self._opened(listener, address)

    async def listen_unix(self, path: Path, *, uids: Collection[int] | None = None) -> Address:
        """Open a unix door, mode 0600. A socket left by a process that is gone is replaced.

        Args:
            path: where.
            uids: users whose processes may come in, as the kernel names them (``SO_PEERCRED``); others are cut off
                before a byte of theirs is read. None: whoever can open the socket.

        Raises:
            InvalidAddress: the path is relative or too long.
            AddressInUse: a process listens there.
            AddressUnavailable: the folder is missing or not writable, or something else has the name.
        """
        address = Address.parse(f"unix:{path}")
        with named_errors(str(address)):
            sock, inode = await asyncio.to_thread(bind_unix, path)
            listener = await asyncio.get_running_loop().create_unix_server(
                functools.partial(self._door, is_local=True, uids=uids), sock=sock, backlog=BACKLOG
            )
        self._sockets_on_disk[path] = inode
        return self._opened(listener, address)

    def _opened(self, listener: asyncio.Server, address: Address) -> Address:
        self._listeners.append(listener)
        self._addresses.append(address)
        log.info("listening on %s", address)
        return address

    async def drain(self, grace_s: float) -> DrainReport:
        """Stop: accept nothing more, let calls finish for ``grace_s`` seconds, then cut what is left.

        New calls on open connections are refused as unavailable meanwhile. Ends within ``grace_s`` and a few
        seconds for methods that clean up. Drained twice, the second finds nothing to do.
        """
        self._calls.draining = True
        self._stop_listening()
        with anyio.move_on_after(grace_s):
            await self._calls.wait_until_none()
        cut = self._calls.give_up_all(RpcUnavailable("the server is stopping"))
        with anyio.move_on_after(LINGER_S):  # for the callers' trailers; a peer that does not read gets none
            await self._calls.wait_until_none()
        await self._close_connections()
        left = await self._calls.wait_for_methods(CLEAN_UP_S)
        if left:
            log.error("%d methods did not end within %g s after they were cancelled", left, CLEAN_UP_S)
        return DrainReport(calls_cut=cut, methods_left=left)

    async def __aenter__(self) -> Self:
        """Return the server; :meth:`listen_tcp` and :meth:`listen_unix` open its doors.

        Raises:
            NeedsAsyncio: this is not a task of an asyncio loop.
        """
        require_asyncio()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Drain without grace, also when cancelled."""
        with anyio.CancelScope(shield=True):  # bounded: drain ends by itself
            await self.drain(0)

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        for path, inode in self._sockets_on_disk.items():
            with contextlib.suppress(FileNotFoundError):  # Python 3.13 removes it itself
                if path.stat().st_ino == inode:
                    path.unlink()
        self._listeners.clear()
        self._sockets_on_disk.clear()

    async def _close_connections(self) -> None:
        for undecided in list(self._undecided):
            if undecided.transport is not None:
                undecided.transport.abort()
        for waiting in list(self._waiting):
            waiting.abort()
        for protocol in list(self._http2):
            protocol.connection.goodbye("the server is stopping")
        for task in list(self._http1):
            task.cancel()
        with anyio.move_on_after(2 * LINGER_S):  # every connection cuts itself after LINGER_S
            while self._connections:
                self._empty.clear()
                await self._empty.wait()
        for transport in list(self._http1.values()):
            transport.abort()

    # Connections, from the first byte to the last.

    @property
    def _connections(self) -> int:
        return len(self._undecided) + len(self._waiting) + len(self._http2) + len(self._http1)

    def _door(self, *, is_local: bool, uids: Collection[int] | None = None) -> FirstBytes:
        return FirstBytes(
            functools.partial(self._admit, uids=uids),
            http2=functools.partial(self._take_http2, is_local=is_local),
            http1=functools.partial(self._take_http1, is_local=is_local),
            lost=self._forget_undecided,
            timeout_s=self._limits.first_bytes_timeout_s,
        )

    def _admit(self, newcomer: FirstBytes, *, uids: Collection[int] | None = None) -> bool:
        if self._calls.draining or self._connections >= self._limits.max_connections:
            self._refused += 1
            return False
        if uids is not None and (uid := peer_uid(newcomer.transport)) not in uids:
            log.warning("cutting off a process of user %d, who may not come in", uid)
            self._refused += 1
            return False
        self._undecided[newcomer] = None
        return True

    def _forget_undecided(self, newcomer: FirstBytes) -> None:
        self._undecided.pop(newcomer, None)
        self._empty.set()

    def _take_http2(self, transport: asyncio.Transport, seen: bytes, *, is_local: bool) -> None:
        self._waiting[transport] = None
        if not self._turnstile.enter(functools.partial(self._begin_http2, transport, seen, is_local=is_local)):
            transport.pause_reading()  # what it sends meanwhile waits in the kernel, not here

    def _begin_http2(self, transport: asyncio.Transport, seen: bytes, *, is_local: bool) -> None:
        self._waiting.pop(transport, None)
        if transport.is_closing():  # while it waited
            self._empty.set()
            return
        if not transport.is_reading():
            transport.resume_reading()
        requests = RequestTasks(self._methods, self._codec, None, _DispatchServerEvents())
        protocol = _ServerProtocol(
            requests,
            self._limits,
            is_local=is_local,
            share=self._pool.share(),
            asking=self._asking,
            lost=self._forget_http2,
        )
        self._http2[protocol] = None
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(seen)

    def _forget_http2(self, protocol: _ServerProtocol) -> None:
        self._http2.pop(protocol, None)
        self._empty.set()

    def _take_http1(self, transport: asyncio.Transport, seen: bytes, *, is_local: bool) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=self._limits.max_head_bytes, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(seen)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        task = loop.create_task(self._http.serve(reader, writer, trusted=is_local))
        self._http1[task] = transport
        task.add_done_callback(self._forget_http1)

    def _forget_http1(self, task: asyncio.Task[None]) -> None:
        del self._http1[task]
        self._empty.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an HTTP/1.1 connection failed", exc_info=error)


class _ServerProtocol(BoundedProtocol):
    """The server's side of one HTTP/2 connection: a stranger's until its first right token."""

    def __init__(
        self,
        requests: RequestTasks,
        limits: RpcLimits,
        *,
        is_local: bool,
        share: Share,
        asking: Turnstile,
        lost: Callable[[_ServerProtocol], None],
    ) -> None:
        super().__init__(requests, limits, client_side=False)
        self._is_local = is_local
        self._share = share
        self._asking = asking
        self._lost = lost
        self._stranger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start HTTP/2 and the clock of strangers."""
        super().connection_made(transport)
        self.connection.is_local = self.connection.authenticated = self._is_local
        self.connection.share = self._share
        self.connection.asking = self._asking
        if not self._is_local:
            self._stranger = asyncio.get_running_loop().call_later(self.limits.first_call_timeout_s, self._end_stranger)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End every call of the connection."""
        if self._stranger is not None:
            self._stranger.cancel()
        super().connection_lost(exc)
        self._lost(self)

    def _end_stranger(self) -> None:
        if not self.connection.authenticated:
            log.info("closing the connection to %s: no call with a right token", self.connection.peer_name)
            self.connection.goodbye("no call with a right token")


def _merge(tables: list[dict[str, Handler]]) -> dict[str, Handler]:
    merged: dict[str, Handler] = {}
    for table in tables:
        for route, method in table.items():
            if merged.setdefault(route, method) is not method:
                raise InvalidArgument(f"two services offer {route}")
    return merged


def _refuse_gaps(services: Collection[IServable], methods: Mapping[str, Handler]) -> None:
    for service in services:
        if isinstance(service, ServicePart):
            for route in service.__mapping__():
                if route not in methods:
                    raise InvalidArgument(f"no part of the service offers {route}")
