"""Where to cut CRIU's files of pages so that a second freeze of the same program has the same pieces. Pure.

A program that maps one more page shifts all pages behind it in ``pages-N.img``, so pieces that are cut at multiples of
the file's offset are all new. Their addresses do not change: pieces are cut at multiples of the *virtual address*, and
wherever addresses leave a gap. Ranges that follow each other without one are one range: CRIU splits them by what it
knows of them, which changes between two dumps of the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from iriscw.freeze.criu_images import NotPagemap, Pagemap, read_pagemap


def page_cuts(pagemaps: Mapping[str, bytes], *, page_size: int, window_bytes: int) -> dict[str, tuple[int, ...]]:
    """Return where to cut each file of pages: offsets in bytes, rising, without its beginning and its end.

    A file without a pagemap that can be read, or with two of them, is not in the result.

    Args:
        pagemaps: the contents of pagemaps, by the name of their file.
        page_size: of the machine, in bytes.
        window_bytes: the most that lies between two cuts; a multiple of ``page_size``.
    """
    found: dict[str, tuple[int, ...]] = {}
    twice: dict[str, None] = {}
    for data in pagemaps.values():
        try:
            pagemap = read_pagemap(data, page_size)
        except NotPagemap:  # it is stored all the same; whether it can be thawed is for CRIU to say
            continue
        name = f"pages-{pagemap.pages}.img"
        if name in found:
            twice[name] = None
        found[name] = cuts_of(pagemap, window_bytes)
    return {name: cuts for name, cuts in found.items() if name not in twice}


def cuts_of(pagemap: Pagemap, window_bytes: int) -> tuple[int, ...]:
    """Return where to cut the file of pages of one pagemap."""
    cuts: list[int] = []
    expected = -1
    for span in pagemap.spans:
        if span.start != expected:
            cuts.append(span.offset)
        first = -(-span.start // window_bytes) * window_bytes
        cuts += [span.offset + at - span.start for at in range(first, span.end, window_bytes)]
        expected = span.end
    return tuple(cut for cut in dict.fromkeys(cuts) if cut)
