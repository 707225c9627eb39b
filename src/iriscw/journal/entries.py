"""Entries and the chain that binds them.

Each entry's digest is the SHA-256 of the digest before it and the entry itself, so that a changed, lost,
repeated or swapped entry breaks the chain at its place. A file starts with a *base* entry (sequence 0) that
tells which chain it continues: after compaction the old file's head, and ``through``, the last sequence it
speaks for. Up to ``through`` sequences may have gaps (what was superseded is gone), after it they have none.

The chain finds damage, not malice: who can write the file can also compute digests.
"""

from __future__ import annotations

import enum
import hashlib
import json
import struct
from collections.abc import Iterable
from typing import NamedTuple

import attrs

from iriscw._errors import InvalidArgument, JournalCorrupt

GENESIS = bytes(32)
"""The digest before a file's first entry."""


class EntryKind(enum.StrEnum):
    """What an entry says. One character: it is stored in each entry."""

    BASE = "b"
    RECORD = "r"
    SNAPSHOT = "s"
    FORGET = "f"


EMPTY_SNAPSHOT = "[]"
"""The payload of a snapshot without records: the path has none any more."""


class Entry(NamedTuple):
    """One entry of the log. ``payload`` is JSON, empty for a forget."""

    sequence: int
    path: str
    kind: str
    payload: str

    @property
    def size_bytes(self) -> int:
        """What it counts against bounds. Payloads are ASCII, so characters are bytes."""
        return len(self.path) + len(self.payload)


_HEADER = struct.Struct(">QcII")


def digest_after(previous: bytes, entry: Entry) -> bytes:
    """Return the digest of ``entry`` in a chain whose digest was ``previous``."""
    path = entry.path.encode()
    payload = entry.payload.encode()
    header = _HEADER.pack(entry.sequence, entry.kind.encode(), len(path), len(payload))
    return hashlib.sha256(b"".join((previous, header, path, payload))).digest()


def seal(previous: bytes, entries: Iterable[Entry]) -> list[tuple[int, str, str, str, bytes]]:
    """Return ``entries`` with their digests, as rows."""
    rows = []
    for entry in entries:
        previous = digest_after(previous, entry)
        rows.append((entry.sequence, entry.path, str(entry.kind), entry.payload, previous))
    return rows


def check_path(path: str) -> None:
    """Refuse what is not an actor's path.

    Raises:
        InvalidArgument: it is not ``/`` or ``/name/name``, or is not text that UTF-8 can hold.
    """
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/") or "//" in path:
        raise InvalidArgument(f"{path!r} is not an actor's path: expected /name/name")
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"{path!r} is not an actor's path: it is not valid text") from None


@attrs.frozen
class Base:
    """What a file continues: the digest and the sequence of the old file's head."""

    head: bytes = GENESIS
    through: int = 0

    def entry(self) -> Entry:
        """Return the entry that a file starts with."""
        payload = json.dumps({"head": self.head.hex(), "through": self.through}, sort_keys=True)
        return Entry(0, "", EntryKind.BASE, payload)

    @classmethod
    def of(cls, entry: Entry) -> Base:
        """Read the entry that a file starts with.

        Raises:
            JournalCorrupt: it is no such entry.
        """
        try:
            told = json.loads(entry.payload)
            base = cls(bytes.fromhex(told["head"]), int(told["through"]))
        except (ValueError, KeyError, TypeError) as error:
            raise JournalCorrupt(f"sequence {entry.sequence}: not the first entry of a journal: {error}") from error
        if entry.sequence != 0 or entry.kind != EntryKind.BASE:
            raise JournalCorrupt(f"sequence {entry.sequence}: kind {entry.kind!r} cannot be the first entry")
        return base


class Chain:
    """Follows a file's entries from the first, and stops at the one that does not fit."""

    def __init__(self) -> None:
        self.base: Base | None = None
        self.sequence = 0
        self.digest = GENESIS
        self.count = 0
        """Entries followed, the base not counted."""

    def follow(self, entry: Entry, digest: bytes) -> None:
        """Take the next entry.

        Raises:
            JournalCorrupt: its sequence or digest does not follow the one before.
        """
        base = self.base
        if base is None:
            base = Base.of(entry)
        elif entry.sequence > base.through:
            expected = self.last + 1
            if entry.sequence != expected:
                raise JournalCorrupt(f"sequence {expected} is missing: {entry.sequence} comes instead")
        computed = digest_after(self.digest, entry)
        if computed != digest:
            raise JournalCorrupt(
                f"sequence {entry.sequence}: its digest does not fit the entry and the chain before it"
            )
        self.count += self.base is not None
        self.base = base
        self.sequence = entry.sequence
        self.digest = computed

    def finish(self, sequence: int, digest: bytes) -> None:
        """Compare the end of the entries with the head that the file states.

        Raises:
            JournalCorrupt: entries are missing at the end, or all of them are.
        """
        if self.base is None:
            raise JournalCorrupt("sequence 0: the journal has no first entry")
        if (self.last, self.digest) != (sequence, digest):
            raise JournalCorrupt(f"sequence {self.last + 1}: entries end here, the file's head says {sequence}")

    @property
    def last(self) -> int:
        """The last sequence that the file speaks for, superseded entries included."""
        return max(self.sequence, self.base.through if self.base else 0)
