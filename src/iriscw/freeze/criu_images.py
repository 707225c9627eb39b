"""Where CRIU's images keep which page: ``pagemap-*.img``, as bytes. Pure.

A pagemap names ranges of addresses, and the pages of those that are present lie in ``pages-N.img`` one after the other.
CRIU marks what it can bring later (private anonymous memory) whenever it dumps, with or without lazy pages. The numbers
are those of CRIU's ``pagemap.proto``, which it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from iriscw.freeze.criu_protobuf import NotProtobuf, decode, unsigned

PAGEMAP_MAGIC: Final = bytes.fromhex("1943565425400856")
"""How a pagemap begins: an image of CRIU, with a pagemap."""

IN_PARENT, LAZY, PRESENT = 1, 2, 4
"""Flags of a range: its pages are in another dump's images, may come later, are in this file."""

MAX_ENTRY_BYTES: Final = 4096
MAX_ADDRESS: Final = 1 << 57
"""With five levels of page tables."""


class NotPagemap(ValueError):
    """These bytes are no pagemap, or one that iriscw has no dump of."""


class Span(NamedTuple):
    """One range of addresses whose pages are in the file."""

    start: int
    end: int
    offset: int
    """Of its first byte in the file of pages."""
    lazy: bool
    """Whether it may come later."""


class Pagemap(NamedTuple):
    """The pagemap of one process, or of one piece of shared memory."""

    pages: int
    """The number in the name of the file of pages."""
    spans: tuple[Span, ...]

    @property
    def size_bytes(self) -> int:
        """Give the size that the file of pages has to have."""
        return self.spans[-1].offset + self.spans[-1].end - self.spans[-1].start if self.spans else 0


def read_pagemap(data: bytes, page_size: int) -> Pagemap:
    """Read a pagemap.

    Raises:
        NotPagemap: it is none.
    """
    if not data.startswith(PAGEMAP_MAGIC):
        raise NotPagemap("it does not begin as a pagemap")
    try:
        entries = list(_entries(data))
    except NotProtobuf as error:
        raise NotPagemap(str(error)) from error
    if not entries:
        raise NotPagemap("it has no beginning")
    spans: list[Span] = []
    offset = 0
    for entry in entries[1:]:
        start = unsigned(entry.get(1))
        length = (unsigned(entry.get(5)) or unsigned(entry.get(2))) * page_size
        flags = unsigned(entry.get(4)) if 4 in entry else PRESENT
        if flags & IN_PARENT or entry.get(3):
            raise NotPagemap("its pages are in another dump")
        if flags & LAZY and not flags & PRESENT:
            raise NotPagemap("its pages were never written")
        if start % page_size or not 0 < length <= MAX_ADDRESS - start:
            raise NotPagemap(f"a range of {length} bytes at {start:#x}")
        if flags & PRESENT:
            spans.append(Span(start, start + length, offset, bool(flags & LAZY)))
            offset += length
    return Pagemap(unsigned(entries[0].get(1)), tuple(spans))


def _entries(data: bytes) -> Iterator[dict[int, int | bytes]]:
    at = len(PAGEMAP_MAGIC)
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if length > MAX_ENTRY_BYTES or at + length > len(data):
            raise NotPagemap("an entry is cut off")
        yield decode(data[at : at + length])
        at += length
