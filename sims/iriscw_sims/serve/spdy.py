"""SPDY/3.1 as far as a forwarded port needs it: frames in, frames out. No I/O.

kubectl forwards ports over SPDY, which nobody else speaks any more, in the messages of a websocket. Of its frames these
matter: a stream is opened with headers and answered, carries data both ways, and ends on either side by itself; a ping
is echoed. Flow control does not: the library that kubectl uses has none. Headers are compressed with one dictionary and
one state for a whole connection, so that none may be skipped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import attrs

VERSION: Final = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7
FIN: Final = 1
HEAD_BYTES: Final = 8
FRAME_BYTES: Final = 2**20
"""Of one frame; kubectl's have 32 KiB, and the format allows 16 MiB."""

HEADERS_BYTES: Final = 2**14
"""Of all headers of a stream; kubectl's four have some hundred."""

PROTOCOL_ERROR, REFUSED_STREAM = 1, 3
"""Reasons to reset a stream."""


class SpdyBroken(Exception):
    """What came is no SPDY, or too much of it."""


@attrs.frozen
class Opened:
    """The other side has opened a stream."""

    stream: int
    headers: Mapping[str, str]
    ended: bool
    """Whether it will say nothing more on it."""


@attrs.frozen
class Came:
    """Data of a stream."""

    stream: int
    data: bytes
    ended: bool


@attrs.frozen
class Reset:
    """The other side has given a stream up."""

    stream: int


@attrs.frozen
class Pinged:
    """The other side wants to know whether we live."""

    number: int


News: TypeAlias = Opened | Came | Reset | Pinged


class Spdy:
    """The server's side of one connection."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def receive(self, data: bytes) -> Iterator[News]:
        """Take bytes in, and give what they complete.

        Raises:
            SpdyBroken: they are no SPDY.
        """
        self._received += data
        while len(self._received) >= HEAD_BYTES:
            first, rest = struct.unpack_from("!II", self._received)
            length = rest & 0xFFFFFF
            if length > FRAME_BYTES:
                raise SpdyBroken(f"a frame of {length} bytes; {FRAME_BYTES} are the limit")
            if len(self._received) < HEAD_BYTES + length:
                return
            payload = bytes(self._received[HEAD_BYTES : HEAD_BYTES + length])
            del self._received[: HEAD_BYTES + length]
            ended = bool(rest >> 24 & FIN)
            if first >> 31:
                yield from self._control(first, ended, payload)
            else:
                yield Came(first, payload, ended)

    def _control(self, first: int, ended: bool, payload: bytes) -> Iterator[News]:
        version, kind = first >> 16 & 0x7FFF, first & 0xFFFF
        if version != VERSION:
            raise SpdyBroken(f"version {version} of SPDY; here is {VERSION}")
        if kind == SYN_STREAM:
            (stream,) = _unpacked("!I6x", payload)
            yield Opened(stream & 0x7FFFFFFF, self._headers(payload[10:]), ended)
        elif kind == RST_STREAM:
            stream, _ = _unpacked("!II", payload)
            yield Reset(stream & 0x7FFFFFFF)
        elif kind == PING:
            (number,) = _unpacked("!I", payload)
            yield Pinged(number)

    def _headers(self, block: bytes) -> Mapping[str, str]:
        try:
            plain = self._inflate.decompress(block, HEADERS_BYTES)
        except zlib.error as wrong:
            raise SpdyBroken(f"headers that cannot be read: {wrong}") from wrong
        if self._inflate.unconsumed_tail:
            raise SpdyBroken(f"more than {HEADERS_BYTES} bytes of headers")
        texts: list[str] = []
        at = 4
        while at < len(plain):
            (length,) = _unpacked("!I", plain[at:])
            if at + 4 + length > len(plain):
                raise SpdyBroken("headers that end in the middle")
            texts.append(plain[at + 4 : at + 4 + length].decode("latin-1"))
            at += 4 + length
        return dict(zip(texts[::2], texts[1::2], strict=False))

    # What is sent

    def reply(self, stream: int) -> bytes:
        """Accept a stream."""
        block = self._deflate.compress(struct.pack("!I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control(SYN_REPLY, struct.pack("!I", stream) + block)

    def data(self, stream: int, data: bytes, *, end: bool = False) -> bytes:
        """Send on a stream; with ``end`` for the last time."""
        frames = b"".join(
            struct.pack("!II", stream, len(piece)) + piece
            for piece in (data[at : at + FRAME_BYTES] for at in range(0, len(data), FRAME_BYTES))
        )
        return frames + (struct.pack("!II", stream, FIN << 24) if end else b"")

    def reset(self, stream: int, reason: int) -> bytes:
        """Return a stream up, or refuse it."""
        return _control(RST_STREAM, struct.pack("!II", stream, reason))

    def pong(self, number: int) -> bytes:
        """Echo a ping."""
        return _control(PING, struct.pack("!I", number))


def _control(kind: int, payload: bytes) -> bytes:
    return struct.pack("!HHI", 0x8000 | VERSION, kind, len(payload)) + payload


def _unpacked(form: str, payload: bytes) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, payload)
    except struct.error as wrong:
        raise SpdyBroken(f"a frame that is too short: {wrong}") from wrong


_NAMES: Final = (
    *("options", "head", "post", "put", "delete", "trace", "accept", "accept-charset", "accept-encoding"),
    *("accept-language", "accept-ranges", "age", "allow", "authorization", "cache-control", "connection"),
    *("content-base", "content-encoding", "content-language", "content-length", "content-location", "content-md5"),
    *("content-range", "content-type", "date", "etag", "expect", "expires", "from", "host", "if-match"),
    *("if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "last-modified", "location"),
    *("max-forwards", "pragma", "proxy-authenticate", "proxy-authorization", "range", "referer", "retry-after"),
    *("server", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "warning"),
    *("www-authenticate", "method", "get", "status", "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie"),
    *("keep-alive", "origin"),
)
_REST: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = b"".join(struct.pack("!I", len(name)) + name.encode() for name in _NAMES) + _REST.encode()
"""What headers are compressed with (SPDY/3, 2.6.10.1): the words of HTTP of its time."""
