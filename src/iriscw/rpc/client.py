"""The calling side: one connection to one address, on which any number of calls run.

Every call has a deadline and ends in an answer or in one named error (:mod:`iriscw.rpc.errors`, or the error
that the service raised). The connection is made by the first call and made again by the first call after it
was lost.

Four shapes, because four lifetimes::

    reply = await channel.unary(route, request, Reply)
    reply = await channel.client_stream(route, requests, Request, Reply)
    async with channel.server_stream(route, request, Reply) as replies: async for reply in replies: ...
    async with channel.bidi(route, Request, Reply) as call: await call.send(request); async for reply in call:
    ...

The streams are context managers since leaving the block is what ends the call: an iterator alone would leave
that to the garbage collector. There is no sending task and no queue: a send waits for HTTP/2's flow control,
so the bound on what is in flight is the peer's window, and an error of the sender is raised where it
happened.

**Retries.** A unary call marked ``safe`` (it changes nothing), or carrying an idempotency key, is repeated
after retryable errors with exponential backoff and full jitter, within its deadline. No other call is ever
repeated.
"""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import anyio
import attrs
from grpclib.const import Cardinality

from iriscw._errors import IriscwError, OperationError
from iriscw.rpc.address import Address
from iriscw.rpc.client_call import CallStream, Connector
from iriscw.rpc.context import IDEMPOTENCY_KEY, PROTOCOL_KEY, PROTOCOL_VERSION
from iriscw.rpc.errors import ClientClosed, InsecureDoor, MalformedReply, RpcDeadline, RpcUnavailable, WrongLoop
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.listening import require_asyncio, running_loop
from iriscw.rpc.tls import client_tls
from iriscw.rpc.tokens import Secret

Request = TypeVar("Request")
Reply = TypeVar("Reply")

BACKOFF_FIRST_S = 0.1
"""The mean of the first pause is half of this; each further one doubles."""

BACKOFF_LONGEST_S = 5.0
"""Thousands of workers come back to a restarted controller within about this time, spread by the jitter."""


@attrs.frozen
class RpcChannelStatistics:
    """What a channel has done."""

    calls_started: int
    calls_failed: int
    retries: int


