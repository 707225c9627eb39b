"""What every journal must do, as tests.

Derive a class from :class:`JournalConformance`, give it a :meth:`~JournalConformance.rig`, and let pytest
collect it. A :class:`Rig` is how the suite reaches behind the port: it opens the journal, holds its disk
back, and crashes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

import attrs

from iriscw._errors import InvalidArgument, JournalLocked, JournalLost, UsageError
from iriscw.journal.errors import InvalidRecord, JournalClosed
from iriscw.journal.port import Journal, JournalStatus
from iriscw.journal.records import RecordRegistry

REGISTRY = RecordRegistry()
BOUND_BYTES = 4_096
"""The bound that a rig opens its journals with."""
PATIENCE_S = 30.0
"""How long a watcher may take: a loaded machine's worst, since only a failing test waits for it."""


@REGISTRY.record("conformance.fact")
@attrs.define
class Fact:
    """The record that the suite writes."""

    text: str
    number: int = 0


class Rig(Protocol):
    """One disk, and the journals opened on it one after another."""

    def open(self) -> Journal:
        """Open a journal over what is on the disk, with :data:`REGISTRY` and :data:`BOUND_BYTES`."""

    def settle(self) -> None:
        """Let everything accepted become durable; return when it is."""

    def hold(self) -> None:
        """Let nothing become durable from now on."""

    def fill(self) -> None:
        """Let the disk be full; return when the journal noticed, if anything is to be written."""

    def free(self) -> None:
        """Undo ``hold`` and ``fill``."""

    def lose(self) -> None:
        """Let a sync fail. Something has been accepted and is held; return when the journal noticed."""

    def crash(self) -> None:
        """End the process that writes; nothing that was not durable reaches the disk."""


def _raises(error: type[BaseException], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"expected {error.__name__}")


def _expect(journal: Journal, status: JournalStatus) -> None:
    # A function of its own: the type checker takes a property that was compared once for settled.
    assert journal.status is status, f"expected {status}, got {journal.status}"


def _eventually(condition: Callable[[], bool], told: threading.Condition) -> None:
    # Watchers may be called by another thread, a moment after what they tell can be seen.
    with told:
        assert told.wait_for(condition, PATIENCE_S), "a watcher was not called"


def facts(*numbers: int) -> list[Fact]:
    """Return records to write."""
    return [Fact("fact", number) for number in numbers]


