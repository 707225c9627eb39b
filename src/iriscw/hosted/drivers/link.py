"""One connection between a caller and a hosted actor: greets, and then carries frames.

A frame that fits into the buffer is copied out of it; a longer one is read into memory of its own, of which its parts
are views: what was sent beside the pickle is not copied again.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import socket
import sys
from collections.abc import Sequence
from typing import Final

from iriscw.hosted.errors import CallRefused, PythonDiffers
from iriscw.hosted.frames import (
    GREETING_BYTES,
    HEADER_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    TAG_BYTES,
    FrameHeader,
    FrameKind,
    Greeting,
    Tagging,
    header_bytes,
    proof,
    read_greeting,
    read_header,
    written_header,
)

GREETED_BYTES: Final = 256
"""Of the buffer before the greeting: anybody may connect."""

BUFFER_BYTES: Final = 256 << 10
JOINED_BYTES: Final = 64 << 10
"""Frames up to here are written as one piece."""

PYTHON: Final = (sys.version_info.major, sys.version_info.minor)

Part = bytes | bytearray | memoryview


PROBING: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Seconds, and how many: a machine that went without a word is noticed within a minute. Else a reader that is gone
would keep its stream, and the actor's turn, for ever. Linux has all of them, others some."""


class ActorLink(asyncio.BufferedProtocol):
    """What both sides share. A subclass says what is done with frames.

    Args:
        key: of the attempt.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when frames may be sent; its error is why they never may."""
        self.error: Exception | None = None
        """Why it was closed from here."""
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(GREETED_BYTES)
        self._start = self._end = 0
        self._long: bytearray | None = None
        self._long_header: tuple[FrameHeader, bytes] | None = None
        self._filled = 0
        self._own = Greeting(PYTHON, os.urandom(NONCE_BYTES))
        self._sending: Tagging | None = None
        self._receiving: Tagging | None = None
        self.is_writable = True
        """Whether what was sent does not pile up here."""

    # For subclasses

    _first_bytes = GREETING_BYTES
    """What has to come before the other side is greeted."""

    def begin(self) -> None:
        """Be connected."""

    def take_greeting(self, data: bytes) -> int:
        """Take what came of the greeting; return how many more bytes of it are to come."""
        raise NotImplementedError

    def take_frame(self, kind: FrameKind, call: int, parts: list[memoryview]) -> None:
        """Take a frame."""
        raise NotImplementedError

    def admits(self, header: FrameHeader) -> bool:
        """Whether a frame may be read now. If not, :meth:`go_on` has it asked for again; until then nothing is read."""
        return True

    def ended(self) -> None:
        """Be closed, by whichever side; nothing will come any more."""

    # Sending

    def send(self, kind: FrameKind, call: int, parts: Sequence[Part] = ()) -> None:
        """Send a frame; on a closed connection nothing happens.

        Raises:
            CallTooLarge: no frame may be so long; nothing was sent.
        """
        header = written_header(kind, call, [len(part) for part in parts])
        if self.closed or self._transport is None:
            return
        pieces: list[Part] = [header, *parts]
        if self._sending is not None:
            pieces.append(self._sending.tag(pieces))
        if sum(len(each) for each in pieces) <= JOINED_BYTES:
            self._transport.write(b"".join(pieces))
            return
        for piece in pieces:
            self._transport.write(piece)

    def write(self, data: bytes) -> None:
        """Send bytes of a greeting."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self, error: Exception | None = None) -> None:
        """End the connection, and keep why."""
        if self.error is None:
            self.error = error
        self.closed = True
        if self._transport is not None:
            self._transport.abort()  # whoever does not read would hold it open

    @property
    def unsent_bytes(self) -> int:
        """What the other side has not read, as far as it waits here."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def stays_here(self) -> bool:
        """Whether both ends are on this machine, as far as the addresses say: then nobody is between them."""
        names = [self._transport.get_extra_info(each) for each in ("sockname", "peername")] if self._transport else []
        return bool(names) and all(name and ipaddress.ip_address(name[0]).is_loopback for name in names)

    def tag_frames(self, server: bytes, caller: bytes, *, as_server: bool) -> None:
        """Have all frames tagged from now on."""
        of_server, of_caller = (Tagging(proof(self._key, who, server, caller)) for who in (b"tags 1", b"tags 2"))
        self._sending, self._receiving = (of_server, of_caller) if as_server else (of_caller, of_server)

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._probe(transport.get_extra_info("socket"))
        self._wanted = self._first_bytes
        self.begin()

    @staticmethod
    def _probe(connected: socket.socket | None) -> None:
        if connected is None:
            return
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in PROBING:
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell those who wait."""
        self.closed = True
        self.error = self.error or exc
        if not self.greeted.done():
            self.greeted.set_exception(self.error or ConnectionResetError("it was closed before it was greeted"))
            self.greeted.exception()  # whoever waits is told; nobody need
        self.ended()

    def pause_writing(self) -> None:
        """Hold senders up: the other side does not read."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Let them go on."""
        self.is_writable = True

    def pause_reading(self) -> None:
        """Let the other side wait."""
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Read on, beginning with what was not admitted."""
        if self._transport is not None and not self.closed:
            self._transport.resume_reading()
            self.buffer_updated(0)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the room for what comes next."""
        if self._long is not None:
            return memoryview(self._long)[self._filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buffer):
            rest = self._buffer[self._start : self._end]
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what came."""
        try:
            if self._long is not None:
                self._filled += nbytes
                if self._filled == len(self._long):
                    assert self._long_header is not None
                    (header, text), body = self._long_header, memoryview(self._long)
                    self._long = self._long_header = None
                    self._deliver(header, text, body)
                return
            self._end += nbytes
            while self._take():
                pass
        except CallRefused as error:
            self.close(error)

    def _take(self) -> bool:
        """Take one greeting or frame out of the buffer; False: it is not whole yet."""
        have = self._end - self._start
        if self._wanted:
            if have < self._wanted or self.closed:
                return False
            data = bytes(self._buffer[self._start : self._start + self._wanted])
            self._start += self._wanted
            self._wanted = self.take_greeting(data)
            if not self._wanted and not self.greeted.done():
                self._buffer = self._buffer + bytearray(BUFFER_BYTES - len(self._buffer))
                self.greeted.set_result(None)
            return True
        if have < HEADER_BYTES or self.closed:
            return False
        view = memoryview(self._buffer)[self._start : self._end]
        length = header_bytes(view)
        if have < length:
            return False
        text = bytes(view[:length])
        header = read_header(text)
        if not self.admits(header):
            return False
        size = header.size_bytes + (0 if self._receiving is None else TAG_BYTES)
        if have >= length + size:
            body = bytearray(view[length : length + size])  # arguments are views of it, which may be written to
            self._start += length + size
            self._deliver(header, text, memoryview(body))
            return True
        if length + size <= BUFFER_BYTES:
            return False
        self._long, self._long_header = bytearray(size), (header, text)
        self._filled = have - length
        self._long[: self._filled] = view[length:]
        self._start = self._end = 0
        return False

    def _deliver(self, header: FrameHeader, text: bytes, body: memoryview) -> None:
        if self._receiving is not None:
            body, tag = body[:-TAG_BYTES], body[-TAG_BYTES:]
            if not self._receiving.holds([text, body], tag):
                raise CallRefused("a frame was changed on its way")
        parts: list[memoryview] = []
        at = 0
        for length in header.lengths:
            parts.append(body[at : at + length])
            at += length
        self.take_frame(header.kind, header.call, parts)


class ServerLink(ActorLink):
    """The actor's side. See :class:`ActorLink`."""

    def begin(self) -> None:
        """Greet first."""
        self.write(self._own.encode())

    _first_bytes = GREETING_BYTES + PROOF_BYTES

    def take_greeting(self, data: bytes) -> int:
        """Let in who has the key, and prove to have it."""
        server, caller, shown = self._own.encode(), data[:GREETING_BYTES], data[GREETING_BYTES:]
        greeting = read_greeting(caller)
        if not hmac.compare_digest(proof(self._key, b"caller", server, caller), shown):
            raise CallRefused("the caller does not have the key of this attempt")
        if not greeting.tagged and not self.stays_here:
            raise CallRefused("a caller on another machine has to tag its frames")
        self.write(proof(self._key, b"server", server, caller))
        if greeting.tagged:
            self.tag_frames(server, caller, as_server=True)
        return 0


class CallerLink(ActorLink):
    """The caller's side. See :class:`ActorLink`."""

    def begin(self) -> None:
        """Wait for the actor's greeting."""
        self._sent = b""
        self._server = b""
        self._python = PYTHON

    def take_greeting(self, data: bytes) -> int:
        """Prove to have the key; then compare the actor's proof."""
        if not self._sent:
            greeting = read_greeting(data)
            self._python = greeting.python
            own = Greeting(PYTHON, self._own.nonce, not self.stays_here)
            self._server, self._sent = data, own.encode()
            self.write(self._sent + proof(self._key, b"caller", data, self._sent))
            return PROOF_BYTES
        if not hmac.compare_digest(proof(self._key, b"server", self._server, self._sent), data):
            raise CallRefused("what listens there does not have the key of the attempt")
        if self._python != PYTHON:  # said by who has the key
            theirs, ours = (".".join(map(str, each)) for each in (self._python, PYTHON))
            raise PythonDiffers(f"the actor runs Python {theirs}, and this is {ours}: what they pickle differs")
        if not self.stays_here:
            self.tag_frames(self._server, self._sent, as_server=False)
        return 0
