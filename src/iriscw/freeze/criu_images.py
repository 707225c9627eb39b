"""What CRIU's images say: which page is where, who a Unix socket talks to, and whose child is in which session. Pure.

A pagemap names ranges of addresses, and the pages of those that are present lie in ``pages-N.img`` one after the other.
CRIU marks what it can bring later (private anonymous memory) whenever it dumps, with or without lazy pages. The numbers
are those of CRIU's ``pagemap.proto``, which it keeps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from iriscw.freeze.criu_protobuf import NotProtobuf, decode, message, messages, numbers, replaced, unsigned

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

_REGULAR: Final = b"\x08\x01"
_UNIX_SOCKET: Final = b"\x08\x05"
_TIMER: Final = b"\x08\x11"
"""How an entry of ``files.img`` begins whose type, its first field, says what it is an entry of."""

MAX_ENTRY_BYTES: Final = 4096
MAX_TREE_BYTES: Final = 4 << 20
"""A task names its threads, of which the kernel allows four million on a machine."""
MAX_FILE_ENTRY_BYTES: Final = 1 << 20
"""A path has 4096 bytes; the rest is small."""

MAX_IMAGE_ENTRY_BYTES: Final = 16 << 20
"""What a process has mapped is one entry: the kernel allows 65,530 mappings, of some 100 bytes each."""

MAX_ADDRESS: Final = 1 << 57
"""With five levels of page tables."""


class NotPagemap(ValueError):
    """These bytes are no pagemap, or one that iriscw has no dump of."""


class NotFiles(ValueError):
    """These bytes are no ``files.img``."""


class NotTree(ValueError):
    """These bytes are no ``pstree.img``."""


class AddressSpan(NamedTuple):
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
    spans: tuple[AddressSpan, ...]

    @property
    def size_bytes(self) -> int:
        """Return the size that the file of pages has to have."""
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
    spans: list[AddressSpan] = []
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
            spans.append(AddressSpan(start, start + length, offset, bool(flags & LAZY)))
            offset += length
    return Pagemap(unsigned(entries[0].get(1)), tuple(spans))


class _CutOff(ValueError):
    """An image ends within an entry, or has one that is absurd."""


def _entries(data: bytes, most_bytes: int) -> Iterator[dict[int, int | bytes]]:
    return map(decode, raw_entries(data, most_bytes))


def raw_entries(data: bytes, most_bytes: int) -> Iterator[bytes]:
    """Yield the entries of an image, each as it stands there.

    Raises:
        ValueError: one is cut off, or larger than any is.
    """
    at = len(PAGEMAP_MAGIC)
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if length > most_bytes or at + length > len(data):
            raise _CutOff("an entry is cut off")
        yield data[at : at + length]
        at += length


class _Task(NamedTuple):
    """One task of ``pstree.img``."""

    pid: int
    parent: int
    session: int


def strays(data: bytes) -> tuple[int, ...]:
    """Return the tasks in ``pstree.img`` that CRIU cannot bring back where they were, by their numbers in there.

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


CORE_MAGIC: Final = bytes.fromhex("1943565447380555")
"""How ``core-N.img`` begins: an image of CRIU, with what a thread was."""

MM_MAGIC: Final = bytes.fromhex("1943565420284957")
"""How ``mm-N.img`` begins: an image of CRIU, with what a process has mapped."""

_CALLED_AGAIN: Final = (7, 35, 202, 230)
"""``poll``, ``nanosleep``, ``futex`` and ``clock_nanosleep`` on x86_64, by number: the instruction takes two bytes."""
_EINTR: Final = (1 << 64) - 4

_PRIVATE_FILE: Final = 1 << 6
"""In the status of a mapping: it is one of a file, and what is written to it is the process's own."""


class NotImage(ValueError):
    """These bytes are no image of that kind."""


def threads_of(data: bytes) -> tuple[int, ...]:
    """Return the numbers of the threads of the first task in ``pstree.img``.

    Raises:
        NotTree: it is no such image.
    """
    if not data.startswith(TREE_MAGIC):
        raise NotTree("it does not begin as a list of tasks")
    try:
        for entry in raw_entries(data, MAX_TREE_BYTES):
            return tuple(numbers(entry, 5))
    except (NotProtobuf, _CutOff) as error:
        raise NotTree(str(error)) from error
    raise NotTree("it names no task")


def death_signal(data: bytes) -> int:
    """Return from ``core-N.img`` the signal that a thread gets when its parent ends; 0 if none.

    Raises:
        NotImage: it is no such image.
    """
    for entry in _image(data, CORE_MAGIC):
        return unsigned(message(decode(entry).get(5)).get(8))
    raise NotImage("it names no thread")


