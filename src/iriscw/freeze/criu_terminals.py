"""What CRIU's images say of the terminals of a tree. Pure.

A pseudoterminal has two sides. Where the tree holds the other side (``/dev/ptmx``) as well, the terminal is *inside*:
CRIU makes both again, under the number that it had. Otherwise it is *outside*, a shell's or that of an ssh session, and
CRIU puts standard input of whoever thaws in its place: once. Whoever had opened it a second time, and not duplicated
the descriptor, gets whatever terminal has the old number by then.

The numbers are those of CRIU's ``tty.proto``, ``fdinfo.proto`` and ``pstree.proto``, which it keeps.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from iriscw.freeze.criu_images import FILES_MAGIC, TREE_MAGIC
from iriscw.freeze.criu_protobuf import NotProtobuf, decode, message, unsigned

TERMINALS_MAGIC: Final = bytes.fromhex("1943565436304559")
"""How ``tty-info.img`` begins: an image of CRIU, with terminals."""

QUEUES_MAGIC: Final = bytes.fromhex("1943565426304159")
"""How ``tty-data.img`` begins: an image of CRIU, with what waited in terminals."""

DESCRIPTORS_MAGIC: Final = bytes.fromhex("1943565432372156")
"""How ``fdinfo-N.img`` begins: an image of CRIU, with descriptors."""

IDENTITIES_MAGIC: Final = bytes.fromhex("1943565430204354")
"""How ``ids-N.img`` begins: an image of CRIU, with what a task shares."""

REACH: Final = 32
"""So many terminals does CRIU make, from the lowest free number on, to get the one that it needs."""

MAX_ENTRY_BYTES: Final = 4 << 20
"""A task of ``pstree.img`` names its threads; all else is small."""

_PSEUDOTERMINAL: Final = 1
_TERMINAL: Final = b"\x08\x0b"
"""How an entry of ``files.img`` begins whose type, its first field, is that of a terminal."""


_READ: Final = re.compile(
    rb"(?:Read (?P<size>\d+) bytes \(\d+\) from|No more data on) tty \(\w+ (?:0x)?(?P<which>[0-9a-f]+)\)"
)
_UNREAD: Final = b"Can't read data from tty ("
"""What CRIU's log says while it takes out what waits."""


class NotTerminals(ValueError):
    """These bytes are no such image."""


class SavedTerminal(NamedTuple):
    """One side of a terminal, as it was when the tree was frozen."""

    number: int
    """That of ``/dev/pts``."""
    master: bool
    session: int
    group: int
    """The process group in its foreground; 0 if there was none, or it cannot be seen."""
    hung_up: bool
    """Its other side was closed: it is good for nothing but end of file."""
    opened: int
    """How often the tree had opened it. Descriptors that were duplicated or inherited count once."""
    which: int = 0
    """Its number in these images."""
    packets: bool = False
    """What is read from it begins with a byte that says of what kind it is (``TIOCPKT``)."""


def read_terminals(terminals: bytes, files: bytes) -> tuple[SavedTerminal, ...]:
    """Return the pseudoterminals in ``tty-info.img``, with what ``files.img`` says of them.

    Other terminals are left out.

    Raises:
        NotTerminals: one of them is no such image.
    """
    opened: dict[int, int] = {}
    for data in _entries(files, FILES_MAGIC):
        if data.startswith(_TERMINAL):
            which = unsigned(_message(_decoded(data), 19).get(2))
            opened[which] = opened.get(which, 0) + 1
    found = []
    for data in _entries(terminals, TERMINALS_MAGIC):
        entry = _decoded(data)
        which = unsigned(entry.get(1))
        if unsigned(entry.get(2)) == _PSEUDOTERMINAL:
            found.append(
                SavedTerminal(
                    number=unsigned(_message(entry, 12).get(1)),
                    master=bool(which & 1),
                    session=unsigned(entry.get(6)),
                    group=unsigned(entry.get(7)),
                    hung_up=9 not in entry,
                    opened=opened.get(which, 0),
                    which=which,
                    packets=bool(unsigned(entry.get(5))),
                )
            )
    return tuple(found)