class RpcChannel:
    """Calls to one server. Close it, or use it as an async context manager.

    Args:
        address: as :meth:`iriscw.rpc.address.Address.parse` reads it.
        token: sent with every call; None for a unix socket.
        tls: from :func:`iriscw.rpc.tls.client_tls`; without it an ``https://`` address uses the system's
        authorities. server_name: what the server's certificate has to hold, where that is not the address's host: the
        far end of a tunnel. limits: every bound. insecure_plaintext: send the token off this machine without TLS.
        rng: draws the jitter of retries.

    Raises:
        InvalidAddress: the text is not an address.
        NeedsAsyncio: it is made outside of an asyncio loop.
        InsecureDoor: the token would leave this machine in plain text, and nobody said
        ``insecure_plaintext``.
    """

    def __init__(
        self,
        address: str | Address,
        token: Secret | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        limits: RpcLimits | None = None,
        insecure_plaintext: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        self.address = Address.parse(address) if isinstance(address, str) else address
        if self.address.tls and tls is None:
            tls = client_tls()
        if token is not None and tls is None and not insecure_plaintext and not self.address.is_loopback:
            raise InsecureDoor(
                f"the token would travel to {self.address} in plain text: use https://, or say insecure_plaintext=True"
            )
        require_asyncio()
        self._loop = running_loop()
        self._limits = limits or RpcLimits()
        self._connector = Connector(self.address, tls, self._limits, server_name)
        self._token = token
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, keeps no secret
        self._started = self._failed = self._retries = 0
        self._closed = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<RpcChannel to {self.address}>"

    def statistics(self) -> RpcChannelStatistics:
        """Return the counts of this moment."""
        return RpcChannelStatistics(self._started, self._failed, self._retries)

    def close(self) -> None:
        """Close the connection for good; calls under way end as unavailable."""
        self._closed = True
        self._connector.close()

    async def __aenter__(self) -> Self:
        """Return the channel. The first call connects."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    async def unary(
        self,
        route: str,
        request: object,
        reply_type: type[Reply],
        *,
        timeout_s: float | None = None,
        safe: bool = False,
        idempotency_key: str = "",
        metadata: Mapping[str, str] | None = None,
        on_retry: Callable[[OperationError], None] | None = None,
    ) -> Reply:
        """Ask once and get one answer.

        Args:
            route: ``/package.Service/Method``.
            request: the message.
            reply_type: the message expected back.
            timeout_s: for everything, retries included; ``limits.unary_timeout_s`` if None.
            safe: the call changes nothing, so it may be repeated.
            idempotency_key: the service recognises a repeated call by it, so it may be repeated.
            metadata: sent along.
            on_retry: told why, before each pause that a repetition follows. Must not raise.

        Raises:
            ClientClosed: the channel was closed.
            WrongLoop: it was made on another event loop than this call's.
            RpcDeadline: no answer in time; it may have had its effect.
            RpcUnavailable: no connection, or it was lost. Likewise.
            IriscwError: what the service or the door raised.
        """
        timeout_s = self._limits.unary_timeout_s if timeout_s is None else timeout_s
        deadline = anyio.current_time() + timeout_s
        sent = dict(metadata or {})
        if idempotency_key:
            sent[IDEMPOTENCY_KEY] = idempotency_key
        pause_s = BACKOFF_FIRST_S
        while True:
            try:
                return await self._unary_once(route, request, reply_type, deadline - anyio.current_time(), sent)
            except OperationError as error:
                wait_s = self._rng.uniform(0, pause_s)
                repeatable = (safe or idempotency_key) and error.retryable and not isinstance(error, RpcDeadline)
                if not repeatable or anyio.current_time() + wait_s >= deadline:
                    raise
                if on_retry is not None:
                    on_retry(error)
                met = error
            await anyio.sleep(wait_s)
            if anyio.current_time() >= deadline:  # a busy process wakes late
                raise met
            self._retries += 1
            pause_s = min(2 * pause_s, BACKOFF_LONGEST_S)

    async def _unary_once(
        self,
        route: str,
        request: object,
        reply_type: type[Reply],
        timeout_s: float,
        metadata: dict[str, str],
    ) -> Reply:
        shape = Cardinality.UNARY_UNARY
        async with self._call(route, shape, type(request), reply_type, timeout_s, metadata) as call:
            await call.send_message(request, end=True)
            return cast("Reply", await call.only_reply())

    @asynccontextmanager
    async def server_stream(
        self,
        route: str,
        request: object,
        reply_type: type[Reply],
        *,
        timeout_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncIterator[AsyncIterator[Reply]]:
        """Ask once and iterate over the answers. Leaving the block ends the call.

        Args and errors are those of :meth:`unary`; ``limits.stream_timeout_s`` bounds the whole stream if
        ``timeout_s`` is None. The errors come from the iteration.
        """
        shape = Cardinality.UNARY_STREAM
        async with self._call(route, shape, type(request), reply_type, timeout_s, metadata) as call:
            await call.send_message(request, end=True)
            yield call.replies()

    async def client_stream(
        self,
        route: str,
        requests: AsyncIterable[Request] | Iterable[Request],
        request_type: type[Request],
        reply_type: type[Reply],
        *,
        timeout_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send many messages and get one answer, which may come before the last was sent.

        Args and errors are those of :meth:`unary`, and whatever ``requests`` raises.
        """
        shape = Cardinality.STREAM_UNARY
        failure: BaseException | None = None
        reply: Reply | None = None
        async with self._call(route, shape, request_type, reply_type, timeout_s, metadata) as call:
            await call.send_request()

            async def send_all() -> None:
                nonlocal failure
                try:
                    await _send_all(call, requests)
                except Exception as error:  # noqa: BLE001 - raised below, without the group around it
                    failure = error
                    tasks.cancel_scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send_all)
                try:
                    reply = await call.only_reply()
                except Exception as error:  # noqa: BLE001 - raised below; the peer's word explains the sender's
                    failure = error
                tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure
        if reply is None:
            raise MalformedReply(f"{route} ended without an answer")
        return reply

    @asynccontextmanager
    async def bidi(
        self,
        route: str,
        request_type: type[Request],
        reply_type: type[Reply],
        *,
        timeout_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncIterator[BidiCall[Request, Reply]]:
        """Open a call that sends and receives. Leaving the block ends it.

        Args and errors are those of :meth:`server_stream`.
        """
        shape = Cardinality.STREAM_STREAM
        async with self._call(route, shape, request_type, reply_type, timeout_s, metadata) as call:
            await call.send_request()
            yield BidiCall(call)

    @asynccontextmanager
    async def _call(
        self,
        route: str,
        shape: Cardinality,
        request_type: type[Any],
        reply_type: type[Reply],
        timeout_s: float | None,
        metadata: Mapping[str, str] | None,
    ) -> AsyncIterator[CallStream]:
        if os.getpid() != self._pid:
            raise ClientClosed(f"the client of {self.address} belongs to the process that this one was forked from")
        if self._closed:
            raise ClientClosed(f"the client of {self.address} was used after its block: connect again")
        if running_loop() is not self._loop:  # its connection would wait for that one
            raise WrongLoop(
                f"the client of {self.address} belongs to the event loop on which it was made: connect once for each"
                " loop, or use iriscw.blocking"
            )
        timeout_s = self._limits.stream_timeout_s if timeout_s is None else timeout_s
        if timeout_s <= 0:
            raise RpcDeadline(f"{route} to {self.address}: no time was left for the call")
        sent = {PROTOCOL_KEY: PROTOCOL_VERSION, **(metadata or {})}
        if self._token is not None:
            sent["authorization"] = f"Bearer {self._token.reveal()}"
        call = self._connector.open(route, shape, request_type, reply_type, timeout_s=timeout_s, metadata=sent)
        self._started += 1
        try:
            async with call:
                yield call
        except IriscwError:
            self._failed += 1
            raise


class BidiCall(Generic[Request, Reply]):
    """An open call in both directions. One task may receive while others send."""

    def __init__(self, call: CallStream) -> None:
        self._call = call
        self._turn = anyio.Lock()  # frames of two messages must not mix
        self._broken = False

    async def send(self, message: Request) -> None:
        """Send; waits while the peer has no room.

        Raises:
            InvalidArgument: :meth:`end` was called before.
            RpcUnavailable: the connection is lost, or an earlier send was cancelled in the middle of its
            message. IriscwError: the error with which the peer ended the call.
        """
        async with self._turn:
            if self._broken:
                raise RpcUnavailable("an earlier send was cancelled in the middle of its message")
            self._broken = True
            await self._call.send_message(message)
            self._broken = False

    async def end(self) -> None:
        """Say that nothing more will be sent. Receiving goes on.

        Raises:
            IriscwError: as :meth:`send`.
        """
        async with self._turn:
            await self._call.end()

    async def receive(self) -> Reply | None:
        """Receive the next message; None after the last. A cancelled receive loses nothing.

        Raises:
            RpcDeadline: the deadline of the whole call passed.
            RpcUnavailable: the connection is lost.
            IriscwError: the error with which the peer ended the call.
        """
        return cast("Reply | None", await self._call.next_reply())

    def __aiter__(self) -> AsyncIterator[Reply]:
        """Iterate until the peer ends the call."""
        return self._call.replies()


async def _send_all(call: CallStream, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            await call.send_message(request)
    else:
        for request in requests:
            await call.send_message(request)
    await call.end()
