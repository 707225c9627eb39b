"""Cuts files of a folder into chunks, in threads: reads them, hashes them, and says how they are stored."""

from __future__ import annotations

import bisect
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from iriscw.checkpoint.drivers.digests import open_image
from iriscw.checkpoint.drivers.repository.encoding import Piece, compressed, encoded, pays
from iriscw.checkpoint.repository.contents import WINDOW_BYTES
from iriscw.checkpoint.repository.model import ChunkCodec
from iriscw.freeze.model import ArtifactRefused

BATCH_BYTES: Final = 4 << 20
"""What one thread reads at a time."""

SAMPLE_BYTES: Final = 16 << 10

PAGEMAP: Final = re.compile(r"pagemap-(?:shmem-)?[0-9]+\.img")
MAX_PAGEMAP_BYTES: Final = 256 << 20

PageCuts: TypeAlias = Callable[[Mapping[str, bytes], int], Mapping[str, Sequence[int]]]
"""From the contents of pagemaps by the names of their files, and the longest chunk: where to cut which files. See
:func:`iriscw.freeze.page_cuts.page_cuts`."""


@attrs.frozen
class Batch:
    """Chunks of a file that one thread reads."""

    file: str
    size_bytes: int
    """Of the file."""
    borders: tuple[int, ...]
    """Where its chunks begin, and where the last one ends."""


@attrs.frozen
class Cut:
    """A chunk that was read."""

    digest: bytes
    size_bytes: int
    codec: ChunkCodec
    stored: Piece | None
    """What is stored of it; None: the repository has it."""


def cuts_in(folder: int, sizes: Sequence[tuple[str, int]], page_cuts: PageCuts) -> Mapping[str, Sequence[int]]:
    """Return where to cut the files of pages in an open folder."""
    pagemaps = {}
    for name, size in sizes:
        if PAGEMAP.fullmatch(name) and size <= MAX_PAGEMAP_BYTES:
            with os.fdopen(open_image(folder, name, size), "rb") as file:
                pagemaps[name] = file.read()
    return page_cuts(pagemaps, WINDOW_BYTES)


def batches(sizes: Sequence[tuple[str, int]], cuts: Mapping[str, Sequence[int]]) -> Iterator[Batch]:
    """Return what threads read, file by file in the order given. A file without bytes has a batch without chunks."""
    for name, size in sizes:
        borders = _borders(size, cuts.get(name, ()))
        at = 0
        while True:
            last = bisect.bisect_right(borders, borders[at] + BATCH_BYTES) - 1
            last = min(max(last, at + 1), len(borders) - 1)
            yield Batch(name, size, tuple(borders[at : last + 1]))
            if last == len(borders) - 1:
                break
            at = last


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


def read_batch(folder: int, batch: Batch, known: Callable[[bytes], bool]) -> list[Cut]:
    """Read a batch of an open folder's file; what ``known`` knows by its digest is not encoded.

    Raises:
        ArtifactRefused: the file is not what it was.
        OSError: it cannot be read.
    """
    descriptor = open_image(folder, batch.file, batch.size_bytes)
    try:
        start, end = batch.borders[0], batch.borders[-1]
        raw = bytearray(end - start)
        done = 0
        while done < len(raw):
            count = os.preadv(descriptor, [memoryview(raw)[done:]], start + done)
            if count == 0:
                raise ArtifactRefused(f"{batch.file} became shorter while it was read")
            done += count
    finally:
        os.close(descriptor)
    found: list[Cut] = []
    view = memoryview(raw).toreadonly()
    for first, last in zip(batch.borders, batch.borders[1:], strict=False):
        piece = view[first - start : last - start]
        digest = hashlib.sha256(piece).digest()
        if known(digest):
            found.append(Cut(digest, len(piece), ChunkCodec.RAW, None))
            continue
        codec, stored = encoded(piece)
        if pays(stored[:SAMPLE_BYTES]):
            codec, stored = compressed(codec, stored)
        found.append(Cut(digest, len(piece), codec, stored))
    return found
