"""Keeps the second copy of a journal, and gives it back when the first is gone.

Theory of operation. One thread calls, and waits for each answer: that of the journal's writer, for which this is a
slower disk. A write that was not answered is repeated under the same number; if the number is taken by then, what is
there is read, and is either ours or the end of our time as the writer.

Opening takes the journal over: a segment without entries under the next number. From then on whoever wrote before
cannot. What a writer before us has left unanswered lands before that, and counts, or not at all.

The first copy is only a cache of the second one. A *mark* beside it says which segment it was part of last; where the
mark does not fit the head of the second copy, the first copy is made anew from it. What the first copy has beyond the
mark was never acknowledged, but may be kept if nobody else wrote since, and is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from iriscw.errors import JournalCorrupt, JournalLocked, JournalLost, OperationError
from iriscw.files import decode_json, read_bounded, write_atomic
from iriscw.journal.entries import Entry
from iriscw.journal.liveness import Liveness
from iriscw.journal.segments import (
    BASES,
    NOTHING,
    SEGMENTS,
    Head,
    Segment,
    Snapshot,
    base_name,
    digest_of,
    number_of,
    segment_name,
)

SEGMENTS_PER_BASE = 256
"""Segments after which a base is written: what a restart reads at most, and some seconds of it."""

MARK = "replica.json"
MARK_BYTES = 4096


class ReplicaUnreachable(OperationError):
    """The place of the second copy does not answer, refuses, or is full. A write may have happened."""

    retryable = True


class NameTaken(OperationError):
    """There is an object of this name already; it was not touched."""


class Vault(Protocol):
    """Where the second copy is: objects by name, seen by a thread that waits for each answer.

    Raises:
        ReplicaUnreachable: by every method.
    """

    @property
    def where(self) -> str:
        """The place, for people."""

    def put_new(self, name: str, data: bytes) -> None:
        """Write an object that is durable when this returns.

        Raises:
            NameTaken: see there.
        """

    def get(self, name: str) -> bytes | None:
        """Give an object, None if there certainly is none."""

    def names(self, prefix: str) -> list[str]:
        """Give the names that begin with ``prefix``, in their order."""

    def delete(self, name: str) -> None:
        """Delete an object; that there is none is no error."""


@attrs.frozen
class Mark:
    """Which segment a first copy was part of last, and who had it open."""

    head: Head
    holder: str

    def write(self, folder: Path) -> None:
        """Put it beside the journal. It may be lost in a crash: an older one costs a restart some reading."""
        told = {"digest": self.head.digest, "number": self.head.number, "through": self.head.through}
        write_atomic(folder / MARK, json.dumps({"holder": self.holder, **told}).encode(), durable=False)

    @classmethod
    def read(cls, folder: Path) -> Mark | None:
        """Read it; None if there is none, or none that can be read: then the first copy is made anew."""
        try:
            told = decode_json(read_bounded(folder / MARK, MARK_BYTES))
            assert isinstance(told, dict)
            return cls(Head(int(told["number"]), str(told["digest"]), int(told["through"])), str(told["holder"]))
        except (OSError, ValueError, KeyError, TypeError, AssertionError):
            return None


class Replica:
    """The second copy, as one opening of the journal has it.

    Args:
        vault: Where it is.
        holder: Who we are: another text at each opening.
        per_base: Segments after which a base is written.
    """

    def __init__(self, vault: Vault, holder: str, *, per_base: int = SEGMENTS_PER_BASE) -> None:
        self.vault = vault
        self.holder = holder
        self.head = NOTHING
        self._per_base = per_base

    # Opening

    def look(self) -> Head:
        """Find out how far it goes.

        Raises:
            ReplicaUnreachable: see there.
            JournalCorrupt: something of it is missing or damaged.
        """
        base, after = self._parts()
        if not after:
            self.head = self._base(base).head if base else NOTHING
            return self.head
        name = segment_name(after[-1])
        data = self._get(name)
        last = Segment.decode(name, data)
        self.head = Head(last.number, digest_of(data), last.through, base)
        return self.head

    def continues(self, mark: Mark, ours: Sequence[Entry]) -> bool:
        """Say whether a first copy with this mark, and ``ours`` beyond it, is where the second copy is, or ahead.

        Raises:
            ReplicaUnreachable: see there.
            JournalCorrupt: the last segment is damaged.
        """
        if (mark.head.number, mark.head.digest) == (self.head.number, self.head.digest):
            return True
        if mark.head.number + 1 != self.head.number:
            return False
        name = segment_name(self.head.number)
        last = Segment.decode(name, self._get(name))
        # Written, and then we were ended before the mark was.
        return (last.previous, last.holder) == (mark.head.digest, mark.holder) and (
            list(last.entries) == list(ours[: len(last.entries)])
        )

    def restore(self) -> list[Entry]:
        """Give all entries that count, in order.

        Raises:
            ReplicaUnreachable: see there.
            JournalCorrupt: something of it is missing or damaged.
        """
        base, after = self._parts()
        entries: list[Entry] = []
        head = NOTHING
        if base:
            snapshot = self._base(base)
            head, entries = snapshot.head, [*snapshot.entries]
        for number in after:
            head = self._follow(head, number, entries)
        self.head = attrs.evolve(head, base=base)
        liveness = Liveness()
        for entry in entries:
            liveness.apply(entry)
        return [entry for entry in entries if liveness.counts(entry)]

    def _follow(self, head: Head, number: int, entries: list[Entry]) -> Head:
        name = segment_name(number)
        data = self._get(name)
        segment = Segment.decode(name, data)
        if segment.previous != head.digest:
            raise JournalCorrupt(f"{name} in {self.vault.where} does not follow the segment before it")
        entries += segment.entries
        return Head(number, digest_of(data), segment.through)

    def _parts(self) -> tuple[int, list[int]]:
        """Give the number of the last base, and those of the segments after it."""
        base = max(map(number_of, self.vault.names(BASES)), default=0)
        after = [number for number in map(number_of, self.vault.names(SEGMENTS)) if number > base]
        if after and after != list(range(base + 1, base + 1 + len(after))):
            missing = next(number for number in range(base + 1, after[-1]) if number not in after)
            raise JournalCorrupt(f"{segment_name(missing)} is missing in {self.vault.where}")
        return base, after

    def _base(self, number: int) -> Snapshot:
        name = base_name(number)
        return Snapshot.decode(name, self._get(name))

    def _get(self, name: str) -> bytes:
        data = self.vault.get(name)
        if data is None:
            raise JournalCorrupt(f"{name} is missing in {self.vault.where}")
        return data

    def take_over(self) -> None:
        """Become the writer.

        Raises:
            ReplicaUnreachable: see there.
            JournalLocked: another controller did, at the same time.
        """
        try:
            self.write((), self.head.through)
        except JournalLost as taken:
            raise JournalLocked(f"another controller has just opened the journal in {self.vault.where}") from taken

    # Writing

    def write(self, entries: Sequence[Entry], through: int) -> None:
        """Write a commit; repeated after an unknown outcome, it is written once.

        Args:
            entries: Those that the second copy does not have.
            through: The last sequence that there is now, superseded ones included.

        Raises:
            ReplicaUnreachable: see there.
            JournalLost: another controller is the writer now.
        """
        head = self.head
        segment = Segment(head.number + 1, self.holder, head.digest, through, tuple(entries))
        name, data = segment_name(segment.number), segment.encode()
        try:
            self.vault.put_new(name, data)
        except NameTaken as taken:
            if self.vault.get(name) != data:
                raise JournalLost(f"another controller writes the journal in {self.vault.where} now") from taken
        self.head = Head(segment.number, digest_of(data), through, head.base)

    def mark(self, folder: Path) -> None:
        """Write down beside the first copy how far it is part of the second."""
        Mark(self.head, self.holder).write(folder)

    @property
    def wants_base(self) -> bool:
        """Whether there are so many segments that a base should stand for them."""
        return self.head.number - self.head.base >= self._per_base

    def write_base(self, entries: Iterator[Entry]) -> None:
        """Write what counts of everything up to now, and delete what it stands for.

        Raises:
            ReplicaUnreachable: see there; what was not deleted is, next time.
        """
        head = attrs.evolve(self.head, base=self.head.number)
        name = base_name(head.number)
        try:
            self.vault.put_new(name, Snapshot(head, tuple(entries)).encode())
        except NameTaken:
            pass  # an earlier attempt that was not answered: of the same segments, so it says the same
        self.head = head
        for old in [*self.vault.names(BASES), *self.vault.names(SEGMENTS)]:
            if (old.startswith(BASES) and old != name) or (old.startswith(SEGMENTS) and number_of(old) <= head.number):
                self.vault.delete(old)
