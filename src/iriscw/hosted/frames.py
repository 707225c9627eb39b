"""The protocol between a caller and a hosted actor, as bytes.

Both sides greet first: the server with :data:`GREETING`, its Python and a nonce; the caller with the same and a proof
that it has the attempt's key; the server with its own proof. A proof is an HMAC over both greetings, so neither can be
repeated, and the key itself never travels. Then frames, in both directions: a header, the lengths of the parts, the
parts, and a tag over all of it where the connection leaves the machine. The tag's key is derived from both nonces, and
the number of the frame is part of what is tagged: nothing can be changed, left out, or repeated on the way. What
travels can be read: a network that others listen to needs encryption of its own.

A caller numbers its calls. Each call that is not a tell is answered by one REPLY or FAILED with its number, each tell
by TAKEN as soon as it waits in the mailbox. CANCEL takes a call back: one that has not begun never will.

Within a call there may be streams, which are numbered: :data:`RESULT_STREAM` is what a method yields, the others are
iterators among the arguments, in their order. An ITEM goes to the reader, a MORE back says how many items were taken,
and nobody gives more than :class:`~iriscw.hosted.streams.StreamWindow` lets him. What a method yields ends with the
call's REPLY, which is empty, or with FAILED; an argument ends with ENDED. An argument is not begun before the first
MORE, of 0 items: what nobody reads is never asked for.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import Final

import attrs

from iriscw.hosted.errors import CallRefused, CallTooLarge
from iriscw.hosted.model import MAX_CALL_BYTES, MAX_KEY_CHARS, MAX_PARTS

MAGIC: Final = b"IRISACT1"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
TAG_BYTES: Final = 16

_GREETING: Final = struct.Struct(f"<8sBBB{NONCE_BYTES}s")
GREETING_BYTES: Final = _GREETING.size

_HEADER: Final = struct.Struct("<BxHIQ")
HEADER_BYTES: Final = _HEADER.size
_LENGTH_BYTES: Final = 8

_STREAM: Final = struct.Struct("<I")
_MORE: Final = struct.Struct("<II")

RESULT_STREAM: Final = 0
"""The number of what a method yields; iterators among the arguments are numbered from 1."""


class FrameKind(enum.IntEnum):
    """What a frame is for."""

    CALL = 1
    """Parts: the method's name, what was pickled, its buffers."""

    TELL = 2
    """As CALL; nobody waits for what it gives."""

    CANCEL = 3
    REPLY = 4
    """Parts: what was pickled, its buffers."""

    FAILED = 5
    """Parts: the error, as results of tasks have it."""

    TAKEN = 6

    STREAM = 7
    """As CALL; what the method yields is sent as it is yielded."""

    ITEM = 8
    """Parts: the stream's number, what was pickled, its buffers."""

    MORE = 9
    """One part: the stream's number, and how many items its reader has taken since the last one."""

    ENDED = 10
    """Parts: the number of an argument's stream, and the error if it has ended with one, as FAILED has it."""

    KEYED = 11
    """As CALL, with a key between the name and what was pickled: the actor answers it, and runs it once only."""


@attrs.frozen
class Greeting:
    """How each side begins. ``tagged`` is the caller's: whether frames have tags."""

    python: tuple[int, int]
    nonce: bytes
    tagged: bool = False

    def encode(self) -> bytes:
        """Return its bytes."""
        return _GREETING.pack(MAGIC, *self.python, self.tagged, self.nonce)


def read_greeting(data: bytes) -> Greeting:
    """Read what another side begins with.

    Raises:
        CallRefused: it does not speak this protocol.
    """
    magic, major, minor, tagged, nonce = _GREETING.unpack(data)
    if magic != MAGIC:
        raise CallRefused("what listens there is not a hosted actor of this version")
    return Greeting((major, minor), nonce, bool(tagged))


