"""One end of a simulated TCP connection: what the kernel keeps, and asyncio's transport on top of it.

Theory of operation. What a protocol writes goes to the kernel as far as its window has room, and waits in the
transport's buffer otherwise; beyond a high-water mark the protocol is told to pause. Bytes occupy the window until the
peer's *protocol* has taken them and the acknowledgement has come back: a reader that pauses, or a way back that is
dead, stops the sender.

An end goes through the states of a socket under asyncio's selector loop, with its habits: closing stops reading at once
and sends what is buffered first; aborting drops the buffer, but what the kernel has is still sent; ``connection_lost``
comes in a later callback, once. A socket that is closed with unread bytes, or that receives bytes later, answers with a
reset. Bytes that nobody acknowledges end the connection after :data:`UNANSWERED_S`. An error of the socket is noticed
by who reads or has something to send, as the selector loop does; a transport that neither reads nor writes sleeps on.

A socket that was told to (``SO_KEEPALIVE``) probes its peer after a silence, but, as Linux does, not while bytes of its
own are unacknowledged: then only :data:`UNANSWERED_S` counts.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import socket
from collections.abc import Callable
from typing import Any

from iriscw_sims.transport.loop import VirtualLoop
from iriscw_sims.transport.wire import Weather, Wire

READ_BYTES = 256 << 10
"""The most that one read takes (asyncio: the same)."""

WORTHWHILE_BYTES = 16 << 10
"""Room for less is not used, unless it takes all there is: else segments get ever smaller (RFC 1122, 4.2.3.4)."""

HIGH_WATER_BYTES = 64 << 10
"""Of the transport's buffer (asyncio: the same; the low mark is a quarter)."""

UNANSWERED_S = 924.6
"""After which a kernel gives a connection up whose bytes nobody acknowledges (Linux: ``tcp_retries2`` = 15)."""

PROBES: dict[str, float] = {"TCP_KEEPIDLE": 7200, "TCP_KEEPINTVL": 75, "TCP_KEEPCNT": 9}
"""Seconds of silence, seconds between two probes, and probes: what a socket begins with (Linux: the same)."""

Note = Callable[[str], None]


