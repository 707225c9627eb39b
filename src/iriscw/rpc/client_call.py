"""One call on the calling side: grpclib's client stream with exact cancellation, one deadline error, and
early ends.

grpclib wakes a call that failed by cancelling the task that waits for it, and never takes that cancellation
back: after a deadline the task counts as cancelled, and on Python 3.13 the next :class:`asyncio.TaskGroup` in
it fails. The wrapper here uncancels exactly what it cancelled, and gives way to a cancellation that came from
elsewhere.

Leaving a call never waits for the peer: what has not ended is reset.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, cast

import anyio
import h2.exceptions
from grpclib.client import Channel, Handler, Stream
from grpclib.config import Configuration
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.metadata import Deadline, decode_grpc_message
from grpclib.protocol import H2Protocol
from grpclib.utils import Wrapper
from h2.errors import ErrorCodes
from multidict import MultiDict

from iriscw._errors import InvalidArgument, IriscwError
from iriscw.rpc.address import Address
from iriscw.rpc.errors import MalformedReply, PeerNotTrusted, RpcDeadline, RpcUnavailable
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.status import ERROR_KEY, from_wire
from iriscw.rpc.transport import BoundedCodec, BoundedProtocol


class ExactWrapper(Wrapper):
    """Interrupts the tasks that wait inside it with an error, and leaves no trace of the cancellation it
    used.
    """

    def __init__(self) -> None:
        super().__init__()
        self._entered: dict[asyncio.Task[Any], int] = {}
        self._interrupted: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> None:
        super().__enter__()
        task = _current_task()
        self._entered[task] = task.cancelling()

    def cancel(self, error: Exception) -> None:
        """Interrupt every task inside with ``error``; tasks that enter later meet it at once. The first error
        stays.
        """
        if self._error is not None:
            return
        self._interrupted.update(self._tasks)
        super().cancel(error)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        task = _current_task()
        self._tasks.discard(task)
        cancelling = self._entered.pop(task, 0)
        if task in self._interrupted:
            self._interrupted.discard(task)
            task.uncancel()
        if self._error is None or (exc_type is asyncio.CancelledError and task.cancelling() > cancelling):
            return  # nothing of ours, or a cancellation from elsewhere, which comes first
        raise self._error


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


class CallStream(Stream[Any, Any]):
    """One call. Entered once; leaving it resets what has not ended."""

    timer: asyncio.TimerHandle | None = None
    timeout_s: float
    where: str
    """Names the call in errors."""

    async def __aenter__(self) -> Self:
        """Start the clock of the call."""
        self._wrapper = ExactWrapper()
        error = RpcDeadline(f"{self.where}: no answer within {self.timeout_s:.3g} s")
        self.timer = asyncio.get_running_loop().call_later(self.timeout_s, self._wrapper.cancel, error)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self.timer is not None
        self.timer.cancel()
        if self._send_request_done:
            if self._stream.closable:
                self._stream.reset_nowait(ErrorCodes.CANCEL)
            self._release_stream()

    async def send_request(self, *, end: bool = False) -> None:
        """Connect if need be, and send the head of the call."""
        with translated(self):
            await super().send_request(end=end)

    async def send_message(self, message: Any, *, end: bool = False) -> None:
        """Send one message; waits while the peer has no room."""
        with translated(self):
            await super().send_message(message, end=end)

    async def end(self) -> None:
        """Say that nothing more will be sent."""
        with translated(self), self._wrapper:
            await super().end()

    async def next_reply(self) -> Any:
        """Receive the next message; None once the peer ended the call well.

        Raises:
            RpcDeadline: the deadline of the whole call passed.
            RpcUnavailable: the connection is gone, or the peer reset the call.
            IriscwError: the error with which the peer ended the call.
        """
        with translated(self):
            try:
                return await self._next_reply()
            except StreamTerminatedError:
                if not self._has_all:
                    raise
            # The connection ended after the call did: what is here is read, without a wait that could be interrupted.
            interrupted, self._wrapper = self._wrapper, ExactWrapper()
            try:
                return await self._next_reply()
            finally:
                self._wrapper = interrupted

    async def _next_reply(self) -> Any:
        reply = await self.recv_message()
        if reply is None and not self._trailers_only:
            with self._wrapper:
                await self._stream.recv_trailers()
        if reply is None:
            self.raise_for_peer()
        return reply

    @property
    def _has_all(self) -> bool:
        """Whether the peer has ended the call, so that all of its answer was received."""
        stream = getattr(self, "_stream", None)
        return stream is not None and stream.trailers is not None

    async def only_reply(self) -> Any:
        """Receive the one answer of a call that has one.

        Raises:
            MalformedReply: there is none, or a second.
            IriscwError: as :meth:`next_reply`.
        """
        reply = await self.next_reply()
        if reply is None:
            raise MalformedReply(f"{self._method_name} ended without an answer")
        if await self.next_reply() is not None:
            raise MalformedReply(f"{self._method_name} gave two answers")
        return reply

    async def replies(self) -> AsyncIterator[Any]:
        """Iterate over the answers."""
        while True:
            reply = await self.next_reply()
            if reply is None:
                return
            yield reply

    def raise_for_peer(self) -> None:
        """Raise the error that the peer ended the call with, if it said one."""
        stream = getattr(self, "_stream", None)
        if stream is None:
            return
        said = dict(stream.trailers or stream.headers or ())
        if "grpc-status" not in said:
            return
        code, text = said["grpc-status"], said.get("grpc-message")
        status = Status(int(code)) if code.isdigit() and int(code) < len(Status) else Status.UNKNOWN
        if status is not Status.OK:
            raise from_wire(status, text and decode_grpc_message(text), said.get(ERROR_KEY, ""))


@contextmanager
def translated(call: CallStream) -> Iterator[None]:
    """Turn whatever grpclib, h2 and sockets raise inside into one named error of ours."""
    prefix = f"{call.where}: "
    try:
        yield
    except IriscwError:
        raise
    except GRPCError as error:
        call.raise_for_peer()  # has the name as well
        raise from_wire(error.status, f"{prefix}{error.message or error.status.name}") from error
    except StreamTerminatedError as error:
        call.raise_for_peer()
        raise RpcUnavailable(f"{prefix}{error}") from error
    except TimeoutError as error:  # of the connection attempt; the call's own deadline is RpcDeadline already
        raise RpcUnavailable(f"{prefix}no connection: {error}") from error
    except ssl.SSLError as error:
        raise PeerNotTrusted(f"{prefix}{error}") from error
    except OSError as error:
        raise RpcUnavailable(f"{prefix}no connection: {error}") from error
    except h2.exceptions.ProtocolError as error:
        call.raise_for_peer()
        raise RpcUnavailable(f"{prefix}the call is closed: {error}") from error
    except ProtocolError as error:
        raise InvalidArgument(f"{prefix}{error}") from error


class Connector(Channel):
    """Makes the connection when a call needs it, with our transport and a bound on the attempt."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, limits: RpcLimits, server_name: str = "") -> None:
        codec = BoundedCodec(limits)
        if address.is_unix:
            super().__init__(path=address.path, codec=codec)
        else:
            config = Configuration(ssl_target_name_override=server_name or None)
            super().__init__(address.host, address.port, codec=codec, ssl=tls, config=config)
        self._limits = limits
        self._address = address

    def open(
        self,
        route: str,
        shape: Cardinality,
        request_type: type[Any],
        reply_type: type[Any],
        *,
        timeout_s: float,
        metadata: dict[str, str],
    ) -> CallStream:
        """Make a call; nothing is sent before its first message."""
        call = CallStream(
            self,
            route,
            cast("Any", MultiDict(metadata)),
            shape,
            request_type,
            reply_type,
            codec=self._codec,
            status_details_codec=None,
            dispatch=self.__dispatch__,
            deadline=Deadline.from_timeout(timeout_s),
        )
        call.timeout_s = timeout_s
        call.where = f"{route} to {self._address}"
        return call

    def close(self) -> None:
        """Close the connection. One with TLS is cut: a goodbye waits for the peer's, and the loop may end now."""
        transport = getattr(self._protocol.connection, "_transport", None) if self._protocol is not None else None
        super().close()
        if self._ssl is not None and transport is not None:
            transport.abort()

    def _protocol_factory(self) -> H2Protocol:
        return BoundedProtocol(Handler(), self._limits, client_side=True)

    async def _create_connection(self) -> H2Protocol:
        with anyio.fail_after(self._limits.connect_timeout_s):
            return await super()._create_connection()