def without_death_signal(data: bytes) -> bytes:
    """Return ``core-N.img`` of a thread that does not end with its parent.

    Raises:
        NotImage: it is no such image.
    """
    out = bytearray(CORE_MAGIC)
    for entry in _image(data, CORE_MAGIC):
        thread = decode(entry).get(5)
        kept = replaced(entry, [(5, replaced(thread, [(8, None)]))]) if isinstance(thread, bytes) else entry
        out += len(kept).to_bytes(4, "little") + kept
    return bytes(out)


def waiting_on(data: bytes) -> bytes:
    """Return ``core-N.img`` of a thread that goes on to wait in ``poll``, or to sleep, if it is in there.

    Who is stopped in there goes on waiting when it is let run: the kernel notes the time that is left, in a place that
    no image has. CRIU has the call return ``EINTR`` instead, as if there had been a signal, and some programs end at
    that (``tail -f``, ``script``) or sleep too short. So the call is made again, as CRIU itself does with others. Its
    time begins anew, but what is given as a point in time stays that, and a sleep whose remaining time the kernel
    writes over its whole time (``sleep``) goes on with that. Where a signal waits for the thread, it is what ends the
    call, as ever.

    Raises:
        NotImage: it is no such image.
    """
    out = bytearray(CORE_MAGIC)
    for entry in _image(data, CORE_MAGIC):
        core = decode(entry)
        info = message(core.get(2))
        registers = message(info.get(2))
        pending = (message(message(core.get(place)).get(field)) for place, field in ((3, 10), (5, 9)))
        kept = entry
        call = unsigned(registers.get(16))
        interrupted = registers.get(11) == _EINTR and call in _CALLED_AGAIN and unsigned(registers.get(28)) <= 1
        if unsigned(core.get(1)) == 1 and interrupted and not any(pending):
            before, outer = _bytes(info.get(2)), _bytes(core.get(2))
            after = replaced(before, [(11, call), (17, unsigned(registers.get(17)) - 2)])
            kept = replaced(entry, [(2, replaced(outer, [(2, after)]))])
        out += len(kept).to_bytes(4, "little") + kept
    return bytes(out)


def _bytes(value: int | bytes | None) -> bytes:
    if not isinstance(value, bytes):
        raise NotProtobuf("registers that are none")
    return value


def privately_mapped(data: bytes) -> tuple[int, ...]:
    """Return from ``mm-N.img`` the files, by their ids in ``files.img``, of which a process has pages of its own.

    What it has not changed is in no image, and comes from the file: so that has to be the same at a thaw.

    Raises:
        NotImage: it is no such image.
    """
    found: dict[int, None] = {}
    for entry in _image(data, MM_MAGIC):
        found[unsigned(decode(entry).get(12))] = None  # what it executes
        for each in messages(entry, 14):
            mapping = decode(each)
            if unsigned(mapping.get(7)) & _PRIVATE_FILE:
                found[unsigned(mapping.get(4))] = None
    return tuple(found)


def mended(data: bytes, compared: Collection[int]) -> bytes:
    """Return ``files.img`` as CRIU should have written it.

    It has the sizes of regular files that are open: CRIU compares each with what it was, and brings nothing back if a
    log has grown. A program that was only stopped would not mind, so they are left out.

    A periodic timer whose time has come, and whose descriptor nobody has read since, is written down as one that is not
    armed: it would never come again. The kernel arms it when it is read, so it is armed for its next time.

    Args:
        data: the image.
        compared: ids of the files whose size is kept, because a program has pages of its own of them.

    Raises:
        NotFiles: it is no such image.
    """
    if not data.startswith(FILES_MAGIC):
        raise NotFiles("it does not begin as a list of files")
    out = bytearray(FILES_MAGIC)
    try:
        for entry in raw_entries(data, MAX_FILE_ENTRY_BYTES):
            kept = entry
            if entry.startswith(_REGULAR):
                regular = decode(entry).get(3)
                if isinstance(regular, bytes) and unsigned(decode(regular).get(1)) not in compared:
                    kept = replaced(entry, [(3, replaced(regular, [(8, None)]))])
            elif entry.startswith(_TIMER):
                timer = decode(entry).get(12)
                if isinstance(timer, bytes):
                    kept = replaced(entry, [(12, _armed(timer))])
            out += len(kept).to_bytes(4, "little") + kept
    except (NotProtobuf, _CutOff) as error:
        raise NotFiles(str(error)) from error
    return bytes(out)


def _armed(timer: bytes) -> bytes:
    fields = decode(timer)
    expired = unsigned(fields.get(5)) > 0 and not (unsigned(fields.get(7)) or unsigned(fields.get(8)))
    seconds, nanoseconds = unsigned(fields.get(9)), unsigned(fields.get(10))
    return replaced(timer, [(7, seconds), (8, nanoseconds)]) if expired and (seconds or nanoseconds) else timer


