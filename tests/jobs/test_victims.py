"""Who gives way: compared with all that could be chosen, where that is few enough to try."""

from itertools import combinations

from hypothesis import given, strategies as st

import profiles
from iriscw.cloud.model import Capacity
from iriscw.jobs.scheduling.victims import Victim, WorkerRoom, choose

BATCH, INTERACTIVE = 3, 2


def cpus(number):
    """Return so many CPUs."""
    return Capacity(cpu_milli=number)


def victim(name, size, band=BATCH, *, since=0, freezes=False, at="w0"):
    """Return an attempt on one worker."""
    return Victim((name,), band, ((at, cpus(size), 1),), freezes, since)


def room(*victims, free=0, at="w0", spare=10):
    """Return a worker."""
    return WorkerRoom(at, cpus(free), spare, victims)


def chosen(groups, demand, size=1):
    """Return who leaves, by name; None: there would be no room."""
    found = choose(groups, cpus(demand), size)
    return None if found is None else sorted(uid for each in found.victims for uid in each.uids)


def test_the_fewest_then_those_that_lose_least():
    """One that makes the room alone before several; the lowest band, then what is frozen, then the youngest."""
    both = room(victim("a", 1), victim("b", 1), victim("big", 2))
    assert chosen([[both]], 2) == ["big"]
    assert chosen([[room(victim("low", 1), victim("high", 1, INTERACTIVE))]], 1) == ["low"]
    assert chosen([[room(victim("old", 1, since=1), victim("young", 1, since=2))]], 1) == ["young"]
    assert chosen([[room(victim("killed", 1, since=2), victim("frozen", 1, since=1, freezes=True))]], 1) == ["frozen"]
    both = room(victim("a", 2, since=2), victim("b", 4, since=1))
    assert chosen([[both]], 2, size=2) == ["b"], "the first task's victim stays: the second one's makes room for both"
    two_low = [room(victim("x", 1), victim("y", 1), at="w0")]
    one_high = [room(victim("z", 2, INTERACTIVE, at="w1"), at="w1")]
    assert chosen([one_high, two_low], 2) == ["x", "y"], "two of the lowest band before one of a higher band"


def test_a_gang_leaves_as_a_whole_and_is_dear():
    """Its room counts on all of its workers; one that is smaller is taken instead."""
    gang = Victim(("g0", "g1"), BATCH, (("w0", cpus(4), 1), ("w1", cpus(4), 1)), False, 0)
    rooms = [room(gang, at="w0"), room(gang, at="w1")]
    assert chosen([rooms], 4, size=2) == ["g0", "g1"]
    alone = room(victim("s", 4, at="w2"), at="w2")
    assert chosen([[each] for each in (*rooms, alone)], 4) == ["s"]


def test_no_room_for_all_takes_nobody():
    """Nobody leaves for a part of a gang, nor where whoever leaves is not enough."""
    assert chosen([[room(victim("a", 4)), room(free=0, at="w1")]], 4, size=2) is None
    assert chosen([[room(victim("a", 1))]], 2) is None
    assert chosen([[room(spare=0, free=5)]], 1) is None


SIZES = st.integers(1, 4)


@st.composite
def groups(draw):
    """Draw up to three workers with up to four attempts each, and what is free there."""
    drawn = []
    for number in range(draw(st.integers(1, 3))):
        at = f"w{number}"
        sizes = draw(st.lists(SIZES, max_size=4))
        bands = [draw(st.sampled_from((BATCH, INTERACTIVE))) for _ in sizes]
        each = [
            victim(f"{at}-{which}", size, band, since=which, at=at)
            for which, (size, band) in enumerate(zip(sizes, bands, strict=True))
        ]
        drawn.append(room(*each, free=draw(st.integers(0, 2)), at=at))
    return drawn


def _fits(rooms, demand, size, leaving):
    total = 0
    for each in rooms:
        free = each.free.cpu_milli + sum(
            capacity.cpu_milli for one in leaving for at, capacity, _ in one.rooms if at == each.worker_id
        )
        total += free // demand
    return total >= size


@given(groups(), st.integers(1, 6), st.integers(1, 3))
@profiles.examples(150)
def test_enough_leave_and_none_too_many(rooms, demand, size):
    """What is chosen makes room, nobody of it could have stayed, and where nothing is chosen nothing would do."""
    everybody = [one for each in rooms for one in each.victims]
    found = choose([rooms], cpus(demand), size)
    if found is None:
        assert not _fits(rooms, demand, size, everybody)
        return
    assert len(found.worker_ids) == size
    for each in rooms:
        number = found.worker_ids.count(each.worker_id)
        assert number == 0 or _fits([each], demand, number, found.victims)
    for one in found.victims:
        others = [each for each in found.victims if each is not one]
        assert not all(
            _fits([each], demand, found.worker_ids.count(each.worker_id), others)
            for each in rooms
            if each.worker_id in found.worker_ids
        )
    if size == 1:
        choices = (
            some
            for each in rooms
            for number in range(len(each.victims) + 1)
            for some in combinations(each.victims, number)
        )
        best = min(
            (max((-one.band for one in some), default=-9), len(some))
            for some in choices
            if _fits(rooms, demand, 1, some)
        )
        assert max((-one.band for one in found.victims), default=-9) == best[0], "a higher band was touched for nothing"
        if len(dict.fromkeys(one.rooms[0][1] for one in everybody)) <= 1:
            assert len(found.victims) == best[1], "fewer would do"
