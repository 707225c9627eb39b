"""A journal with a second copy: what is durable outlives the disk, and there is one writer."""

import shutil
from contextlib import closing

import pytest

from iriscw._errors import JournalCorrupt, JournalLocked, JournalLost
from iriscw.journal.conformance import BOUND_BYTES, REGISTRY, Fact, facts
from iriscw.journal.entries import Entry
from iriscw.journal.port import JournalStatus
from iriscw.journal.replica import MARK, Replica, ReplicaForeign, ReplicaUnreachable
from iriscw.journal.segments import BASES, SEGMENTS, segment_name
from iriscw.journal.sqlite import SqliteJournal
from raised import that


class Site:
    """A second copy, and folders that come and go."""

    def __init__(self, vault, folder):
        self.vault, self.folder, self.openings = vault, folder, 0

    def open(self, name="a", **options):
        """Open the journal in a folder of this name, as another holder each time."""
        self.openings += 1
        replica = Replica(self.vault, f"{self.folder.name} {self.openings}", per_base=options.pop("per_base", 1_000))
        options = {"registry": REGISTRY, "bound_bytes": BOUND_BYTES, **options}
        return SqliteJournal.open(self.folder / name, replica=replica, **options)

    def segments(self):
        """Return the names of all segments."""
        return self.vault.names(SEGMENTS)


@pytest.fixture
def site(memory_vault, tmp_path):
    """One place for second copies."""
    return Site(memory_vault(), tmp_path)


@pytest.fixture
def settle(until):
    """Wait until all that was accepted is durable."""
    return lambda journal: until(lambda: journal.durable == journal.appended, "the second copy")


def test_what_is_durable_outlives_the_disk(site, settle):
    """With another disk, or none, the journal is as it was; sequences go on."""
    with closing(site.open()) as journal:
        journal.append("/a", facts(1, 2))
        journal.snapshot("/b", facts(3, 4))
        journal.append("/c", facts(5))
        journal.forget("/c")
        settle(journal)
    with closing(site.open("another")) as journal:
        assert journal.read("/a") == facts(1, 2)
        assert journal.read("/b") == facts(3, 4)
        assert journal.paths() == ["/a", "/b"]
        assert journal.append("/a", facts(6)) == 6


def test_nothing_is_durable_before_the_second_copy_has_it(site, settle, until):
    """While it is away entries wait, readable; then it refuses to take more, says why, and goes on when it is back."""
    with closing(site.open()) as journal:
        site.vault.away = True
        journal.append("/a", facts(1))
        until(lambda: journal.statistics().retries, "a try")
        assert journal.durable == 0
        assert journal.read("/a") == facts(1)
        journal.append("/a", [Fact("x" * BOUND_BYTES)])
        assert journal.status is JournalStatus.STALLED
        assert "the vault is away" in journal.trouble
        site.vault.away = False
        settle(journal)
        assert journal.status is JournalStatus.READY


def test_a_write_without_an_answer_is_written_once(site, settle):
    """Whether it had its effect or not."""
    with closing(site.open()) as journal:
        before = len(site.segments())
        site.vault.script = ["unanswered", "lost"]
        journal.append("/a", facts(1))
        settle(journal)
        journal.append("/a", facts(2))
        settle(journal)
        assert len(site.segments()) == before + 2
    with closing(site.open("another")) as journal:
        assert journal.read("/a") == facts(1, 2)


def test_a_second_controller_is_the_writer_from_then_on(site, settle, until):
    """The first one is told at its next commit, which is not taken, and what it wrote before is kept."""
    with closing(site.open()) as first:
        first.append("/a", facts(1))
        settle(first)
        with closing(site.open("elsewhere")) as second:
            first.append("/a", facts(2))
            until(lambda: first.status is JournalStatus.LOST, "LOST")
            assert "another controller writes the journal" in first.trouble
            assert first.durable == 1
            with pytest.raises(JournalLost):
                first.append("/a", facts(3))
            second.append("/a", facts(4))
            settle(second)
            assert second.read("/a") == facts(1, 4)


def test_of_two_that_open_at_once_one_is_refused(site, memory_vault, tmp_path):
    """Who comes second to the number is told by name."""
    one, other = (Replica(site.vault, holder) for holder in "ab")
    one.look()
    other.look()
    one.take_over((), 0)
    with pytest.raises(JournalLocked):
        other.take_over((), 0)


