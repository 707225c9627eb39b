"""The second copy of a journal: numbered segments, and bases that stand for all segments before them. Pure.

Theory of operation. Each commit becomes one *segment*, an object under the next number that is written only if there is
none of that number. So of two controllers that believe the journal is theirs, one gets each number, and the other
learns at its next commit that it is not the writer any more. Each segment names the digest of the one before it: a
lost, changed or foreign segment breaks the chain at its place. A *base* holds what still counts of everything up to a
segment; what is before it is deleted some time.

A text object: a line that says what it is, a line for each entry, and the SHA-256 of all lines before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import attrs

from iriscw._errors import JournalCorrupt
from iriscw.journal.entries import Entry, EntryKind

LAYOUT = 1
"""The version of what is described above."""

BEGINNING = "0" * 64
"""The digest before the first segment."""

SEGMENTS = "segments/"
BASES = "bases/"

_DIGITS = 12
"""Of a number in a name, so that names sort as numbers do: thirty years of a thousand commits a second."""


def segment_name(number: int) -> str:
    """Return the name of a segment, below the journal's prefix."""
    return f"{SEGMENTS}{number:0{_DIGITS}}"


def base_name(number: int) -> str:
    """Return the name of the base that stands for the segments up to ``number``."""
    return f"{BASES}{number:0{_DIGITS}}"


def number_of(name: str) -> int | None:
    """Return the number in a name; None: it is not part of a journal's second copy, and somebody else's."""
    digits = name.rpartition("/")[2]
    return int(digits) if len(digits) == _DIGITS and digits.isascii() and digits.isdecimal() else None


def numbers_of(names: Iterable[str]) -> list[int]:
    """Return the numbers in names, those of others left out."""
    return [number for number in map(number_of, names) if number is not None]


@attrs.frozen
class Head:
    """How far the second copy goes."""

    number: int
    """Of the last segment, or of the base if there is none after it."""
    digest: str
    """Of that segment."""
    through: int
    """The sequence of the last entry."""
    base: int = 0
    """The number of the last base; 0 if there is none."""
    journal: str = ""
    """Which journal it is: what its first segment says."""


NOTHING = Head(0, BEGINNING, 0)
"""The head of a second copy that holds nothing yet."""


@attrs.frozen
class Segment:
    """One commit, or the mark of a controller that takes the journal over, which has no entries."""

    number: int
    holder: str
    """Which opening of the journal wrote it."""
    previous: str
    """The digest of the segment before it."""
    through: int
    """The sequence of the last entry up to here."""
    entries: tuple[Entry, ...]
    journal: str = ""
    """Which journal it is part of."""

    def encode(self) -> bytes:
        """Return the object's content."""
        about = {"holder": self.holder, "number": self.number, "previous": self.previous, "through": self.through}
        about["journal"] = self.journal
        return _encode("segment", about, self.entries)

    @classmethod
    def decode(cls, name: str, data: bytes) -> Segment:
        """Read an object's content.

        Raises:
            JournalCorrupt: it is damaged, or none, or was another one's.
        """
        about, entries = _decode("segment", name, data, ("number", "holder", "previous", "through", "journal"))
        number, holder, previous, through, journal = about
        found = cls(number, holder, previous, through, entries, journal)
        if found.number != number_of(name):
            raise JournalCorrupt(f"{name} holds segment {found.number}")
        return found


@attrs.frozen
class Snapshot:
    """What counts of everything up to a segment."""

    head: Head
    """Of that segment; its ``base`` is its own number."""
    entries: tuple[Entry, ...]

    def encode(self) -> bytes:
        """Return the object's content."""
        head = self.head
        about = {"digest": head.digest, "journal": head.journal, "number": head.number, "through": head.through}
        return _encode("base", about, self.entries)

    @classmethod
    def decode(cls, name: str, data: bytes) -> Snapshot:
        """Read an object's content.

        Raises:
            JournalCorrupt: it is damaged, or none, or was another one's.
        """
        about, entries = _decode("base", name, data, ("number", "digest", "through", "journal"))
        number, digest, through, journal = about
        if number != number_of(name):
            raise JournalCorrupt(f"{name} holds base {number}")
        return cls(Head(number, digest, through, number, journal), entries)


def digest_of(data: bytes) -> str:
    """Return the digest of an object."""
    return hashlib.sha256(data).hexdigest()


def _encode(what: str, about: dict[str, Any], entries: Iterable[Entry]) -> bytes:
    lines = [_line({"layout": LAYOUT, "what": what, **about})]
    lines += [_line([entry.sequence, entry.path, str(entry.kind), entry.payload]) for entry in entries]
    text = b"".join(lines)
    return text + digest_of(text).encode() + b"\n"


def _line(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _decode(what: str, name: str, data: bytes, keys: tuple[str, ...]) -> tuple[list[Any], tuple[Entry, ...]]:
    text, end = data[:-65], data[-65:]
    if digest_of(text).encode() + b"\n" != end:
        raise JournalCorrupt(f"{name} is damaged: its content is not what its digest says")
    lines = text.splitlines()
    try:
        about = json.loads(lines[0])
        if about.pop("what") != what or about.pop("layout") != LAYOUT:
            raise JournalCorrupt(f"{name} is not a {what} of layout {LAYOUT}")
        told = [about[key] for key in keys]
        entries = tuple(Entry(*json.loads(line)) for line in lines[1:])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise JournalCorrupt(f"{name} cannot be read: {error}") from error
    if any(entry.kind not in _KINDS for entry in entries):
        raise JournalCorrupt(f"{name} holds entries of an unknown kind")
    return told, entries


_KINDS = frozenset({EntryKind.RECORD, EntryKind.SNAPSHOT, EntryKind.FORGET})
