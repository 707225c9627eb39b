"""grpclib's HTTP/2 with the bounds it lacks. Both sides of a connection are built from these classes.

Each class below replaces one of grpclib's and names the hazard it closes:

* :class:`BoundedCodec`: no limit on what is sent; messages of few bytes that decode to gigabytes; garbage on the
  wire raised whatever the decoder happened to raise; defaults that are found out anew for every field.
* :class:`BoundedStream`: no limit on what is received (256 MiB was accepted), nor on the sum of it; small frames took
  300 times their size; a receive that was cancelled half-way lost the frame's head, and the next one read garbage.
* :class:`BoundedConnection`: a peer that stops reading kept a closed connection open until the kernel gave
  up, and a connection that keepalive gave up left its calls waiting.
* :class:`StrictFrames`: frames of 16 MiB that a stranger announces and trickles in.
* :class:`BoundedProtocol`: 100 concurrent calls, unanswered floods of control frames, and peers' broken bytes
  that surfaced as errors of the event loop.

grpclib has no public seam for most of this; what is private is touched here and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping
from typing import Any, cast

from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, H2Protocol, Stream
from grpclib.utils import Wrapper
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.events import DataReceived
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from h2.stream import StreamState

from iriscw._errors import InvalidArgument
from iriscw.rpc.anatomy import by_number, examine
from iriscw.rpc.buffer import MessageBuffer
from iriscw.rpc.context import AtOnce
from iriscw.rpc.encoding import decode, encode
from iriscw.rpc.errors import NO_KEEPALIVE, MalformedMessage, MessageTooLarge, TooManyUnfinishedBytes
from iriscw.rpc.limits import RpcLimits
from iriscw.rpc.pacing import Turnstile
from iriscw.rpc.rules import Bounds
from iriscw.rpc.unfinished import Share

log = logging.getLogger(__name__)

AT_ONCE_BYTES = 64
"""Messages up to this size may be answered as they arrive, with answers up to it: each with its five bytes of head."""

_AT_ONCE_HEAD = struct.Struct(">BHBBIBI")
"""Of a DATA frame (length, type, flags, stream) and of the message in it (compressed or not, length)."""

_HEAD_BYTES = 9
"""Of a frame: length, type, flags, stream."""

_OPEN = (ConnectionState.SERVER_OPEN, ConnectionState.CLIENT_OPEN)

READ_BYTES = 64 << 10
"""What is read of a socket at a time. For asyncio's 256 KiB the C library maps memory anew for each read, however
little comes: that is a tenth of what a heartbeat costs, or more."""

LINGER_S = 1.0
"""What a closed connection waits for its last bytes to leave before it is cut."""

STOOD_STILL_S = 1.0
"""A timer that comes later than this was held up with everything else: what peers said meanwhile is not read yet."""

WINDOW_BYTES = 4 << 20
"""HTTP/2 flow control, per stream and per connection: what a peer may send that nobody has read yet.
grpclib's own."""


class BoundedCodec(ProtoCodec):
    """Encodes messages up to a size, and decodes those that have few enough parts.

    Args:
        limits: what may be sent, and received where ``received`` does not say otherwise.
        received: bounds of what is received.
        message_type: of what is received, if that is of one type; ``received.field_bytes`` are of its fields.

    Raises:
        InvalidArgument: the type has no such field.
    """

    def __init__(
        self, limits: RpcLimits, received: Bounds | None = None, message_type: type[Any] | None = None
    ) -> None:
        self._max = limits.max_message_bytes
        self._max_parts = limits.max_message_parts if received is None else received.max_parts
        self._field_bytes: Mapping[int, int] = {}
        if received is not None and message_type is not None:
            self._field_bytes = by_number(message_type, received.field_bytes)

    def encode(self, message: Any, message_type: Any) -> bytes:
        """Encode ``message``.

        Raises:
            MessageTooLarge: it is larger than the limit.
            InvalidArgument: it holds text that is no UTF-8.
        """
        if not isinstance(message, message_type):
            raise TypeError(f"a message of type {message_type!r} was to be sent, not {type(message)!r}")
        try:
            data = encode(message)
        except UnicodeEncodeError as error:  # bytes of an argument or a file's name, as Python writes them
            text = f"a {message_type.__name__} was to hold a text that is not UTF-8 at character {error.start + 1}"
            raise InvalidArgument(f"{text}: {error.object!r:.64}") from error
        if len(data) > self._max:
            raise MessageTooLarge(
                f"a {message_type.__name__} of {len(data)} bytes was to be sent, the limit is {self._max}"
            )
        return data

    def decode(self, data: bytes, message_type: Any) -> Any:
        """Decode ``data``, after a look at what that takes.

        Raises:
            MessageTooLarge: it has more parts than the bounds allow, or a field of more bytes.
            MalformedMessage: it is not a message of this type.
        """
        examine(data, message_type, self._max_parts, self._field_bytes)
        try:
            return decode(data, message_type)
        except Exception as error:  # what the look leaves to the decoder: texts that are not UTF-8
            raise MalformedMessage(f"malformed {message_type.__name__}: {type(error).__name__}") from error