def test_a_disk_that_is_behind_is_made_anew(site, settle, until):
    """What it has that nobody acknowledged is gone, when another controller wrote meanwhile."""
    with closing(site.open()) as first:
        first.append("/a", facts(1))
        settle(first)
        site.vault.away = True
        first.append("/a", facts(2))
        until(lambda: first.statistics().retries, "a try")
    site.vault.away = False
    with closing(site.open("elsewhere")) as second:
        second.append("/a", facts(3))
        settle(second)
    with closing(site.open()) as journal:
        assert journal.read("/a") == facts(1, 3)
        assert journal.durable == journal.appended == 2


def test_a_disk_that_is_ahead_is_kept(site, until):
    """What was on the disk only is given to the second copy, when nobody else wrote."""
    with closing(site.open()) as journal:
        site.vault.away = True
        journal.append("/a", facts(1, 2))
        until(lambda: journal.statistics().retries, "a try")
    site.vault.away = False
    with closing(site.open()) as journal:
        assert journal.read("/a") == facts(1, 2)
    with closing(site.open("another")) as journal:
        assert journal.read("/a") == facts(1, 2)


def test_a_mark_that_is_behind_costs_a_restore(site, settle, monkeypatch):
    """Ended between a segment and its mark, or after a power cut: nothing is lost, also where a base came since."""
    with closing(site.open(per_base=3)) as journal:
        monkeypatch.setattr(Replica, "mark", lambda *_: None)
        for number in range(8):
            journal.append("/a", facts(number))
            settle(journal)
    monkeypatch.undo()
    with closing(site.open(per_base=3)) as journal:
        assert journal.read("/a") == facts(*range(8))


@pytest.mark.parametrize("spoil", [lambda mark: mark.unlink(), lambda mark: mark.write_text("{")])
def test_without_a_mark_the_disk_is_made_anew(site, settle, spoil):
    """Nobody knows then what it is a copy of."""
    with closing(site.open()) as journal:
        journal.append("/a", facts(1))
        settle(journal)
    spoil(site.folder / "a" / MARK)
    with closing(site.open()) as journal:
        assert journal.read("/a") == facts(1)


def test_a_journal_without_a_second_copy_gets_one(site, tmp_path, settle):
    """All of it, also where compaction left gaps; sequences are never given twice."""
    folder = tmp_path / "a"
    with closing(SqliteJournal.open(folder, registry=REGISTRY, compact_after=3)) as alone:
        for number in range(9):
            alone.snapshot("/a", facts(number))
            settle(alone)
        alone.append("/b", facts(1))
        alone.forget("/b")
    with closing(site.open()) as journal:
        assert journal.read("/a") == facts(8)
    with closing(site.open("another")) as journal:
        assert journal.read("/a") == facts(8)
        assert journal.append("/a", facts(9)) == 12


def test_segments_do_not_pile_up(site, settle):
    """A base stands for those before it; what is superseded is not in it."""
    with closing(site.open(per_base=5)) as journal:
        for number in range(40):
            journal.snapshot("/a", facts(number))
            settle(journal)
    assert len(site.segments()) <= 6
    assert len(site.vault.names(BASES)) == 1
    assert len(site.vault.objects[site.vault.names(BASES)[0]]) < 1_000
    with closing(site.open("another", per_base=5)) as journal:
        assert journal.read("/a") == facts(39)


def test_a_base_without_an_answer_is_no_harm(site, settle, until):
    """It is written later; deletions that did not happen are made up for."""
    with closing(site.open(per_base=3)) as journal:
        site.vault.script = ["", "", "unanswered"]
        for number in range(12):
            journal.append("/a", facts(number))
            settle(journal)
        until(lambda: len(site.segments()) <= 4, "a base")
    with closing(site.open("another", per_base=3)) as journal:
        assert journal.read("/a") == facts(*range(12))


def test_a_second_copy_with_a_hole_is_refused(site, settle):
    """By the name of what is missing, and nothing is written over it."""
    with closing(site.open()) as journal:
        for number in range(4):
            journal.append("/a", facts(number))
            settle(journal)
    del site.vault.objects[segment_name(3)]
    with pytest.raises(JournalCorrupt, check=that(names=segment_name(3))):
        site.open("another")


def test_a_foreign_segment_is_refused(site, settle, memory_vault, tmp_path):
    """One of another journal does not follow the one before it."""
    with closing(site.open()) as journal:
        journal.append("/a", facts(1))
        settle(journal)
    others = Site(memory_vault(), tmp_path / "others")
    with closing(others.open()) as journal:
        journal.append("/a", facts(2))
        settle(journal)
    site.vault.objects[segment_name(1)] = others.vault.objects[segment_name(1)]
    with pytest.raises(JournalCorrupt, check=that(comes_from="replica.Replica._segment")):
        site.open("another")


