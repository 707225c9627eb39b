"""What CRIU's images say: which page is where, who a Unix socket talks to, and whose child is in which session. Pure.

A pagemap names ranges of addresses, and the pages of those that are present lie in ``pages-N.img`` one after the other.
CRIU marks what it can bring later (private anonymous memory) whenever it dumps, with or without lazy pages. The numbers
are those of CRIU's ``pagemap.proto``, which it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from iriscw.freeze.criu_protobuf import NotProtobuf, decode, message, unsigned

PAGEMAP_MAGIC: Final = bytes.fromhex("1943565425400856")
"""How a pagemap begins: an image of CRIU, with a pagemap."""

IN_PARENT, LAZY, PRESENT = 1, 2, 4
"""Flags of a range: its pages are in another dump's images, may come later, are in this file."""

FILES_MAGIC: Final = bytes.fromhex("1943565438313056")
"""How ``files.img`` begins: an image of CRIU, with what descriptors lead to."""

TREE_MAGIC: Final = bytes.fromhex("1943565430302750")
"""How ``pstree.img`` begins: an image of CRIU, with whose child each task is."""

FIRST_PID: Final = 1
"""The number of the first process of a PID namespace: what loses its parent becomes its child."""

_UNIX_SOCKET: Final = b"\x08\x05"
"""How an entry of ``files.img`` begins whose type, its first field, is that of a Unix socket."""

MAX_ENTRY_BYTES: Final = 4096
MAX_TREE_BYTES: Final = 4 << 20
"""A task names its threads, of which the kernel allows four million on a machine."""
MAX_FILE_ENTRY_BYTES: Final = 1 << 20
"""A path has 4096 bytes; the rest is small."""

MAX_ADDRESS: Final = 1 << 57
"""With five levels of page tables."""


class NotPagemap(ValueError):
    """These bytes are no pagemap, or one that iriscw has no dump of."""


class NotFiles(ValueError):
    """These bytes are no ``files.img``."""


class NotTree(ValueError):
    """These bytes are no ``pstree.img``."""


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
        entries = list(_entries(data, MAX_ENTRY_BYTES))
    except (NotProtobuf, _CutOff) as error:
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


class _CutOff(ValueError):
    """An image ends within an entry, or has one that is absurd."""


def _entries(data: bytes, most_bytes: int) -> Iterator[dict[int, int | bytes]]:
    at = len(PAGEMAP_MAGIC)
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if length > most_bytes or at + length > len(data):
            raise _CutOff("an entry is cut off")
        yield decode(data[at : at + length])
        at += length


class _Task(NamedTuple):
    """One task of ``pstree.img``."""

    pid: int
    parent: int
    session: int


def strays(data: bytes) -> tuple[int, ...]:
    """Give the tasks in ``pstree.img`` that CRIU cannot bring back where they were, by their numbers in there.

    A session has to come from its first process. CRIU makes the child of one in the session of another process below
    that one, or below a helper, and gives it its parent only if that is who adopts orphans: the first of its namespace.
    Of the others it says that nobody leads their session, or it leaves them to whoever adopts them, stopped for ever.

    Raises:
        NotTree: it is no such image.
    """
    if not data.startswith(TREE_MAGIC):
        raise NotTree("it does not begin as a list of tasks")
    try:
        found = [
            _Task(*(unsigned(entry.get(field)) for field in (1, 2, 4))) for entry in _entries(data, MAX_TREE_BYTES)
        ]
    except (NotProtobuf, _CutOff) as error:
        raise NotTree(str(error)) from error
    if not found:
        raise NotTree("it names no task")
    root, tasks = found[0], {task.pid: task for task in found}
    return tuple(task.pid for task in found[1:] if not _comes_back(task, root, tasks))


def _comes_back(task: _Task, root: _Task, tasks: dict[int, _Task]) -> bool:
    if task.session == task.pid:
        return True
    if task.parent == root.pid:
        return task.session == root.session or root.pid == FIRST_PID
    above = tasks.get(task.parent)
    if above is None or above.session == task.session:
        return above is not None
    for _ in tasks:  # no line is longer, unless it is a circle
        if above is None or above.pid == task.session:
            return above is not None
        above = tasks.get(above.parent)
    return False


def unresolved_peers(data: bytes) -> tuple[int, ...]:
    """Give the inodes of Unix sockets in ``files.img`` whose other end is in no image.

    CRIU refuses to dump most of these, but not one whose connection nobody has accepted yet, and never restores it.

    Raises:
        NotFiles: it is no such image.
    """
    if not data.startswith(FILES_MAGIC):
        raise NotFiles("it does not begin as a list of files")
    peers: dict[int, int] = {}
    at = len(FILES_MAGIC)
    while at < len(data):
        begin, length = at + 4, int.from_bytes(data[at : at + 4], "little")
        at = begin + length
        if length > MAX_FILE_ENTRY_BYTES or at > len(data):
            raise NotFiles("an entry is cut off")
        if data.startswith(_UNIX_SOCKET, begin):
            try:
                entry = message(decode(data[begin:at]).get(16))
            except NotProtobuf as error:
                raise NotFiles(str(error)) from error
            peers[unsigned(entry.get(2))] = unsigned(entry.get(8))
    return tuple(inode for inode, peer in peers.items() if peer and peer not in peers)
