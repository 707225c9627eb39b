"""The simulated disk: what the simulation can do beyond the port."""

import pytest

from iriscw._errors import InvalidArgument, JournalLost
from iriscw.journal.conformance import REGISTRY, facts
from iriscw.journal.errors import JournalClosed
from iriscw.journal.memory import COMPACT_AFTER, MemoryDisk, MemoryJournal
from iriscw.journal.port import JournalStatus
from raised import that


def opened(disk, **options):
    """Open a journal on a disk."""
    return MemoryJournal(disk, registry=REGISTRY, **options)


@pytest.mark.parametrize("keep", range(4))
def test_crash_keeps_a_prefix(keep):
    """Of what was not durable, as many entries are there after a crash as the simulation says."""
    disk = MemoryDisk()
    journal = opened(disk)
    journal.append("/a", facts(1, 2, 3, 4))
    assert journal.commit(1) == journal.durable == 1
    assert disk.pending_commits() == 3
    disk.crash(keep=keep)
    with pytest.raises(JournalClosed):
        journal.append("/a", facts(5))
    assert opened(disk).read("/a") == facts(*range(1, keep + 2))


@pytest.mark.parametrize("keep", [-1, 2])
def test_crash_keeps_no_more_than_there_is(keep):
    """A crash cannot keep what was never accepted."""
    disk = MemoryDisk()
    opened(disk).append("/a", facts(1))
    with pytest.raises(InvalidArgument, check=that(comes_from="memory.MemoryDisk.crash")):
        disk.crash(keep=keep)


def test_auto():
    """With auto, entries are durable at once, but for the time of a stall or a full disk."""
    disk = MemoryDisk()
    journal = opened(disk, auto=True)
    seen = []
    journal.watch(lambda: seen.append(journal.durable))
    assert journal.append("/a", facts(1)) == journal.durable == 1
    assert seen == [1]
    for stop, go in ((journal.stall, journal.resume), (journal.fill, journal.free)):
        before = journal.durable
        stop()
        journal.append("/a", facts(2))
        assert journal.durable == before
        go()
        assert journal.durable == before + 1
    assert journal.status is JournalStatus.READY


def test_lost_then_crashed():
    """After a failed sync nothing is accepted; what had reached the disk shows only after the crash."""
    disk = MemoryDisk()
    journal = opened(disk)
    journal.append("/a", facts(1, 2))
    journal.lose()
    assert journal.commit() == 0
    with pytest.raises(JournalLost):
        journal.append("/a", facts(3))
    disk.crash(keep=1)
    assert opened(disk).read("/a") == facts(1)


def test_records_are_copies():
    """What is read was decoded: changing it, or what was written, changes nothing."""
    journal = opened(MemoryDisk())
    written = facts(1)
    journal.append("/a", written)
    written[0].number = 2
    journal.read("/a")[0].number = 3
    assert journal.read("/a") == facts(1)


def test_compacts():
    """A long simulation's disk holds what counts, and a bounded number of entries that do not."""
    disk = MemoryDisk()
    journal = opened(disk, auto=True)
    journal.append("/kept", facts(1))
    for number in range(3 * COMPACT_AFTER):
        journal.append("/done", facts(number))
        journal.forget("/done")
    assert len(disk.entries) <= COMPACT_AFTER + 1
    assert journal.statistics().compactions >= 5
    journal.close()
    assert opened(disk).read("/kept") == facts(1)