class KernelSocket:
    """What a protocol may ask a simulated socket for: keepalive, and what means nothing here.

    Args:
        probing: begins to probe, or probes in another way from now on.
    """

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP

    def __init__(self, probing: Callable[[], None]) -> None:
        self._probing = probing
        self._names = {getattr(socket, name): name for name in PROBES if hasattr(socket, name)}
        self.probes = dict(PROBES)
        self.keeps_alive = False

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option; those that are not of keepalive change nothing."""
        if level == socket.SOL_SOCKET and option == socket.SO_KEEPALIVE:
            self.keeps_alive = bool(value)
        elif level == socket.IPPROTO_TCP and option in self._names:
            self.probes[self._names[option]] = value
        else:
            return
        self._probing()


class Endpoint(asyncio.Transport):
    """One end; ``connect`` it to its peer before use.

    Args:
        loop: whose callbacks the protocol's are.
        name: for the trace.
        names: own address, then the peer's.
        weather: gives the present weather.
        note: takes lines of the trace.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        name: str,
        names: tuple[tuple[str, int], tuple[str, int]],
        weather: Callable[[], Weather],
        note: Note,
    ) -> None:
        self._socket = KernelSocket(self._probe_later)
        super().__init__({"sockname": names[0], "peername": names[1], "socket": self._socket})
        self.name = name
        self._loop = loop
        self._weather = weather
        self._note = note
        self._protocol: asyncio.Protocol | asyncio.BufferedProtocol | None = None
        self._peer: Endpoint
        self._out: Wire
        # The transport's state.
        self._buffer = bytearray()
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._paused_protocol = self._paused = self._closing = self._lost = self._eof = False
        self._reading = False
        self._flushed = False
        """Whether it was closed with a buffer, and that was sent: then asyncio's transport is a shell."""
        # The kernel's state.
        self.gone = False
        """Whether the socket is closed."""
        self._unanswered = 0
        self._answered_at = 0.0
        self._unread = bytearray()
        self._peer_ended = self._end_was_read = self._ended = False
        self._error: OSError | None = None
        self._doubt: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None
        self._probes = 0
        """That were sent since the peer was last heard of."""

    def connect(self, peer: Endpoint, out: Wire) -> None:
        """Set where this end sends to."""
        self._peer, self._out = peer, out

    def open(self, protocol: asyncio.Protocol | asyncio.BufferedProtocol) -> None:
        """Hand the connection to a protocol, as a loop does that has made or accepted it."""
        self._protocol = protocol
        self._loop.call_soon(protocol.connection_made, self)
        self._loop.call_soon(self._begin_reading)

    def _begin_reading(self) -> None:
        self._reading = True
        self._read()

    # Transport: reading

    def set_protocol(self, protocol: Any) -> None:
        """Hand the connection to another protocol."""
        self._protocol = protocol

    def get_protocol(self) -> Any:
        """Return the protocol."""
        return self._protocol

    def is_reading(self) -> bool:
        """Whether the protocol gets what comes."""
        return not self._closing and not self._paused

    def pause_reading(self) -> None:
        """Leave what comes in the kernel."""
        self._paused = self._paused or not self._closing

    def resume_reading(self) -> None:
        """Read again, soon."""
        if self._paused and not self._closing:
            self._paused = False
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Give the protocol what the kernel has, as far as it wants it."""
        while self._unread and self._reading and self.is_reading():
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                room = memoryview(self._protocol.get_buffer(-1))
                data = bytes(self._unread[: len(room)])
                room[: len(data)] = data
            else:
                data = bytes(self._unread[:READ_BYTES])
            del self._unread[: len(data)]
            self._out.send(functools.partial(self._peer.answered, len(data)))
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                self._call("buffer_updated", len(data))
            else:
                self._call("data_received", data)
        if self._peer_ended and not self._unread and self._reading and self.is_reading():
            self._peer_ended, self._end_was_read = False, True
            if self._call("eof_received"):
                self._reading = False
            else:
                self.close()
        self._notice()

    def _call(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self._protocol, method)(*args)
        except Exception as error:  # noqa: BLE001 - asyncio's own transports end the connection and tell the loop
            context = {"message": f"protocol.{method}() failed", "exception": error, "transport": self}
            self._loop.call_exception_handler(context)
            self._force_close(error)
            return True

    # Transport: writing

    def write(self, data: Any) -> None:
        """Send, or keep what the kernel does not take."""
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        self._refuse_shell()
        if self._lost or not data:
            return
        self._buffer += data
        self._fill()
        self._notice()
        if len(self._buffer) > self._high and not self._paused_protocol:
            self._paused_protocol = True
            self._call("pause_writing")

    def _fill(self) -> None:
        """Move what the window has room for into the kernel."""
        window = self._weather().window_bytes
        room = window - self._unanswered
        worthwhile = min(len(self._buffer), WORTHWHILE_BYTES, window // 2)
        if not self._buffer or room < max(1, worthwhile) or self._error is not None:
            return
        data = bytes(self._buffer[:room])
        del self._buffer[:room]
        if not self._unanswered:
            self._answered_at = self._loop.time()
        self._unanswered += len(data)
        self._out.send(self._peer.receive, data)
        if self._doubt is None:
            self._doubt = self._loop.call_later(UNANSWERED_S, self._give_up)

    def _on_room(self) -> None:
        if self._lost:
            return
        self._fill()
        if self._paused_protocol and len(self._buffer) <= self._low:
            self._paused_protocol = False
            self._call("resume_writing")
        if not self._buffer and self._closing:
            self._lost = self._flushed = True
            self._call_connection_lost(None)
        elif not self._buffer and self._eof:
            self._end()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the kernel has not taken."""
        return len(self._buffer)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high mark."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks; asyncio's defaults for what is not given."""
        self._high = high if high is not None else HIGH_WATER_BYTES if low is None else 4 * low
        self._low = low if low is not None else self._high // 4

    def write_eof(self) -> None:
        """Say that nothing more will be sent; reading goes on."""
        if self._closing or self._eof:
            return
        self._eof = True
        if not self._buffer:
            self._end()

    def can_write_eof(self) -> bool:
        """Say yes."""
        return True

    # Transport: the end

    def is_closing(self) -> bool:
        """Whether it was closed or is lost."""
        return self._closing

    def close(self) -> None:
        """Send what is buffered, then close the socket."""
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._lose(None)

    def abort(self) -> None:
        """Close the socket; what the kernel has is still sent."""
        self._refuse_shell()
        self._force_close(None)

    def _refuse_shell(self) -> None:
        """Fail as asyncio's selector transport does on 3.11 to 3.13: once it was closed, sent its buffer and told its
        protocol, it has no loop any more that ``abort`` and ``write`` could use.
        """
        if self._flushed:
            raise AttributeError("'NoneType' object has no attribute 'call_soon'")

    def _force_close(self, error: Exception | None) -> None:
        self._buffer.clear()
        self._closing = True
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._loop.call_soon(self._call_connection_lost, error)

    def _call_connection_lost(self, error: Exception | None) -> None:
        try:
            if self._protocol is not None:
                self._call("connection_lost", error)
        finally:
            self._close_socket()

    # The kernel

    def receive(self, data: bytes) -> None:
        """Take a segment from the wire."""
        if self.gone:
            self._out.send(self._peer.reset)
            return
        self._note(f"{self.name} received {len(data)}")
        self._heard()
        self._unread += data
        self._read()

    def end_received(self, _: bytes) -> None:
        """Take the peer's end from the wire."""
        if not self.gone:
            self._note(f"{self.name} received the end")
            self._peer_ended = True
            self._read()

    def reset(self, _: bytes = b"") -> None:
        """Take a reset from the wire."""
        if not self.gone:
            self._note(f"{self.name} received a reset")
            code = errno.EPIPE if self._end_was_read else errno.ECONNRESET
            self._fail(OSError(code, os.strerror(code)))  # gives the class that belongs to the number

    def _fail(self, error: OSError) -> None:
        self._ended = True  # a broken connection sends no more
        self._error = error
        if self._protocol is None:
            self._close_socket()  # it was never accepted
        else:
            self._read()

    def _notice(self) -> None:
        """End the connection with the socket's error, if anybody looks."""
        if self._error is not None and (self._buffer or (self._reading and self.is_reading())):
            self._force_close(self._error)

    def answered(self, count: int, _: bytes) -> None:
        """Take an acknowledgement from the wire."""
        self._heard()
        self._unanswered -= count
        self._answered_at = self._loop.time()
        if not self._unanswered and self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None
        self._on_room()

    def _give_up(self) -> None:
        """End the connection if nothing has come back for long; a peer that merely does not read answers probes."""
        self._doubt = None
        quiet_s = self._loop.time() - self._answered_at
        if quiet_s < UNANSWERED_S or (self._out.carries and self._peer._out.carries):
            self._doubt = self._loop.call_later(max(UNANSWERED_S - quiet_s, 1.0), self._give_up)
            return
        self._fail(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    # Keepalive

    def _heard(self) -> None:
        self._probes = 0
        if self._probe is not None:
            self._probe_later()

    def _probe_later(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None
        if self._socket.keeps_alive and not self.gone and self._error is None:
            wait = self._socket.probes["TCP_KEEPINTVL" if self._probes else "TCP_KEEPIDLE"]
            self._probe = self._loop.call_later(wait, self._silent)

    def _silent(self) -> None:
        if self._probes >= self._socket.probes["TCP_KEEPCNT"]:
            self._fail(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
            return
        if not self._unanswered:
            self._probes += 1
            self._out.send(self._peer.probed)
        self._probe_later()

    def probed(self, _: bytes) -> None:
        """Answer a probe from the wire."""
        self._out.send(self._peer.reset if self.gone else self._peer.probe_answered)

    def probe_answered(self, _: bytes) -> None:
        """Take the answer to a probe from the wire."""
        self._heard()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._out.send(self._peer.end_received)

    def _close_socket(self) -> None:
        if self.gone:
            return
        self.gone = True
        self._note(f"{self.name} closed")
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None
        if self._unread and not self._ended:
            self._ended = True
            self._out.send(self._peer.reset)
        self._unread.clear()
        self._end()

    def drop(self) -> None:
        """Refuse a connection that no protocol has taken yet."""
        if self._protocol is None and not self.gone:
            self.gone = True
            self._out.send(self._peer.reset)
