"""Files of memory's pages, for those that are to start at once: this loads nothing else."""

from __future__ import annotations

import attrs


@attrs.frozen
class PageFile:
    """A file of memory's pages: its name, its size, and the digests of its pieces, of 32 bytes each, in order."""

    name: str
    size_bytes: int
    digests: bytes
