"""The journal's port: what the dispatcher knows of the durable log.

A journal is one sequence of entries. Each belongs to a *path* (an actor's) and is a record, a snapshot (these
records stand for all earlier ones of this path) or a forget (this path and all below it never were). Entries
are *accepted* at once and become *durable* later, in order: the journal never blocks its caller, and whoever
needs to know that something is on disk compares its sequence with the watermark :attr:`Journal.durable`.

A crash keeps every durable entry, and of the others a prefix. A snapshot and a forget are one entry each, so
none is ever seen half. Records that were appended together are separate entries: do not rely on all of them
surviving unless the last one is durable.

The journal only reports that its disk is slow or full; the dispatcher decides who is refused, because what is
already in flight must be allowed to end.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

DEFAULT_BOUND_BYTES = 16 * 1024 * 1024
"""Uncommitted bytes at which a journal is STALLED: about half a second of an ordinary disk's writing. A 1.5 s
stall without a bound was measured to pile up 37 MB."""

MAX_RECORD_BYTES = 1024 * 1024
"""The encoded size of one record: the order of etcd's request limit (1.5 MiB). What is larger is data, not a
fact."""

MAX_SNAPSHOT_BYTES = 64 * 1024 * 1024
"""The encoded size of one snapshot: a job of 100,000 tasks at 200 bytes takes 20 MB. SQLite ends at 1 GB."""


class JournalStatus(enum.Enum):
    """Whether the journal keeps up.

    STALLED and FULL pass by themselves, and nothing that was accepted is lost meanwhile. LOST never passes.
    """

    READY = "ready"
    """It does."""
    STALLED = "stalled"
    """Uncommitted bytes are at or past the bound."""
    FULL = "full"
    """The disk refused for lack of space. What was accepted is kept, and retried until there is room."""
    LOST = "lost"
    """A write or a sync failed: nothing more becomes durable, and the process must end."""


@attrs.frozen
class JournalStatistics:
    """A journal in figures, since it was opened unless said otherwise."""

    appended: int
    """Sequence of the last entry accepted, ever."""
    durable: int
    """Sequence of the last entry on disk, ever."""
    uncommitted_bytes: int
    entries: int
    """Entries in the file."""
    live: int
    """Entries, accepted ones included, that no snapshot or forget has superseded."""
    commits: int
    bytes_written: int
    """Paths and payloads of committed entries."""
    largest_batch: int
    """The most entries in one commit."""
    retries: int
    """Commits repeated because the disk was full or the file busy."""
    compactions: int
    file_bytes: int
    """What the file takes now, its write-ahead log included."""
    sync_ns_max: int
    """The longest commit."""
    stalled: bool = False
    """Whether records are refused now: the status is not READY."""


class Journal(Protocol):
    """A durable log with one writer. All methods are called from one thread.

    None waits for the disk but ``close``, which writes, and ``read``, which reads what was written earlier.
    """

    @property
    def appended(self) -> int:
        """The sequence of the last entry accepted: global, from 1, without gaps; 0 if there was none."""

    @property
    def durable(self) -> int:
        """The watermark: every entry up to this sequence is on disk."""

    @property
    def status(self) -> JournalStatus:
        """Whether the journal keeps up. The worst that holds: LOST, FULL, STALLED, READY."""

    @property
    def trouble(self) -> str:
        """What keeps the journal from being READY, for people: which disk, and how much is free. Empty if READY.

        Never looks at the disk, which may hang: what it says is as of the last attempt to write.
        """

    @property
    def uncommitted_bytes(self) -> int:
        """Bytes of paths and payloads accepted and not durable."""

    def append(self, path: str, records: Sequence[Any]) -> int:
        """Accept ``records`` for ``path``, in any status but LOST, without waiting.

        Returns:
            The sequence of the last one; with no records, :attr:`appended`.

        Raises:
            InvalidRecord: one of them cannot be encoded, or is too large; none was accepted.
            InvalidArgument: ``path`` is not an actor's path.
            JournalLost: a write failed earlier.
            JournalClosed: the journal is closed.
        """

    def forget(self, path: str) -> int:
        """Drop the records of ``path`` and of all paths below it: ``/a`` takes ``/a/b`` along, never ``/ab``.

        Returns:
            The sequence of the entry that says so.

        Raises:
            InvalidArgument: ``path`` is not an actor's path.
            JournalLost: a write failed earlier.
            JournalClosed: the journal is closed.
        """

    def snapshot(self, path: str, records: Sequence[Any]) -> int:
        """Let ``records`` stand for all earlier ones of exactly ``path``. One entry: it survives whole or not
        at all.

        Returns:
            The sequence of the entry.

        Raises:
            InvalidRecord: one of them cannot be encoded, or all together are too large; nothing was accepted.
            InvalidArgument: ``path`` is not an actor's path.
            JournalLost: a write failed earlier.
            JournalClosed: the journal is closed.
        """

    def read(self, path: str) -> list[Any]:
        """Return the records of exactly ``path`` in order, decoded, those not durable yet included.

        What a forget or a snapshot superseded is left out.

        Raises:
            UnreadableRecord: a record is of an unknown type or a newer version, or does not fit its type.
            JournalCorrupt: the file lost records since it was opened.
            JournalLost: the file cannot be read any more.
            JournalClosed: the journal is closed.
        """

    def paths(self) -> list[str]:
        """Return the paths that :meth:`read` has records for, in the order of the first of them."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after the watermark or the status changed, from any thread, even from within a
        call.

        It must be quick, must not raise and must not close the journal: set a flag, or wake the loop.
        """

    def close(self) -> None:
        """Write what was accepted, then let go of the file. Waits for the disk; a second call does nothing.

        On a full disk the last attempt is made now. If that fails too, :attr:`durable` stays behind
        :attr:`appended`: what was accepted is lost, and was never said to be durable.
        """

    def statistics(self) -> JournalStatistics:
        """Return the journal in figures."""
