"""What all know of lazy thaws, those too that are to start at once: this loads nothing else."""

from __future__ import annotations

from typing import Final

import attrs

PAGER_NAME: Final = "iriscw-pager"
"""How who brings the pages of a lazy thaw is named in ``/proc/<pid>/stat``, and its guard: at most 15 bytes."""


@attrs.frozen
class PageFile:
    """A file of memory's pages: its name, its size, and the digests of its pieces, of 32 bytes each, in order."""

    name: str
    size_bytes: int
    digests: bytes
