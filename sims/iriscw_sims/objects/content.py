"""What an object holds: real bytes, made-up bytes that cost nothing, or both in a row.

Theory of operation. A simulated checkpoint has 100 GB, and nobody wants to hold them. :class:`Sized` stands for a
stretch of an endless stream that a seed names: it has a length, it can be cut and joined, and two of them are equal
exactly if they are the same stretch of the same stream. :class:`Content` is a row of such stretches and of real bytes,
in one canonical form: neighbours that continue each other are one piece, empty pieces are none. So equality of the
pieces is equality of the contents, however they were cut and joined on their way.

A stretch is a symbol of its own kind and equals no bytes. A reader who must have bytes can have it *rendered*, always
the same; when that rendering is written back, it is another content than the stretch it came from.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import attrs

from iriscw._errors import InvalidArgument

MAX_RENDERED_BYTES = 1 << 30
"""The longest content that is rendered in one piece: what a test machine has room for."""

BLOCK_BYTES = 4096
"""Of a stream, rendered at a time."""


@attrs.frozen
class Sized:
    """``length`` made-up bytes: those from ``start`` on of the stream that ``seed`` names.

    Raises:
        InvalidArgument: a negative length or start.
    """

    length: int
    seed: int
    start: int = 0

    def __attrs_post_init__(self) -> None:
        if self.length < 0 or self.start < 0:
            raise InvalidArgument(f"no stretch of a stream: {self.length} bytes from {self.start} on")

    def __len__(self) -> int:
        """Return the length in bytes."""
        return self.length


Piece: TypeAlias = bytes | Sized


class Content:
    """A row of pieces, immutable and compared by value; its length is ``len``, in bytes.

    Args:
        pieces: what it is made of, in order.
    """

    def __init__(self, *pieces: Piece) -> None:
        self.pieces: tuple[Piece, ...] = _joined(pieces)
        """The canonical form."""
        self._begins: list[int] = []
        self._length = 0
        for piece in self.pieces:
            self._begins.append(self._length)
            self._length += len(piece)

    @classmethod
    def joined(cls, contents: Iterable[Content]) -> Content:
        """Return contents in a row as one."""
        return cls(*(piece for content in contents for piece in content.pieces))

    def __len__(self) -> int:
        """Return the length in bytes."""
        return self._length

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same."""
        return self.pieces == other.pieces if isinstance(other, Content) else NotImplemented

    def __hash__(self) -> int:
        """Return a hash that equal contents share."""
        return hash(self.pieces)

    def __repr__(self) -> str:
        """Show lengths, never bytes."""
        said = [repr(piece) if isinstance(piece, Sized) else f"<{len(piece)} bytes>" for piece in self.pieces]
        return f"Content({', '.join(said)})"

    def part(self, start: int, end: int) -> Content:
        """Return the bytes from ``start`` up to, not including, ``end``; bounds beyond the end are the end.

        Raises:
            InvalidArgument: a negative bound.
        """
        if start < 0 or end < 0:
            raise InvalidArgument(f"no part of a content: {start} to {end}")
        found: list[Piece] = []
        number = max(0, bisect.bisect_right(self._begins, start) - 1)
        while number < len(self.pieces) and self._begins[number] < end:
            begin = self._begins[number]
            found.append(_cut(self.pieces[number], max(0, start - begin), end - begin))
            number += 1
        return Content(*found)

    def chunks(self, size: int) -> Iterator[bytes]:
        """Render in chunks of ``size`` bytes, but for the last."""
        for start in range(0, len(self), size):
            yield self.part(start, start + size).rendered()

    def rendered(self) -> bytes:
        """Return real bytes.

        Raises:
            InvalidArgument: they are more than ``MAX_RENDERED_BYTES``.
        """
        if len(self) > MAX_RENDERED_BYTES:
            raise InvalidArgument(f"{len(self)} bytes are too many to be rendered, limit {MAX_RENDERED_BYTES}")
        if len(self.pieces) == 1 and isinstance(self.pieces[0], bytes):
            return self.pieces[0]
        return b"".join(piece if isinstance(piece, bytes) else _rendered(piece) for piece in self.pieces)

    @functools.cached_property
    def digest(self) -> bytes:
        """16 bytes that tell contents apart: the MD5 of real bytes; of made-up ones, a hash of the canonical form."""
        if all(isinstance(piece, bytes) for piece in self.pieces):
            return hashlib.md5(self.rendered(), usedforsecurity=False).digest()
        state = hashlib.blake2b(digest_size=16, person=b"sized content")
        for piece in self.pieces:
            if isinstance(piece, bytes):
                state.update(b"bytes %d " % len(piece))
                state.update(piece)
            else:
                state.update(b"sized %d %d %d " % (piece.length, piece.seed, piece.start))
        return state.digest()


def _joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return the canonical form."""
    found: list[Piece] = []
    real: list[bytes] = []
    for piece in pieces:
        if not len(piece):
            continue
        if isinstance(piece, bytes):
            real.append(piece)
            continue
        if real:
            found.append(b"".join(real))
            real.clear()
        last = found[-1] if found else None
        if isinstance(last, Sized) and last.seed == piece.seed and last.start + last.length == piece.start:
            found[-1] = Sized(last.length + piece.length, last.seed, last.start)
        else:
            found.append(piece)
    if real:
        found.append(b"".join(real) if len(real) > 1 else real[0])
    return tuple(found)


def _cut(piece: Piece, start: int, end: int) -> Piece:
    if isinstance(piece, bytes):
        return piece[start:end]
    end = min(end, piece.length)
    return Sized(max(0, end - start), piece.seed, piece.start + start)


def _rendered(piece: Sized) -> bytes:
    first, skipped = divmod(piece.start, BLOCK_BYTES)
    last = (piece.start + piece.length - 1) // BLOCK_BYTES
    whole = b"".join(_block(piece.seed, number) for number in range(first, last + 1))
    return whole[skipped : skipped + piece.length]


def _block(seed: int, number: int) -> bytes:
    return hashlib.shake_128(b"stream %d block %d" % (seed, number)).digest(BLOCK_BYTES)


EMPTY = Content()
"""Nothing at all."""
