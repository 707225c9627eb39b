"""Keeps the second copy of a journal, and gives it back when the first is gone.

Theory of operation. One thread calls, and waits for each answer: that of the journal's writer, for which this is a
slower disk. A write that was not answered is repeated under the same number; if the number is taken by then, what is
there is read, and is either ours or the end of our time as the writer.

Opening takes the journal over, with a segment under the next number. From then on whoever wrote before cannot. What a
writer before us has left unanswered lands before that, and counts, or not at all.

*Numbers that are free again.* A base lets segments be deleted, and with them their names. So who was away for long
could write under a number that others have used and deleted. Deletions go in order, the older bases first, then
segments from the lowest: whoever finds its number free because it was deleted finds the object before it deleted, too.
Therefore each write is followed by a look whether that object is still there, and counts only then.

The first copy is only a cache of the second one. A *mark* beside it says which segment it was part of last. Where
nobody else wrote since, the first copy is where the second one is, or ahead: what it has beyond was never acknowledged,
but is kept. Otherwise it is made anew, and the file that it replaces is set aside, not deleted. A second copy of
another journal is refused, and so is one of which the first copy knows nothing.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from iriscw._errors import JournalCorrupt, JournalLocked, JournalLost, OperationError
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
    numbers_of,
    segment_name,
)

SEGMENTS_PER_BASE = 256
"""Segments after which a base is written: what a restart reads at most, and some seconds of it."""

DELETIONS = 4
"""Objects that are deleted after one commit: those who wait for the next commit wait for these."""

LOOKS = 3
"""Times that the second copy is looked at, while bases are written under the eyes of who looks."""

MARK = "replica.json"
IDENTITY = "replica.id"
MARK_BYTES = 4096


class ReplicaUnreachable(OperationError):
    """The place of the second copy does not answer, refuses, or is full. A write may have happened."""

    retryable = True


class NameTaken(OperationError):
    """There is an object of this name already; it was not touched."""


class ReplicaForeign(OperationError):
    """The second copy is of another journal than what is on the disk: one of the two is in the wrong place."""


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
        """Return an object, None if there certainly is none."""

    def has(self, name: str) -> bool:
        """Tell whether there is an object of this name."""

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with ``prefix``, in their order."""

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
        told["journal"] = self.head.journal
        write_atomic(folder / MARK, json.dumps({"holder": self.holder, **told}).encode(), durable=False)

    @classmethod
    def read(cls, folder: Path) -> Mark | None:
        """Read it; None if there is none, or none that can be read: then the first copy is made anew."""
        try:
            told = decode_json(read_bounded(folder / MARK, MARK_BYTES))
            assert isinstance(told, dict)
            head = Head(int(told["number"]), str(told["digest"]), int(told["through"]), journal=str(told["journal"]))
            return cls(head, str(told["holder"]))
        except (OSError, ValueError, KeyError, TypeError, AssertionError):
            return None