def proof(key: bytes, who: bytes, server: bytes, caller: bytes) -> bytes:
    """Return what proves that a side has the key; ``server`` and ``caller`` are the greetings."""
    return hmac.digest(key, who + server + caller, "sha256")


@attrs.define
class Tagging:
    """Tags the frames of one direction of one connection."""

    _key: bytes = attrs.field(repr=False)
    _count: int = 0

    def tag(self, parts: Sequence[bytes | bytearray | memoryview]) -> bytes:
        """Return the tag of the next frame."""
        made = hashlib.blake2b(self._count.to_bytes(8, "little"), digest_size=TAG_BYTES, key=self._key)
        self._count += 1
        for part in parts:
            made.update(part)
        return made.digest()

    def holds(self, parts: Sequence[bytes | bytearray | memoryview], tag: bytes | memoryview) -> bool:
        """Whether the next frame has this tag."""
        return hmac.compare_digest(self.tag(parts), bytes(tag))


@attrs.frozen
class FrameHeader:
    """What stands before the parts of a frame."""

    kind: FrameKind
    call: int
    lengths: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Of all parts together."""
        return sum(self.lengths)


def written_header(kind: FrameKind, call: int, lengths: Sequence[int]) -> bytes:
    """Return the bytes before the parts.

    Raises:
        CallTooLarge: they are too many, or too long together.
    """
    size = sum(lengths)
    if size > MAX_CALL_BYTES or len(lengths) > MAX_PARTS:
        raise CallTooLarge(f"{size} bytes in {len(lengths)} parts are more than a call or a reply may have")
    return _HEADER.pack(kind, len(lengths), 0, call) + struct.pack(f"<{len(lengths)}Q", *lengths)


def header_bytes(data: bytes | memoryview) -> int:
    """Return how long a header is, lengths included, of which at least ``HEADER_BYTES`` are given.

    Raises:
        CallRefused: no frame begins so.
    """
    kind, count, zero, _ = _HEADER.unpack_from(data)
    if kind not in FrameKind.__members__.values() or count > MAX_PARTS or zero:
        raise CallRefused("what came is no frame of this protocol")
    return HEADER_BYTES + _LENGTH_BYTES * int(count)


def read_header(data: bytes | memoryview) -> FrameHeader:
    """Read a whole header.

    Raises:
        CallRefused: no frame begins so, or it is longer than any may be.
    """
    kind, count, _, call = _HEADER.unpack_from(data)
    found = FrameHeader(FrameKind(kind), call, struct.unpack_from(f"<{count}Q", data, HEADER_BYTES))
    if found.size_bytes > MAX_CALL_BYTES:
        raise CallRefused(f"a frame of {found.size_bytes} bytes is longer than any may be")
    return found


def written_stream(stream: int) -> bytes:
    """Return the first part of an ITEM, or of an ENDED."""
    return _STREAM.pack(stream)


def read_stream(parts: Sequence[bytes | memoryview]) -> int:
    """Read which stream an ITEM, or an ENDED, is of.

    Raises:
        CallRefused: it does not say so.
    """
    if not parts or len(parts[0]) != _STREAM.size:
        raise CallRefused("what came is of no stream")
    return int(_STREAM.unpack(parts[0])[0])


def read_key(part: bytes | memoryview) -> str:
    """Read the key of a call.

    Raises:
        CallRefused: it can be none.
    """
    if not 0 < len(part) <= 4 * MAX_KEY_CHARS:
        raise CallRefused("what came is no key of a call")
    return str(part, "utf-8", "replace")


def written_more(stream: int, count: int) -> bytes:
    """Return the part of a MORE."""
    return _MORE.pack(stream, count)


def read_more(parts: Sequence[bytes | memoryview]) -> tuple[int, int]:
    """Read a MORE: the stream, and how many of its items were taken.

    Raises:
        CallRefused: it does not say so.
    """
    if len(parts) != 1 or len(parts[0]) != _MORE.size:
        raise CallRefused("what came is of no stream")
    stream, count = _MORE.unpack(parts[0])
    return stream, count