class BoundedStream(Stream):
    """One call's bytes. Reads alternate between a frame's head and its body, as grpclib's ``recv_message``
    does.
    """

    max_message_bytes: int

    buffer: MessageBuffer  # type: ignore[assignment]  # takes the place of grpclib's

    share: Share | None = None
    """Where the bytes of messages count that are not whole yet; None: nowhere."""

    at_once: AtOnce | None = None
    """Answers small messages before the call's reader is woken (:meth:`answer`)."""

    _sending: bool = False
    """Whether a message is on its way, of which frames may still follow."""

    _held: int = 0
    """How many of them count there for this call."""

    _refused: TooManyUnfinishedBytes | None = None
    """Why nothing of this call is read any more."""

    _head: bytes | None = None
    """The head whose body is still to come."""

    _again: bool = False
    """The read of the body was cancelled: the next read asks for the head once more."""

    def init_stream(self, stream_id: int, connection: Connection) -> None:
        """Give the stream its number, and the buffer that belongs to it."""
        super().init_stream(stream_id, connection)
        self.buffer = MessageBuffer(self._taken)

    def _taken(self, size: int) -> None:
        """Give the peer room for a frame that the reader took out of the window, and count it."""
        assert self.id is not None
        self.connection.ack(self.id, size)
        if self.share is None:
            return
        self._held += size
        try:
            self.share.take(size)
        except TooManyUnfinishedBytes as error:
            self._refused = error
            self.buffer.drop()  # at once, so that one refusal makes room for the others
            self.released()
            raise

    def _settle(self) -> None:
        """Count no more what was read; the beginning of the next message may be here already."""
        if self.share is not None:
            size = self._held - self.buffer.held
            self._held -= size
            self.share.give(size)

    def released(self) -> None:
        """Count and answer nothing any more: the call is over, whoever still reads it."""
        self.at_once = None
        if self.share is not None:
            self.share.give(self._held)
            self.share = None

    def answer(self, data: bytes, window: int) -> bool:
        """Answer a message of the peer as it arrives, if that takes no waiting; whether that was done.

        To wake the reader, decode, decide, encode and send costs two turns of two tasks and more than half of what a
        small message costs in all. ``data`` is a frame that fills ``window`` bytes of the peer's window. Only a message
        that is whole in one frame is answered so, when nothing of the call waits before it in either direction.
        """
        reply = self._reply_to(data)
        if reply is None:
            return False
        assert self.id is not None
        self._h2_connection.acknowledge_received_data(window, self.id)
        self.connection.flush()
        self._say_at_once(reply)
        return True

    def answer_unparsed(self, data: bytes) -> bool:
        """Answer a message whose frame h2 has not seen and need not see; whether that was done.

        h2 takes a third of what a heartbeat costs, most of it to find out that nothing is special about the frame. What
        it would count is counted here; whatever it would say more about is left to it.
        """
        h2, size = self._h2_connection, len(data)
        known = None if self.id is None else h2.streams.get(self.id)
        if (
            known is None
            or known.state_machine.state is not StreamState.OPEN
            or known._expected_content_length is not None
            or h2.state_machine.state not in _OPEN
            or not cast("StrictFrames", h2.incoming_buffer).idle
        ):
            return False
        windows = (h2._inbound_flow_control_window_manager, known._inbound_window_manager)
        for window in windows:
            if size >= window.current_window_size or window._bytes_processed + size >= window.max_window_size // 2:
                return False  # h2 opens the window again, or complains
        reply = self._reply_to(data)
        if reply is None:
            return False
        for window in windows:
            window.current_window_size -= size
            window._bytes_processed += size
        self._say_at_once(reply)
        return True

    def _reply_to(self, data: bytes) -> bytes | None:
        """Return what answers a message of the peer as it arrives; None leaves it to the call's method."""
        if self.at_once is None or self.id is None:
            return None
        h2 = self._h2_connection
        # h2 has parsed the whole read before its first frame is handled: a reset behind this frame has closed the
        # stream by now, and another call's headers behind that made h2 forget it.
        known = h2.streams.get(self.id)
        if (
            known is None
            or known.closed
            or self._sending
            or self._head is not None
            or self.buffer.unread
            or self.buffer.held
            or not 5 <= len(data) <= AT_ONCE_BYTES
            or data[0]
            or int.from_bytes(data[1:5], "big") != len(data) - 5
            or not self.connection.write_ready.is_set()
            or min(h2.outbound_flow_control_window, known.outbound_flow_control_window) < AT_ONCE_BYTES
        ):
            return None
        return self.at_once(data[5:])

    def _say_at_once(self, reply: bytes) -> None:
        """Write what ``h2.send_data`` would: a DATA frame without flags, and in it a message that is not compressed."""
        assert self.id is not None
        h2, size = self._h2_connection, 5 + len(reply)
        assert size <= AT_ONCE_BYTES, "the window was looked at for so much"
        h2.outbound_flow_control_window -= size
        h2.streams[self.id].outbound_flow_control_window -= size
        self._transport.write(_AT_ONCE_HEAD.pack(0, size, 0, 0, self.id, 0, len(reply)) + reply)

    async def send_headers(self, headers: Any, end_stream: bool = False) -> None:
        """Send headers, or the trailers that end the call: after these nothing is answered any more."""
        if end_stream:
            self.at_once = None
        await super().send_headers(headers, end_stream)

    async def send_data(self, data: bytes, end_stream: bool = False) -> None:
        """Send a message, in as many frames as it takes. One that stays unfinished is the call's last."""
        self._sending = True
        await super().send_data(data, end_stream)
        self._sending = False

    async def recv_data(self, size: int) -> bytes:
        """Read ``size`` bytes: the next head, or the body that the last head announced."""
        if self._head is None:
            head = await self._read(size)
            if head:
                self._check(head)
                self._head = head
            return head
        if self._again:
            self._again = False
            return self._head
        try:
            body = await self._read(size)
        except BaseException:
            self._again = True
            raise
        self._head = None
        return body

    async def _read(self, size: int) -> bytes:
        if self._refused is not None:
            raise self._refused
        try:
            data = await super().recv_data(size)
        except AssertionError:  # how grpclib's buffer says that the stream ended inside a frame
            raise GRPCError(Status.INTERNAL, "the stream ended in the middle of a message") from None
        if len(data) < size and self._head is not None:
            raise GRPCError(Status.INTERNAL, "the stream ended in the middle of a message")
        self._settle()
        return data

    def _check(self, head: bytes) -> None:
        if head[0]:
            raise GRPCError(Status.UNIMPLEMENTED, "compressed messages are not accepted")
        size = int.from_bytes(head[1:], "big")
        if size > self.max_message_bytes:
            error = MessageTooLarge(f"a message of {size} bytes was received, the limit is {self.max_message_bytes}")
            raise GRPCError(Status.RESOURCE_EXHAUSTED, str(error)) from error