def identity_of(folder: Path) -> str:
    """Return which journal the first copy in a folder is part of; empty: of none with a second copy."""
    try:
        return read_bounded(folder / IDENTITY, MARK_BYTES).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


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
        self._base_due = per_base
        self._previous = self._writer = ""
        """Of the last segment when it was looked at: what it follows, and who wrote it."""
        self._known = False
        """Whether it is written down beside the first copy which journal this is."""
        self._garbage: deque[str] = deque()
        """Names of what bases stand for, in the order in which they are to be deleted."""

    # Opening

    def look(self) -> Head:
        """Find out how far it goes.

        Raises:
            ReplicaUnreachable: see there.
            JournalCorrupt: something of it is missing or damaged.
        """
        for last_look in _looks():
            base, after = self._parts(last_look=last_look)
            try:
                if after:
                    self.head = self._segment(after[-1], attrs.evolve(NOTHING, base=base))
                else:
                    self.head = self._base(base).head if base else NOTHING
                break
            except _Compacted:
                continue
        return self.head

    def continues(self, mark: Mark | None, journal: str, reach: int) -> bool:
        """Say whether a first copy is where the second copy is, or ahead of it.

        Args:
            mark: What it was part of last; None: that cannot be told.
            journal: Which journal it is part of; empty: of none with a second copy.
            reach: The last sequence that it speaks for.

        Raises:
            ReplicaForeign: they are of different journals.
        """
        if self.head == NOTHING:
            return True
        if journal != self.head.journal and self.head.through and (journal or reach):
            raise ReplicaForeign(
                f"the second copy in {self.vault.where} is of another journal than the one on the disk, which is not"
                " empty: move one of the two away"
            )
        if mark is None:
            return not self.head.through
        ours = (mark.head.number + 1, mark.head.digest, mark.holder)
        if (
            self.head.number,
            self._previous,
            self._writer,
        ) == ours:
            # And then we were ended before the mark was written.
            return reach >= self.head.through
        # Openings alone write no entries: nobody has acknowledged anything since.
        return mark.head.through == self.head.through and reach >= self.head.through

    def restore(self) -> list[Entry]:
        """Return all entries that count, in order.

        Raises:
            ReplicaUnreachable: see there.
            JournalCorrupt: something of it is missing or damaged.
        """
        entries: list[Entry] = []
        for last_look in _looks():
            base, after = self._parts(last_look=last_look)
            try:
                head, entries = NOTHING, []
                if base:
                    snapshot = self._base(base)
                    head, entries = snapshot.head, [*snapshot.entries]
                for number in after:
                    head = self._segment(number, head, entries)
                self.head = head
                break
            except _Compacted:
                continue
        liveness = Liveness()
        for entry in entries:
            liveness.apply(entry)
        return [entry for entry in entries if liveness.counts(entry)]

    def _segment(self, number: int, head: Head, entries: list[Entry] | None = None) -> Head:
        """Read a segment; give the head that it makes. With ``entries`` it must follow ``head``."""
        name = segment_name(number)
        data = self._get(name)
        segment = Segment.decode(name, data)
        self._previous, self._writer = segment.previous, segment.holder
        if entries is not None:
            if segment.previous != head.digest or (head.journal and head.journal != segment.journal):
                raise JournalCorrupt(f"{name} in {self.vault.where} does not follow the segment before it")
            entries += segment.entries
        return Head(number, digest_of(data), segment.through, head.base, segment.journal)

    def _parts(self, *, last_look: bool) -> tuple[int, list[int]]:
        """Return the number of the last base, and those of the segments after it."""
        while True:
            base = max(numbers_of(self.vault.names(BASES)), default=0)
            after = sorted(number for number in numbers_of(self.vault.names(SEGMENTS)) if number > base)
            if not after or after == list(range(base + 1, base + 1 + len(after))):
                return base, after
            if last_look or max(numbers_of(self.vault.names(BASES)), default=0) == base:
                missing = next(number for number in range(base + 1, after[-1]) if number not in after)
                raise JournalCorrupt(f"{segment_name(missing)} is missing in {self.vault.where}")

    def _base(self, number: int) -> Snapshot:
        name = base_name(number)
        return Snapshot.decode(name, self._get(name))

    def _get(self, name: str) -> bytes:
        data = self.vault.get(name)
        if data is None:
            number = numbers_of([name])[0]
            if any(base >= number and base_name(base) != name for base in numbers_of(self.vault.names(BASES))):
                raise _Compacted
            raise JournalCorrupt(f"{name} is missing in {self.vault.where}")
        return data

    def join(self, folder: Path) -> None:
        """Write down beside the first copy that it is part of this journal, before anything can land."""
        if not self.head.journal:
            journal = identity_of(folder) or uuid.uuid5(uuid.NAMESPACE_OID, self.holder).hex
            self.head = attrs.evolve(self.head, journal=journal)
        self.mark(folder)

    def take_over(self, entries: Sequence[Entry], through: int) -> None:
        """Become the writer, and give it what the first copy has beyond it.

        Args:
            entries: Those that the second copy does not have.
            through: The last sequence that there is now.

        Raises:
            ReplicaUnreachable: see there.
            JournalLocked: another controller did, at the same time.
        """
        try:
            self.write(entries, max(through, self.head.through))
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
        journal = head.journal or uuid.uuid5(uuid.NAMESPACE_OID, self.holder).hex
        segment = Segment(head.number + 1, self.holder, head.digest, through, tuple(entries), journal)
        name, data = segment_name(segment.number), segment.encode()
        try:
            self.vault.put_new(name, data)
        except NameTaken as taken:
            if self.vault.get(name) != data:
                raise self._lost() from taken
        if not self._was_next(head):
            raise self._lost()
        self.head = Head(segment.number, digest_of(data), through, head.base, journal)

    def _was_next(self, head: Head) -> bool:
        """Whether the number after ``head`` was free because nobody ever had it."""
        if not head.number:
            return not numbers_of(self.vault.names(BASES))
        return self.vault.has(base_name(head.number) if head.base == head.number else segment_name(head.number))

    def still_writes(self) -> bool:
        """Whether it is certain that nobody had taken the journal over when this was called. Any thread may ask.

        False: it cannot be told, because a commit of ours is under way, or somebody has; it may be asked again.

        Raises:
            ReplicaUnreachable: see there.
        """
        began = self.head.number
        for _ in range(LOOKS):
            head = self.head
            if head.number > began + 1:  # a commit that began after this was called has succeeded
                return True
            if not self.vault.has(segment_name(head.number + 1)) and self._was_next(head):
                return True
        return False

    def _lost(self) -> JournalLost:
        return JournalLost(f"another controller writes the journal in {self.vault.where} now")

    def mark(self, folder: Path) -> None:
        """Write down beside the first copy how far it is part of the second, and of which journal."""
        if not self._known:
            write_atomic(folder / IDENTITY, f"{self.head.journal}\n".encode())
            self._known = True
        Mark(self.head, self.holder).write(folder)

    @property
    def wants_base(self) -> bool:
        """Whether there are so many segments that a base should stand for them."""
        return self.head.number >= self._base_due

    def write_base(self, entries: Iterable[Entry], through: int) -> None:
        """Write what counts of everything up to now; what it stands for is deleted by and by.

        A failure is not repeated at once: the next base is due after as many segments again.

        Args:
            entries: What counts, in order.
            through: The last sequence that there is now, superseded ones included.

        Raises:
            ReplicaUnreachable: see there.
        """
        self._base_due = self.head.number + self._per_base
        head = attrs.evolve(self.head, base=self.head.number, through=through)
        name = base_name(head.number)
        try:
            self.vault.put_new(name, Snapshot(head, tuple(entries)).encode())
        except NameTaken:
            pass  # an earlier attempt that was not answered: of the same segments, so it says the same
        self.head = head
        older = [number for number in sorted(numbers_of(self.vault.names(BASES))) if number < head.number]
        passed = [number for number in sorted(numbers_of(self.vault.names(SEGMENTS))) if number <= head.number]
        # In this order: see above.
        self._garbage = deque([*map(base_name, older), *map(segment_name, passed)])

    def tidy(self) -> None:
        """Delete some of what bases stand for.

        Raises:
            ReplicaUnreachable: see there.
        """
        for _ in range(min(DELETIONS, len(self._garbage))):
            self.vault.delete(self._garbage[0])
            self._garbage.popleft()


class _Compacted(Exception):
    """What was to be read is gone, because a base that is newer stands for it: to be looked at anew."""


def _looks() -> Iterable[bool]:
    """Return so many looks; the last one is told that it is."""
    return (number == LOOKS for number in range(1, LOOKS + 1))