def read_queues(
    data: bytes, log: bytes, terminals: tuple[SavedTerminal, ...]
) -> dict[tuple[int, bool], tuple[bytes, ...]]:
    """Return what CRIU took out, by the terminal's number and whether its master was to read it.

    Args:
        data: ``tty-data.img``; empty if there is none.
        log: what CRIU wrote while it took that.
        terminals: those of the tree.

    Returns:
        Pieces as the terminal gave them, and an empty one for an end of file: of what is given by lines, each line.

    Raises:
        NotTerminals: it is no such image.
    """
    known = {each.which: each for each in terminals}
    reads = _reads(log)
    found: dict[tuple[int, bool], tuple[bytes, ...]] = {}
    waiting = {which: b"" for which in reads if which in known}
    for entry in map(_decoded, _entries(data, QUEUES_MAGIC) if data else ()):
        which, waited = unsigned(entry.get(1)), entry.get(2)
        if which in known and isinstance(waited, bytes):
            waiting[which] = waited
    for which, waited in waiting.items():
        sizes = reads.get(which, [])
        if sum(sizes) != len(waited):  # it is not the log of this, or it has that back
            sizes = [len(waited)] if waited else []
        ends = itertools.accumulate(sizes)
        pieces = [waited[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        each = known[which]
        found[each.number, each.master] = tuple(piece[1:] for piece in pieces) if each.packets else tuple(pieces)
    return found


def without_queues(data: bytes, number: int) -> bytes:
    """Return ``tty-data.img`` without what waited in a terminal.

    Raises:
        NotTerminals: it is no such image.
    """
    entries = _entries(data or QUEUES_MAGIC, QUEUES_MAGIC)
    left = [each for each in entries if unsigned(_decoded(each).get(1)) >> 1 != number]
    return b"".join([QUEUES_MAGIC, *(len(each).to_bytes(4, "little") + each for each in left)])


def _reads(log: bytes) -> dict[int, list[int]]:
    """Return how many bytes CRIU got of each terminal at a time, as its log says; 0 for an end of file."""
    found: dict[int, list[int]] = {}
    for each in _READ.finditer(log):
        found.setdefault(int(each["which"], 16), []).append(int(each["size"] or 0))
    return found


def written_back(log: bytes) -> bool:
    """Whether CRIU says that it could not read a terminal: then it has written what it had read into them again."""
    return _UNREAD in log


def read_flags(files: bytes) -> dict[int, tuple[int, int]]:
    """Return which terminal each in ``files.img`` is and its flags, by the number that descriptors have for it.

    Raises:
        NotTerminals: it is no such image.
    """
    opened = (_message(_decoded(data), 19) for data in _entries(files, FILES_MAGIC) if data.startswith(_TERMINAL))
    return {unsigned(each.get(1)): (unsigned(each.get(2)), unsigned(each.get(3))) for each in opened}


def read_descriptors(data: bytes) -> dict[int, int]:
    """Return what ``fdinfo-N.img`` says of each descriptor: the number of its file.

    Raises:
        NotTerminals: it is no such image.
    """
    entries = map(_decoded, _entries(data, DESCRIPTORS_MAGIC))
    return {unsigned(entry.get(4)): unsigned(entry.get(1)) for entry in entries}


def descriptors_of(data: bytes) -> int:
    """Return the number N of ``fdinfo-N.img``, which a task has by its ``ids-N.img``.

    Raises:
        NotTerminals: it is no such image.
    """
    for entry in _entries(data, IDENTITIES_MAGIC):
        return unsigned(_decoded(entry).get(2))
    raise NotTerminals("a list of what a task shares that names nothing")


def outside(terminals: tuple[SavedTerminal, ...]) -> tuple[SavedTerminal, ...]:
    """Return those whose other side is not in the tree."""
    inside = [each.number for each in terminals if each.master]
    return tuple(each for each in terminals if not (each.master or each.hung_up or each.number in inside))


def needed_numbers(terminals: tuple[SavedTerminal, ...]) -> tuple[int, ...]:
    """Return the numbers that CRIU must get to make terminals again: nobody else may have them."""
    return tuple(dict.fromkeys(each.number for each in terminals if each.master or each.hung_up))


def trouble(terminals: tuple[SavedTerminal, ...]) -> str:
    """Say why the tree would not come back with its terminals; empty if it will."""
    beyond = outside(terminals)
    if twice := next((each for each in terminals if each.master and each.opened > 1), None):
        return (  # a master is opened once, when the terminal is made
            f"it has two terminals with the number {twice.number}, of different file systems (devpts): it would come "
            "back with one of them"
        )
    if len(beyond) > 1:
        first, second = beyond[0].number, beyond[1].number
        return (
            f"it has two terminals, /dev/pts/{first} and /dev/pts/{second}, whose other sides are outside of its tree"
        )
    if beyond and beyond[0].opened > 1:
        return (
            f"it has opened its terminal, /dev/pts/{beyond[0].number}, by that name: it would come back on whatever "
            "terminal has the number by then, somebody else's"
        )
    return ""


def beyond_reach(files: bytes, tables: Iterable[dict[int, int]]) -> int | None:
    """Return the number of a terminal that CRIU may not get again: too many of the tree are below it, and made later.

    Args:
        files: ``files.img``.
        tables: of each ``fdinfo-N.img`` the files, by descriptor.

    Raises:
        NotTerminals: it is no such image.
    """
    masters = {each: which >> 1 for each, (which, _) in read_flags(files).items() if which & 1}
    if len(masters) <= REACH:
        return None
    places: dict[int, list[tuple[int, int]]] = {}
    for table, opened in enumerate(tables):
        for descriptor, each in opened.items():
            if each in masters:
                places.setdefault(each, []).append((table, descriptor))
    for one, number in masters.items():
        below = [other for other, lower in masters.items() if lower < number]
        if sum(not _before(places.get(other, []), places.get(one, [])) for other in below) >= REACH:
            return number
    return None


def _before(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> bool:
    """Whether a file is certain to be made before another: by the same process, which goes by its descriptors."""
    tables = dict.fromkeys(table for table, _ in (*one, *other))
    return len(tables) == 1 and bool(one) and bool(other) and min(one) < min(other)


def group_of_root(tree: bytes) -> int:
    """Return the process group that the first task in ``pstree.img`` had.

    Raises:
        NotTerminals: it is no such image.
    """
    for data in _entries(tree, TREE_MAGIC):
        return unsigned(_decoded(data).get(3))
    raise NotTerminals("a list of tasks that names none")


def _entries(data: bytes, magic: bytes) -> Iterator[bytes]:
    if not data.startswith(magic):
        raise NotTerminals("it does not begin as an image of its kind")
    at = len(magic)
    while at < len(data):
        begin, length = at + 4, int.from_bytes(data[at : at + 4], "little")
        at = begin + length
        if length > MAX_ENTRY_BYTES or at > len(data):
            raise NotTerminals("an entry is cut off")
        yield data[begin:at]


def _decoded(data: bytes) -> dict[int, int | bytes]:
    try:
        return decode(data)
    except NotProtobuf as error:
        raise NotTerminals(str(error)) from error


def _message(entry: dict[int, int | bytes], field: int) -> dict[int, int | bytes]:
    try:
        return message(entry.get(field))
    except NotProtobuf as error:
        raise NotTerminals(str(error)) from error