class BoundedConnection(Connection):
    """One connection, and what the door remembers of its peer."""

    limits: RpcLimits
    processor: EventsProcessor

    share: Share | None = None
    """Of the server's budget for unfinished messages; a client has none."""

    is_local: bool = False
    """Whether the peer came through the unix socket."""

    authenticated: bool = False
    refusals: int = 0
    """Calls with a wrong token."""
    proving: bool = False
    """Whether somebody else is being asked whose a token of this connection is."""

    asking: Turnstile | None = None
    """Of the server: how many peers are asked in a turn whether they live; a client asks one."""

    heard_at: float = 0.0
    """When the last bytes of the peer came, on the loop's clock."""
    _asked_at: float = 0.0
    """When it was last asked whether it lives."""

    _linger: asyncio.TimerHandle | None = None

    def create_stream(self, *, stream_id: int | None = None, wrapper: Wrapper | None = None) -> Stream:
        """Make the stream of one call."""
        stream = BoundedStream(self, self._connection, self._transport, stream_id=stream_id, wrapper=wrapper)
        stream.max_message_bytes = self.limits.max_message_bytes
        stream.share = self.share
        return stream

    @property
    def peer_name(self) -> str:
        """The peer's address for logs."""
        if self.is_local or self.is_closing():
            return "unix" if self.is_local else "gone"
        name = self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"

    def ack(self, stream_id: int, size: int) -> None:
        """Give the peer room for what was read, if there is still a peer."""
        if not self.is_closing():
            super().ack(stream_id, size)

    def close(self) -> None:
        """Close; bytes that the peer does not take within a second are dropped with the connection."""
        transport = getattr(self, "_transport", None)
        super().close()
        if transport is not None:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def ended(self) -> None:
        """Note that the transport is gone: there is nothing left to cut, and asyncio's fails if it is tried."""
        if self._linger is not None:
            self._linger.cancel()

    def goodbye(self, reason: str) -> None:
        """Say GOAWAY, close, and end every call that is still open."""
        if not self.is_closing():
            self._connection.close_connection()
            self.flush()
        self.processor.close(reason)

    def overflows(self) -> bool:
        """Whether the peer lets more bytes wait than it may."""
        limits = self.limits
        limit = limits.max_write_buffer_bytes if self.authenticated else limits.max_stranger_write_buffer_bytes
        return not self.is_closing() and self._transport.get_write_buffer_size() > limit

    def abort(self) -> None:
        """Cut the connection without waiting for anything."""
        if not self.is_closing():
            self._transport.abort()

    def _ping(self) -> None:
        """Ask in a turn that has room for it: when a loop stood still, thousands are due at once."""
        if self.asking is None:
            self._ask()
        else:
            self.asking.enter(self._ask)

    def _ask(self) -> None:
        if self.is_closing():
            return  # while it waited
        asked = self._close_by_ping_handler
        loop = asyncio.get_running_loop()
        quiet_until_s = self.heard_at + self.limits.keepalive_interval_s
        if asked is None and loop.time() < quiet_until_s:
            # Who has just said something lives. Thousands of workers that beat would be asked as often for nothing.
            self._ping_handle = loop.call_at(quiet_until_s, self._ping)
            return
        super()._ping()
        timer = self._close_by_ping_handler
        if timer is not None and timer is not asked:
            # grpclib would close the transport only; the calls would wait for bytes that the peer never
            # takes.
            timer.cancel()
            self._asked_at = loop.time()
            self._await_answer()

    def _await_answer(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self.limits.keepalive_timeout_s
        self._close_by_ping_handler = loop.call_at(due_s, self._unanswered, due_s)

    def _unanswered(self, due_s: float) -> None:
        """Close, unless the peer has said something else; if it was us who stood still, first read what it said."""
        if self.heard_at > self._asked_at:
            self._close_by_ping_handler = None
        elif asyncio.get_running_loop().time() - due_s > STOOD_STILL_S:
            self._await_answer()
        else:
            log.info("closing the connection to %s: %s", self.peer_name, NO_KEEPALIVE)
            self.processor.close(NO_KEEPALIVE)


class ExactProcessor(EventsProcessor):
    """Knows when a call is over, and which messages need no task to be answered."""

    def answer(self, data: bytes) -> bool:
        """Have a read answered that is one small message and nothing else; whether that was done."""
        size = len(data) - _HEAD_BYTES
        # A frame of that size, DATA, without flags.
        if not 0 < size <= AT_ONCE_BYTES or data[:5] != bytes((0, 0, size, 0, 0)):
            return False
        stream = cast("BoundedStream | None", self.streams.get(int.from_bytes(data[5:_HEAD_BYTES], "big")))
        return stream is not None and stream.at_once is not None and stream.answer_unparsed(data[_HEAD_BYTES:])

    def process_data_received(self, event: DataReceived) -> None:
        """Have a frame answered, or put it where its call's reader finds it."""
        stream = cast("BoundedStream | None", self.streams.get(event.stream_id))
        if stream is None or stream.at_once is None or not stream.answer(event.data, event.flow_controlled_length):
            super().process_data_received(event)

    def register(self, stream: Stream) -> Callable[[], None]:
        """Note a new call; what it gives is to be called at the call's end, once or more often."""
        release = super().register(stream)

        def release_all() -> None:
            assert stream.id is not None
            if self.streams.get(stream.id) is stream:
                cast("BoundedStream", stream).released()
                release()

        return release_all


class StrictFrames(FrameBuffer):
    """Refuses an overlong frame by its first bytes. h2 collects all of it first, which is up to 16 MiB."""

    @property
    def idle(self) -> bool:
        """Whether the next byte begins a frame, of which nothing before it is a part."""
        return not (self._data or self._headers_buffer or self._preamble_len)

    def __next__(self) -> Any:
        if len(self._data) >= 3:  # the length comes first
            self._validate_frame_length(int.from_bytes(self._data[:3], "big"))
        frame = super().__next__()
        # h2 prints each frame, with all its bytes in hexadecimal, for a log that it has not.
        cast("Any", frame)._body_repr = _nothing
        return frame


def _nothing() -> str:
    return ""


class BoundedProtocol(H2Protocol):
    """HTTP/2 over one transport."""

    connection: BoundedConnection
    processor: ExactProcessor

    def __init__(self, calls: AbstractHandler, limits: RpcLimits, *, client_side: bool) -> None:
        super().__init__(calls, _configuration(limits), _h2_configuration(client_side=client_side))
        self.limits = limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start HTTP/2. The limits are in the first SETTINGS frame: a change after it would race with the
        peer.
        """
        h2 = H2Connection(config=self.h2_config)
        h2.local_settings = Settings(
            client=bool(self.h2_config.client_side),
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: self.limits.max_streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: self.limits.max_head_bytes,
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            },
        )
        h2.incoming_buffer = StrictFrames(server=not self.h2_config.client_side)
        h2.decoder.max_header_list_size = self.limits.max_head_bytes
        h2.initiate_connection()
        h2.increment_flow_control_window(WINDOW_BYTES - (2**16 - 1))
        self.connection = BoundedConnection(h2, cast("asyncio.Transport", transport), config=self.config)
        self.connection.limits = self.limits
        self.processor = self.connection.processor = ExactProcessor(self.handler, self.connection)
        self.connection.flush()
        self.connection.initialize()
        if hasattr(transport, "max_size"):  # asyncio's own, not TLS over it, which keeps one buffer
            cast("Any", transport).max_size = READ_BYTES

    def data_received(self, data: bytes) -> None:
        """Take bytes from the peer; whatever is wrong with them ends this connection and nothing else."""
        self.connection.heard_at = asyncio.get_running_loop().time()
        if self.processor.answer(data):
            return
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 - h2 and hpack raise many kinds for a peer's garbage
            log.info("closing the connection to %s: %s", self.connection.peer_name, type(error).__name__)
            self.processor.close("Protocol error")
        if self.connection.overflows():
            log.info("cutting the connection to %s: it does not read what it asks for", self.connection.peer_name)
            self.connection.abort()

    def resume_writing(self) -> None:
        """Go on, first with what could not be written: the resets of calls that were given up meanwhile."""
        super().resume_writing()
        if not self.connection.is_closing():
            self.connection.flush()

    def eof_received(self) -> None:
        """Close once the peer has: what waits to be sent to it is not waited for longer than at any other close.

        asyncio would wait until all of it has left. A peer that gave the connection up takes nothing any more, and if
        the network loses what is sent there, the kernel says so after a quarter of an hour.
        """
        self.connection.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End every call of the connection."""
        super().connection_lost(exc)
        self.connection.ended()


def _configuration(limits: RpcLimits) -> Configuration:
    """Keepalive in both directions, also without calls: a peer that hangs is noticed by both sides."""
    return Configuration(
        _keepalive_time=limits.keepalive_interval_s,
        _keepalive_timeout=limits.keepalive_timeout_s,
        _keepalive_permit_without_calls=True,
        _http2_max_pings_without_data=0,  # no limit
        _http2_min_sent_ping_interval_without_data=limits.keepalive_interval_s / 2,
        http2_connection_window_size=WINDOW_BYTES,
        http2_stream_window_size=WINDOW_BYTES,
    )


def _h2_configuration(*, client_side: bool) -> H2Configuration:
    return H2Configuration(
        client_side=client_side,
        header_encoding="ascii",
        # Strangers' headers are checked; a server's answer is trusted as far as grpclib reads it.
        validate_inbound_headers=not client_side,
        validate_outbound_headers=False,
        normalize_inbound_headers=False,
        normalize_outbound_headers=False,
    )
