"""How a chunk is stored: without its pages of zeros, and compressed where that pays.

zstd comes with the extra ``zstd``. Without it chunks are stored as they are, and one that somebody else has compressed
cannot be read: that is an error that names the extra.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Final, TypeAlias

from iriscw.checkpoint.model import ChunkDamaged
from iriscw.checkpoint.repository.contents import PAGE_BYTES
from iriscw.checkpoint.repository.model import Chunk, ChunkCodec
from iriscw.freeze.model import ArtifactRefused

LEVEL: Final = 1
"""Faster than a disk; the higher levels gain a few per cent of memory."""

PAYS: Final = 0.9
"""What compressing must at least bring it down to."""

_ZERO_PAGE: Final = bytes(PAGE_BYTES)

_OF_THREAD: Final = threading.local()
"""A compressor for each thread: to make one takes longer than to compress a sample."""


def zstd() -> Any | None:
    """Return the library, if it is installed."""
    try:
        import zstandard
    except ImportError:
        return None
    return zstandard


Piece: TypeAlias = "bytes | memoryview"
"""Bytes, or a view of some that are in memory already: copying costs as much as hashing."""


def pays(sample: Piece) -> bool:
    """Whether compressing what this is a sample of is worth its time."""
    module = zstd()
    if module is None or not sample:
        return False
    return len(_compressor(module).compress(sample)) <= PAYS * len(sample)


def _compressor(module: Any) -> Any:
    made = getattr(_OF_THREAD, "compressor", None)
    if made is None:
        made = _OF_THREAD.compressor = module.ZstdCompressor(level=LEVEL)
    return made


def encoded(raw: Piece) -> tuple[ChunkCodec, Piece]:
    """Return how a chunk is stored without being compressed, and what is stored of it."""
    pages = range(0, len(raw), PAGE_BYTES)
    kept = [at for at in pages if raw[at] or _has_a_byte(raw[at : at + PAGE_BYTES])]
    if not kept:
        return ChunkCodec.ZEROS, b""
    if len(kept) == len(pages):
        return ChunkCodec.RAW, raw
    bits = sum(1 << at // PAGE_BYTES for at in kept)
    mask = bits.to_bytes(-(-len(pages) // 8), "little")
    return ChunkCodec.PAGES, b"".join([mask, *(raw[at : at + PAGE_BYTES] for at in kept)])


def _has_a_byte(page: Piece) -> bool:
    """Whether a page has a byte other than 0. A view is copied: to compare one takes Python 30 times as long."""
    return bytes(page) != _ZERO_PAGE[: len(page)]


def compressed(codec: ChunkCodec, stored: Piece) -> tuple[ChunkCodec, Piece]:
    """Return what :func:`encoded` gave, compressed if that pays."""
    module = zstd()
    if module is None or not stored:
        return codec, stored
    smaller = _compressor(module).compress(stored)
    if len(smaller) > PAYS * len(stored):
        return codec, stored
    return (ChunkCodec.ZSTD if codec is ChunkCodec.RAW else ChunkCodec.PAGES_ZSTD), smaller


def decoded(chunk: Chunk, stored: Piece, *, compare: bool = True) -> Piece:
    """Return the bytes of a chunk, which are compared with its digest; without ``compare`` only their number is.

    Raises:
        ArtifactRefused: they are other ones, or cannot be had.
    """
    codec, raw = chunk.place.codec, stored
    if codec in (ChunkCodec.ZSTD, ChunkCodec.PAGES_ZSTD):
        raw = _decompressed(chunk, stored)
    if codec in (ChunkCodec.PAGES, ChunkCodec.PAGES_ZSTD):
        raw = _with_zeros(chunk, raw)
    if codec is ChunkCodec.ZEROS:
        raw = bytes(chunk.size_bytes)
    if len(raw) != chunk.size_bytes or (compare and hashlib.sha256(raw).digest() != chunk.digest):
        raise ChunkDamaged(f"a chunk in pack {chunk.place.pack} of the repository is damaged", chunk.place.pack)
    return raw


def _decompressed(chunk: Chunk, stored: Piece) -> bytes:
    module = zstd()
    if module is None:
        raise ArtifactRefused(
            "a chunk in the repository is compressed, and this Python has no zstandard: "
            "pip install '.[zstd]' in a checkout of iriscw"
        )
    most = chunk.size_bytes + -(-chunk.size_bytes // PAGE_BYTES // 8) + 1
    try:
        if not 0 <= module.frame_content_size(stored) <= most:  # a frame may promise more than the machine has
            raise ChunkDamaged(f"a chunk in pack {chunk.place.pack} is not as long as it says", chunk.place.pack)
        found: bytes = module.ZstdDecompressor().decompress(stored)
    except module.ZstdError as error:
        raise ChunkDamaged(f"a chunk in pack {chunk.place.pack} is damaged: {error}", chunk.place.pack) from error
    return found


def _with_zeros(chunk: Chunk, stored: Piece) -> bytes:
    count = -(-chunk.size_bytes // PAGE_BYTES)
    after = -(-count // 8)
    bits, at, parts = int.from_bytes(stored[:after], "little"), after, list[Piece]()
    for number in range(count):
        length = min(PAGE_BYTES, chunk.size_bytes - number * PAGE_BYTES)
        if bits >> number & 1:
            parts.append(stored[at : at + length])
            at += length
        else:
            parts.append(_ZERO_PAGE[:length])
    return b"".join(parts)