def test_a_place_that_does_not_answer_opens_nothing(site):
    """Whether this is the journal's present cannot be known."""
    site.vault.away = True
    with pytest.raises(ReplicaUnreachable):
        site.open()
    site.vault.away = False
    site.open().close()  # the folder was let go of


def test_a_disk_that_lost_its_end_is_made_anew(site, settle):
    """A mark beyond the file's end: the file is an older one."""
    with closing(site.open()) as journal:
        journal.append("/a", facts(1))
        settle(journal)
        shutil.copytree(site.folder / "a", site.folder / "copy")
        journal.append("/a", facts(2))
        settle(journal)
    shutil.copy(site.folder / "a" / MARK, site.folder / "copy" / MARK)
    with closing(site.open("copy")) as journal:
        assert journal.read("/a") == facts(1, 2)


# What a stranger found


def commit(replica, number):
    """Write one entry as the next commit."""
    replica.write((Entry(number, "/a", "r", "{}"),), number)


def test_who_was_away_is_not_acknowledged_under_a_number_that_is_free_again(site, settle):
    """Suspended while others wrote, made bases and deleted: its next commit is its end, not a loss."""
    away = Replica(site.vault, "away")
    away.look()
    away.take_over((), 0)
    commit(away, 1)
    with closing(site.open("elsewhere", per_base=3)) as journal:
        for number in range(20):
            journal.append("/b", facts(number))
            settle(journal)
    assert segment_name(away.head.number + 1) not in site.vault.objects
    with pytest.raises(JournalLost):
        commit(away, 2)
    with closing(site.open("third", per_base=3)) as journal:
        assert journal.read("/b") == facts(*range(20))


@pytest.mark.parametrize("before", [0, 2])
def test_who_looked_long_ago_cannot_take_over(site, settle, before):
    """While it restored, others went past what it saw, from an empty place or not."""
    if before:
        with closing(site.open("first")) as journal:
            journal.append("/b", facts(0))
            settle(journal)
    slow = Replica(site.vault, "slow")
    slow.look()
    with closing(site.open("first", per_base=2)) as journal:
        for number in range(12):
            journal.append("/b", facts(number))
            settle(journal)
    with pytest.raises(JournalLocked):
        slow.take_over((), slow.head.through)
    site.open("third").close()


# Whether somebody else writes now


def test_the_writer_knows_that_it_is(site, settle):
    """At any time, also when all of its segments are in a base; and without writing anything."""
    ours = Replica(site.vault, "ours", per_base=2)
    ours.look()
    ours.take_over((), 0)
    for number in range(1, 6):
        assert ours.still_writes()
        commit(ours, number)
    ours.write_base(iter(()), 5)
    while ours._garbage:
        assert ours.still_writes()
        ours.tidy()
    before = list(site.vault.objects)
    assert ours.still_writes()
    assert list(site.vault.objects) == before


@pytest.mark.parametrize("per_base", [2, 1_000])
def test_who_was_overtaken_is_not_the_writer(site, settle, per_base):
    """Whether the other has just opened, or has written and deleted so much that the next number is free again."""
    away = Replica(site.vault, "away")
    away.look()
    away.take_over((), 0)
    commit(away, 1)
    with closing(site.open("elsewhere", per_base=per_base)) as journal:
        assert not away.still_writes()
        for number in range(12):
            journal.append("/b", facts(number))
            settle(journal)
    assert (segment_name(away.head.number + 1) in site.vault.objects) is (per_base > 2)
    assert not away.still_writes()


def test_a_writer_that_is_writing(site):
    """Its own next segment might be another's. Once a commit that began after the question has succeeded, it is not."""
    ours = Replica(site.vault, "ours")
    ours.look()
    ours.take_over((), 0)
    has = site.vault.has

    def under_way(name):
        return name == segment_name(ours.head.number + 1) or has(name)

    def done_meanwhile(name):
        site.vault.has = has
        commit(ours, ours.head.through + 1)
        site.vault.has = done_meanwhile
        return True

    site.vault.has = under_way
    assert not ours.still_writes()
    site.vault.has = done_meanwhile
    assert ours.still_writes()


