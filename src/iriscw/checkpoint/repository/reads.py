"""Which bytes of which packs to read for a checkpoint: chunks that lie near each other come in one request. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from iriscw.checkpoint.repository.model import Chunk, StoredFile

READ_BYTES: Final = 8 << 20
"""The most that one request reads, but for a single chunk that is larger."""

GAP_BYTES: Final = 64 << 10
"""What is read and thrown away, because a request of its own would take longer."""


@attrs.frozen
class Target:
    """Where bytes of a chunk belong."""

    file: str
    offset: int


@attrs.frozen
class PackRead:
    """One request: a part of a pack, with the chunks in it and where these belong."""

    pack: str
    start: int
    end: int
    chunks: tuple[tuple[Chunk, tuple[Target, ...]], ...]


def planned_reads(files: Iterable[StoredFile]) -> tuple[PackRead, ...]:
    """Return the requests that bring every chunk of these files once; chunks of zeros need none."""
    targets: dict[Chunk, list[Target]] = {}
    for file in files:
        offset = 0
        for chunk in file.chunks:
            if chunk.place.stored_bytes:
                targets.setdefault(chunk, []).append(Target(file.name, offset))
            offset += chunk.size_bytes
    reads: list[PackRead] = []
    taken: list[tuple[Chunk, tuple[Target, ...]]] = []
    pack, start, end = "", 0, 0
    for chunk in sorted(targets, key=_where):
        place = chunk.place
        after = place.offset + place.stored_bytes
        fits = place.pack == pack and place.offset - end <= GAP_BYTES and after - start <= READ_BYTES
        if taken and not fits:
            reads.append(PackRead(pack, start, end, tuple(taken)))
            taken = []
        if not taken:
            pack, start, end = place.pack, place.offset, 0
        end = max(end, after)
        taken.append((chunk, tuple(targets[chunk])))
    if taken:
        reads.append(PackRead(pack, start, end, tuple(taken)))
    return tuple(reads)


def _where(chunk: Chunk) -> tuple[str, int, bytes]:
    return chunk.place.pack, chunk.place.offset, chunk.digest