class JournalConformance:
    """The suite. Every test starts with an empty disk."""

    def rig(self) -> Rig:
        """Return a rig with an empty disk."""
        raise NotImplementedError

    def test_empty(self) -> None:
        """A new journal holds nothing and is ready."""
        journal = self.rig().open()
        assert (journal.appended, journal.durable, journal.uncommitted_bytes) == (0, 0, 0)
        _expect(journal, JournalStatus.READY)
        assert journal.trouble == ""
        assert journal.paths() == []
        assert journal.read("/a") == []
        journal.close()

    def test_sequences(self) -> None:
        """Sequences are global, start at 1 and have no gaps; appending nothing takes none."""
        journal = self.rig().open()
        assert journal.append("/a", facts(1, 2)) == 2
        assert journal.append("/b", facts(3)) == 3
        assert journal.append("/b", []) == 3
        assert journal.snapshot("/a", facts(4, 5)) == 4
        assert journal.forget("/b") == 5
        assert journal.appended == 5
        journal.close()

    def test_read_own_writes(self) -> None:
        """What was accepted is read back in order, durable or not."""
        rig = self.rig()
        journal = rig.open()
        journal.append("/a", facts(1, 2))
        rig.settle()
        rig.hold()
        journal.append("/a", facts(3))
        journal.append("/b", facts(4))
        assert journal.durable == 2
        assert journal.read("/a") == facts(1, 2, 3)
        assert journal.read("/b") == facts(4)
        rig.free()
        journal.close()

    def test_paths_by_first_record(self) -> None:
        """Paths come in the order of the first record that counts."""
        journal = self.rig().open()
        for path in ("/b", "/a", "/c", "/a"):
            journal.append(path, facts(1))
        assert journal.paths() == ["/b", "/a", "/c"]
        journal.forget("/b")
        journal.append("/b", facts(2))
        assert journal.paths() == ["/a", "/c", "/b"]
        journal.snapshot("/c", [])
        assert journal.paths() == ["/a", "/b"]
        journal.close()

    def test_forget_reaches_down(self) -> None:
        """Forgetting takes the path and all below it, and nothing beside it."""
        journal = self.rig().open()
        for path in ("/jobs", "/jobs/a", "/jobs/a/x", "/jobs/a/x/y", "/jobs/ab"):
            journal.append(path, facts(1))
        journal.forget("/jobs/a")
        assert journal.paths() == ["/jobs", "/jobs/ab"]
        assert journal.read("/jobs/a/x") == []
        journal.append("/jobs/a/x", facts(2))
        assert journal.read("/jobs/a/x") == facts(2)
        journal.forget("/")
        assert journal.paths() == []
        journal.close()

    def test_snapshot_of_one_path(self) -> None:
        """A snapshot stands for the earlier records of exactly its path; later ones follow it."""
        journal = self.rig().open()
        journal.append("/a", facts(1, 2))
        journal.append("/a/b", facts(3))
        journal.snapshot("/a", facts(10))
        journal.append("/a", facts(4))
        assert journal.read("/a") == facts(10, 4)
        assert journal.read("/a/b") == facts(3)
        journal.close()

    def test_close_writes(self) -> None:
        """Closing makes durable what was accepted; the next journal goes on after it."""
        rig = self.rig()
        journal = rig.open()
        journal.append("/a", facts(1, 2))
        journal.snapshot("/b", facts(3))
        journal.close()
        journal.close()
        assert journal.durable == 3
        journal = rig.open()
        assert (journal.appended, journal.durable) == (3, 3)
        assert journal.read("/a") == facts(1, 2)
        assert journal.append("/a", facts(4)) == 4
        assert journal.read("/a") == facts(1, 2, 4)
        assert journal.paths() == ["/a", "/b"]
        journal.close()

    def test_reopened_after_forget(self) -> None:
        """What was forgotten stays forgotten, and its sequence stays used, also when it was the last
        entry.
        """
        rig = self.rig()
        journal = rig.open()
        journal.append("/a", facts(1))
        journal.forget("/a")
        journal.close()
        journal = rig.open()
        assert journal.appended == 2
        assert journal.paths() == []
        journal.close()

    def test_crash_keeps_the_durable(self) -> None:
        """A crash keeps what was durable and loses what was held."""
        rig = self.rig()
        journal = rig.open()
        journal.append("/a", facts(1, 2))
        rig.settle()
        rig.hold()
        journal.append("/a", facts(3))
        journal.forget("/a")
        assert journal.durable == 2
        rig.crash()
        journal = rig.open()
        assert (journal.appended, journal.durable) == (2, 2)
        assert journal.read("/a") == facts(1, 2)
        journal.close()

    def test_one_writer(self) -> None:
        """A second journal on the same disk is refused until the first has ended."""
        rig = self.rig()
        journal = rig.open()
        _raises(JournalLocked, rig.open)
        journal.close()
        rig.open().close()

    def test_invalid_records(self) -> None:
        """A record that cannot be encoded is refused, and the good ones with it are not accepted either."""
        journal = self.rig().open()
        for bad in (object(), Fact(1), Fact("x", True), Fact("x", 1.0), None):  # type: ignore[arg-type]
            _raises(InvalidRecord, partial(journal.append, "/a", [Fact("good"), bad]))
            _raises(InvalidRecord, partial(journal.snapshot, "/a", [Fact("good"), bad]))
        assert issubclass(InvalidRecord, UsageError)
        assert (journal.appended, journal.paths(), journal.uncommitted_bytes) == (0, [], 0)
        journal.close()

    def test_invalid_paths(self) -> None:
        """Only actors' paths are accepted."""
        journal = self.rig().open()
        for bad in ("", "a", "/a/", "//", "/a//b", "/\ud800"):
            _raises(InvalidArgument, partial(journal.append, bad, facts(1)))
            _raises(InvalidArgument, partial(journal.forget, bad))
        assert journal.appended == 0
        journal.close()

    def test_closed(self) -> None:
        """A closed journal refuses by name."""
        journal = self.rig().open()
        journal.close()
        _raises(JournalClosed, lambda: journal.append("/a", facts(1)))
        _raises(JournalClosed, lambda: journal.forget("/a"))
        _raises(JournalClosed, lambda: journal.read("/a"))

    def test_stalled(self) -> None:
        """Past the bound the journal says STALLED and still accepts; it is READY when the disk caught up."""
        rig = self.rig()
        journal = rig.open()
        rig.hold()
        journal.append("/a", facts(1))
        _expect(journal, JournalStatus.READY)
        journal.append("/a", [Fact("x" * BOUND_BYTES)])
        _expect(journal, JournalStatus.STALLED)
        assert journal.trouble
        assert journal.statistics().stalled
        assert journal.uncommitted_bytes >= BOUND_BYTES
        assert journal.append("/a", facts(2)) == 3
        rig.free()
        rig.settle()
        _expect(journal, JournalStatus.READY)
        assert (journal.durable, journal.uncommitted_bytes, journal.trouble) == (3, 0, "")
        assert not journal.statistics().stalled
        journal.close()

    def test_full(self) -> None:
        """On a full disk what was accepted is kept, more is accepted, and all is durable once there is
        room.
        """
        rig = self.rig()
        journal = rig.open()
        rig.hold()
        journal.append("/a", facts(1))
        rig.fill()
        _expect(journal, JournalStatus.FULL)
        assert "full" in journal.trouble
        assert journal.statistics().stalled
        journal.append("/a", facts(2))
        assert journal.read("/a") == facts(1, 2)
        assert journal.durable == 0
        rig.free()
        rig.settle()
        _expect(journal, JournalStatus.READY)
        assert (journal.durable, journal.trouble) == (2, "")
        journal.close()

    def test_lost(self) -> None:
        """After a failed sync nothing is accepted and nothing becomes durable, ever."""
        rig = self.rig()
        journal = rig.open()
        rig.hold()
        journal.append("/a", facts(1))
        rig.lose()
        _expect(journal, JournalStatus.LOST)
        assert "failed" in journal.trouble
        _raises(JournalLost, lambda: journal.append("/a", facts(2)))
        _raises(JournalLost, lambda: journal.forget("/a"))
        assert journal.durable == 0
        journal.close()
        assert journal.durable == 0

    def test_watched(self) -> None:
        """Watchers are called after the watermark and after the status moved."""
        rig = self.rig()
        journal = rig.open()
        seen: list[tuple[int, JournalStatus]] = []
        told = threading.Condition()

        def watcher() -> None:
            with told:
                seen.append((journal.durable, journal.status))
                told.notify_all()

        journal.watch(watcher)
        journal.append("/a", facts(1))
        rig.settle()
        _eventually(lambda: (1, JournalStatus.READY) in seen, told)
        rig.hold()
        journal.append("/a", [Fact("x" * BOUND_BYTES)])
        _eventually(lambda: seen[-1] == (1, JournalStatus.STALLED), told)
        rig.fill()
        _eventually(lambda: seen[-1] == (1, JournalStatus.FULL), told)
        rig.free()
        rig.settle()
        _eventually(lambda: seen[-1] == (2, JournalStatus.READY), told)
        journal.close()

    def test_statistics(self) -> None:
        """Statistics agree with the port."""
        rig = self.rig()
        journal = rig.open()
        journal.append("/a", facts(1, 2))
        journal.snapshot("/a", facts(3))
        rig.settle()
        told = journal.statistics()
        assert (told.appended, told.durable, told.uncommitted_bytes) == (3, 3, 0)
        assert (told.entries, told.live) == (3, 1)
        assert told.commits >= 1
        assert 1 <= told.largest_batch <= 3
        assert told.bytes_written > 0
        journal.close()