def test_an_old_base_deletes_nothing_that_is_newer(site, settle):
    """One that lands after its writer was over."""
    away = Replica(site.vault, "away", per_base=2)
    away.look()
    away.take_over((), 0)
    commit(away, 1)
    with closing(site.open("elsewhere", per_base=3)) as journal:
        for number in range(20):
            journal.append("/b", facts(number))
            settle(journal)
    away.write_base(iter(()), 1)
    for _ in range(10):
        away.tidy()
    with closing(site.open("third")) as journal:
        assert journal.read("/b") == facts(*range(20))


@pytest.mark.parametrize("fate", ["lost", "unanswered"])
def test_a_first_upload_that_fails_loses_nothing(site, tmp_path, settle, fate):
    """The disk is all there is until it succeeds, however often it is begun."""
    with closing(SqliteJournal.open(tmp_path / "a", registry=REGISTRY)) as alone:
        alone.append("/a", facts(1, 2, 3))
        settle(alone)
    for _ in range(3):
        site.vault.script = [fate]
        with pytest.raises(ReplicaUnreachable):
            site.open()
        site.vault.script = []
        with closing(SqliteJournal.open(tmp_path / "a", registry=REGISTRY)) as alone:
            assert alone.read("/a") == facts(1, 2, 3)
    with closing(site.open()) as journal:
        assert journal.read("/a") == facts(1, 2, 3)


def test_what_was_written_without_the_second_copy_is_kept(site, tmp_path, settle):
    """Replicated, then not, then again: nobody else wrote, so the disk is right; and what was forgotten stays so."""
    with closing(site.open()) as journal:
        journal.append("/a", facts(1))
        journal.append("/gone", facts(1))
        settle(journal)
    with closing(SqliteJournal.open(tmp_path / "a", registry=REGISTRY, compact_after=2)) as alone:
        alone.forget("/gone")
        for number in range(8):
            alone.snapshot("/b", facts(number))
            settle(alone)
    for name in ("a", "another"):
        with closing(site.open(name)) as journal:
            assert journal.paths() == ["/a", "/b"]
            assert journal.read("/b") == facts(7)


def test_the_second_copy_of_another_journal_is_refused(site, memory_vault, tmp_path, settle):
    """A prefix that was copied from another cluster: neither journal is touched."""
    others = Site(memory_vault(), tmp_path / "others")
    for each in (site, others):
        with closing(each.open()) as journal:
            journal.append("/a", facts(1))
            settle(journal)
    with closing(SqliteJournal.open(tmp_path / "alone", registry=REGISTRY)) as alone:
        alone.append("/x", facts(5))
        settle(alone)
    own, site.vault = site.vault, others.vault
    for name in ("a", "alone"):
        before = dict(others.vault.objects)
        with pytest.raises(ReplicaForeign):
            site.open(name)
        assert others.vault.objects == before
    site.vault = own
    with closing(site.open()) as journal:
        assert journal.read("/a") == facts(1)


def test_a_file_that_is_replaced_is_set_aside(site, settle, until):
    """For people: the last one is kept."""
    with closing(site.open()) as first:
        site.vault.away = True
        first.append("/a", facts(1))
        until(lambda: first.statistics().retries, "a try")
    site.vault.away = False
    with closing(site.open("elsewhere")) as second:
        second.append("/b", facts(3))
        settle(second)
    site.open().close()
    assert (site.folder / "a" / "replaced.db").exists()


def test_bases_may_be_written_while_somebody_looks(site, settle):
    """What is gone because a newer base stands for it is no damage."""
    with closing(site.open("first", per_base=4)) as journal:
        for number in range(3):
            journal.append("/b", facts(number))
            settle(journal)
        names, turns = site.vault.names, []

        def slow(prefix):
            found = names(prefix)
            if prefix == BASES and not turns:
                turns.append(1)
                for number in range(3, 30):
                    journal.append("/b", facts(number))
                    settle(journal)
            return found

        site.vault.names = slow
        reader = Replica(site.vault, "reader")
        assert reader.restore()
        assert reader.head.number > 4


def test_strange_objects_are_left_alone(site, settle):
    """What somebody else keeps there is no part of it, and stays."""
    site.vault.objects |= {"segments/notes.txt": b"", "bases/7": b"", "segments/1": b""}
    with closing(site.open(per_base=2)) as journal:
        for number in range(9):
            journal.append("/a", facts(number))
            settle(journal)
    with closing(site.open("another")) as journal:
        assert journal.read("/a") == facts(*range(9))
    assert {"segments/notes.txt", "bases/7", "segments/1"} <= set(site.vault.objects)
