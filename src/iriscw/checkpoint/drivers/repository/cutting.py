"""Cuts files of a folder into chunks, in threads: reads them once, hashes them, and says how they are stored.

What a thread reads at a time is a piece of a file, as the tier gave it a digest, with the chunks that begin in it. So
the digests of the tier are compared with the very bytes that are stored, and no byte is read for that alone.
"""

from __future__ import annotations

import bisect
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from iriscw.checkpoint.drivers.digests import Digest, open_image
from iriscw.checkpoint.drivers.repository.encoding import Piece, compressed, encoded, pays
from iriscw.checkpoint.manifest import PIECE_BYTES
from iriscw.checkpoint.repository.contents import WINDOW_BYTES, digest_of_zeros
from iriscw.checkpoint.repository.model import ChunkCodec
from iriscw.freeze.model import ArtifactRefused

BATCH_BYTES: Final = PIECE_BYTES + WINDOW_BYTES
"""What one thread reads at a time, at most: a piece, and the rest of the last chunk that begins in it."""

SAMPLE_BYTES: Final = 16 << 10

PAGEMAP: Final = re.compile(r"pagemap-(?:shmem-)?[0-9]+\.img")
MAX_PAGEMAP_BYTES: Final = 256 << 20

PageCuts: TypeAlias = Callable[[Mapping[str, bytes], int], Mapping[str, Sequence[int]]]
"""From the contents of pagemaps by the names of their files, and the longest chunk: where to cut which files. See
:func:`iriscw.freeze.page_cuts.page_cuts`."""


@attrs.frozen
class Batch:
    """A piece of a file that one thread reads, with the chunks that begin in it."""

    file: str
    size_bytes: int
    """Of the file."""
    start: int
    end: int
    """Of the piece."""
    borders: tuple[int, ...]
    """Where its chunks begin, and where the last one ends; empty if none begins in it."""


@attrs.frozen
class Cut:
    """A chunk that was read."""

    digest: bytes
    size_bytes: int
    codec: ChunkCodec
    stored: Piece | None
    """What is stored of it; None: the repository has it."""


@attrs.frozen
class BatchRead:
    """What a thread has read. What is stored of its chunks may be views of the thread's buffer."""

    cuts: tuple[Cut, ...]
    digest: bytes
    """Of the piece."""


def cuts_in(folder: int, sizes: Sequence[tuple[str, int]], page_cuts: PageCuts) -> Mapping[str, Sequence[int]]:
    """Return where to cut the files of pages in an open folder."""
    pagemaps = {}
    for name, size in sizes:
        if PAGEMAP.fullmatch(name) and size <= MAX_PAGEMAP_BYTES:
            with os.fdopen(open_image(folder, name, size), "rb") as file:
                pagemaps[name] = file.read()
    return page_cuts(pagemaps, WINDOW_BYTES)


def batches(sizes: Sequence[tuple[str, int]], cuts: Mapping[str, Sequence[int]]) -> Iterator[Batch]:
    """Return what threads read, file by file in the order given. A file without bytes has a piece without any."""
    for name, size in sizes:
        borders = _borders(size, cuts.get(name, ()))
        for start in range(0, max(size, 1), PIECE_BYTES):
            end = min(start + PIECE_BYTES, size)
            first, last = bisect.bisect_left(borders, start), bisect.bisect_left(borders, end)
            yield Batch(name, size, start, end, tuple(borders[first : last + 1]) if first < last else ())


def _borders(size: int, cuts: Sequence[int]) -> list[int]:
    """Return where chunks begin, and the end: no chunk is empty, or longer than a window, whatever the cuts are."""
    borders = [0]
    for cut in (*(cut for cut in cuts if 0 < cut < size), *((size,) if size else ())):
        if cut > borders[-1]:
            borders += range(borders[-1] + WINDOW_BYTES, cut, WINDOW_BYTES)
            borders.append(cut)
    return borders


def cut_of(piece: bytes) -> Cut:
    """Return a chunk that is in memory."""
    codec, stored = compressed(*encoded(piece))
    return Cut(hashlib.sha256(piece).digest(), len(piece), codec, stored)


def read_batch(
    folder: int, batch: Batch, buffer: bytearray, made: Callable[[], Digest], known: Callable[[bytes], bool]
) -> BatchRead:
    """Read a batch of an open folder's file into a buffer; what ``known`` knows by its digest is not encoded.

    Args:
        folder: descriptor of the folder.
        batch: what to read.
        buffer: of :data:`BATCH_BYTES` at least.
        made: makes the digest of the piece.
        known: whether the repository has a chunk of this digest.

    Raises:
        ArtifactRefused: the file is not what it was.
        OSError: it cannot be read.
    """
    whole, view = made(), memoryview(buffer)
    cuts: list[Cut] = []
    borders = batch.borders or (batch.end,)
    descriptor = open_image(folder, batch.file, batch.size_bytes)
    try:
        at = batch.start
        for border in (*((borders[0],) if borders[0] > at else ()), *borders[1:]):
            piece = view[at - batch.start : border - batch.start]
            _read(descriptor, batch.file, piece, at)
            whole.update(piece[: max(0, batch.end - at)])  # while it is in the processor's cache
            if at >= borders[0]:
                cuts.append(_cut(piece.toreadonly(), known))
            at = border
    finally:
        os.close(descriptor)
    return BatchRead(tuple(cuts), whole.digest())


def _read(descriptor: int, name: str, into: memoryview, at: int) -> None:
    done = 0
    while done < len(into):
        count = os.preadv(descriptor, [into[done:]], at + done)
        if count == 0:
            raise ArtifactRefused(f"{name} became shorter while it was read")
        done += count


def _cut(piece: memoryview, known: Callable[[bytes], bool]) -> Cut:
    codec, stored = encoded(piece)
    if codec is ChunkCodec.ZEROS:
        return Cut(digest_of_zeros(len(piece)), len(piece), codec, stored)
    digest = hashlib.sha256(piece).digest()
    if known(digest):
        return Cut(digest, len(piece), ChunkCodec.RAW, None)
    if pays(stored[:SAMPLE_BYTES]):
        codec, stored = compressed(codec, stored)
    return Cut(digest, len(piece), codec, stored)