def _image(data: bytes, magic: bytes) -> Iterator[bytes]:
    if not data.startswith(magic):
        raise NotImage("it begins as another image")
    try:
        yield from raw_entries(data, MAX_IMAGE_ENTRY_BYTES)
    except (NotProtobuf, _CutOff) as error:
        raise NotImage(str(error)) from error


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """Say of what is none of CRIU's messages that it is not a list of files."""
    try:
        yield
    except (NotProtobuf, _CutOff) as error:
        raise NotFiles(str(error)) from error


def _files_of(data: bytes, begins: bytes, number: int) -> Iterator[bytes]:
    """Yield the messages about one kind of files in ``files.img``, by how an entry begins and by its field."""
    if not data.startswith(FILES_MAGIC):
        raise NotFiles("it does not begin as a list of files")
    for raw in raw_entries(data, MAX_FILE_ENTRY_BYTES):
        inner = decode(raw).get(number) if raw.startswith(begins) else None
        if isinstance(inner, bytes):
            yield inner


def known_to_wait(data: bytes) -> dict[str, int]:
    """Return the listening Unix sockets in ``files.img``, by name as the kernel's table has it, and how many others in
    there wait to be accepted by each.

    Raises:
        NotFiles: it is no such image.
    """
    listening: dict[int, str] = {}
    peers: list[int] = []
    with _understood():
        for inner in _files_of(data, _UNIX_SOCKET, 16):
            entry = decode(inner)
            name = entry.get(11)
            if unsigned(entry.get(4)) == _LISTENING and isinstance(name, bytes):
                listening[unsigned(entry.get(2))] = (
                    name.rstrip(b"\0").replace(b"\0", b"@").decode(errors="surrogateescape")
                )
            peers.append(unsigned(entry.get(8)))
    known = dict.fromkeys(listening.values(), 0)
    for peer in peers:
        if peer in listening:
            known[listening[peer]] += 1
    return known


_LISTENING: Final = 10


class BoundPort(NamedTuple):
    """Where a socket hears from anybody, as the kernel writes it in its tables of sockets."""

    table: str
    """``tcp``, ``tcp6``, ``udp`` or ``udp6``: below ``/proc/net``."""
    address: str
    """In hexadecimal digits; all 0 for each address of the machine."""
    port: int


_INTERNET_SOCKET: Final = b"\x08\x04"
_KINDS: Final = {(6, 10): "tcp", (17, 7): "udp"}
"""By protocol and state: TCP that listens, and UDP that has no peer."""


def bound_ports(data: bytes) -> tuple[BoundPort, ...]:
    """Return where the sockets in ``files.img`` hear from anybody, but for those that share a port (``SO_REUSEPORT``).

    Raises:
        NotFiles: it is no such image.
    """
    found: list[BoundPort] = []
    with _understood():
        for inner in _files_of(data, _INTERNET_SOCKET, 4):
            entry = decode(inner)
            kind = _KINDS.get((unsigned(entry.get(5)), unsigned(entry.get(6))))
            shares = unsigned(message(entry.get(14)).get(17))
            if kind is None or shares or not entry.get(7):
                continue
            address = "".join(f"{word:08X}" for word in numbers(inner, 11))
            found.append(BoundPort(kind if len(address) == 8 else f"{kind}6", address, unsigned(entry.get(7))))
    return tuple(found)


class SocketName(NamedTuple):
    """The name of a Unix socket in the file system, by which it is reached."""

    path: bytes
    lost: bool
    """The file was removed, or is another one by now."""


_ESTABLISHED, _DATAGRAM = 1, 2


def socket_names(data: bytes) -> tuple[SocketName, ...]:
    """Return the names of Unix sockets in ``files.img``, but of those that only took theirs over when accepted.

    Raises:
        NotFiles: it is no such image.
    """
    found: list[SocketName] = []
    with _understood():
        for inner in _files_of(data, _UNIX_SOCKET, 16):
            entry = decode(inner)
            name, folder = entry.get(11), entry.get(14)
            accepted = unsigned(entry.get(4)) == _ESTABLISHED and unsigned(entry.get(3)) != _DATAGRAM
            if not isinstance(name, bytes) or not name.strip(b"\0") or name.startswith(b"\0") or accepted:
                continue
            path = name.rstrip(b"\0")
            if isinstance(folder, bytes) and not path.startswith(b"/"):
                path = folder.rstrip(b"/") + b"/" + path
            found.append(SocketName(path, bool(unsigned(entry.get(15)))))
    return tuple(found)


def unresolved_peers(data: bytes) -> tuple[int, ...]:
    """Return the inodes of Unix sockets in ``files.img`` whose other end is in no image.

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
