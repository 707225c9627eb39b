"""Packing compared with the plainest way to do it: one worker after the other, one task after the other."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.model import Attributes, Capacity, Constraint, Mode, Op
from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import Availability, GroupConfig
from iriscw.fleet.routing import MAX_STACKS, Bay, GroupOffer, misfit, route

WORKER = Capacity(8000, 64, 100, 8, "H100")
TASK = Capacity(1000, 8, 0, 1, "H100")


def entry(name="a", what=TASK, count=1, gang=1, band=0, constraints=()):
    return DemandEntry(name, what, constraints, count, gang, band)


def offer(name="g", *, absorbing=0, room=10, waiting=0, availability=Availability.AVAILABLE, **config):
    made = GroupConfig(name, WORKER, max_slices=100, **{"attributes": Attributes({"region": "lga1"}), **config})
    return GroupOffer(made, availability, "because", absorbing, room, waiting)


class PlainBay:
    """Workers one by one, in the order in which they were opened."""

    def __init__(self, slices, num_vms) -> None:
        self.slices, self.num_vms, self.used = slices, num_vms, 0
        self.rooms: list[Capacity] = []

    def place(self, what, count) -> int:
        """Place one task after the other; give how many found a place."""
        for placed in range(count):
            fitting = [index for index, room in enumerate(self.rooms) if room.times(what)]
            if not fitting:
                if self.used == self.slices or not WORKER.times(what):
                    return placed
                self.used += 1
                fitting = [len(self.rooms)]
                self.rooms += [WORKER] * self.num_vms
            room = self.rooms[fitting[0]]
            self.rooms[fitting[0]] = attrs.evolve(
                room,
                cpu_milli=room.cpu_milli - what.cpu_milli,
                memory_bytes=room.memory_bytes - what.memory_bytes,
                disk_bytes=room.disk_bytes - what.disk_bytes,
                gpu_count=room.gpu_count - what.gpu_count,
            )
        return count


shapes = st.builds(
    Capacity, st.integers(500, 8000), st.integers(1, 64), st.integers(0, 100), st.integers(0, 8), st.just("H100")
)


@given(
    st.lists(st.tuples(shapes, st.integers(1, 12)), max_size=5),
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
    st.integers(1, 3),
)
def test_stacks_are_workers_one_by_one(wanted, offered, num_vms):
    """Tasks take what earlier ones left, worker by worker, and open a slice only when nothing else fits."""
    entries = [entry(f"d{index}", what, count) for index, (what, count) in enumerate(wanted)]
    absorbing, room, waiting = offered
    chosen = offer(absorbing=absorbing, room=room, waiting=waiting, num_vms=num_vms)
    plain = [PlainBay(slices, num_vms) for slices in offered]
    order = sorted(
        entries, key=lambda e: (-e.demand.gpu_count, -e.demand.cpu_milli, -e.demand.memory_bytes, e.demand_id)
    )
    refused = {}
    for each in order:
        left = each.count
        for bay in plain:
            left -= bay.place(each.demand, left)
        refused[each.demand_id] = left
    routing = route(entries, [chosen])
    assert routing.wanted == {"g": sum(bay.used for bay in plain)}
    for name, text in routing.reasons:
        assert (f"no group takes {refused[name]} more now" in text) == (refused[name] > 0)


@pytest.mark.parametrize(
    ("count", "gang", "num_vms", "slices"),
    [(16, 16, 4, 1), (32, 16, 4, 1), (48, 16, 4, 2), (16, 16, 3, 1), (32, 16, 3, 2), (4, 2, 1, 2), (10, 2, 2, 3)],
)
def test_gangs_take_whole_workers_of_one_slice(count, gang, num_vms, slices):
    """As many gangs share a slice as have all their workers there, and none takes a worker that another has begun."""
    assert route([entry(count=count, gang=gang)], [offer(num_vms=num_vms)]).wanted == {"g": slices}


def test_what_a_gang_leaves_is_there_for_others():
    """The rest of its last worker, and the workers of its slice that it does not need."""
    gang = entry("gang", count=12, gang=12)
    assert route([gang, entry("rest", count=4)], [offer(num_vms=2)]).wanted == {"g": 1}
    assert route([gang, entry("rest", count=5)], [offer(num_vms=2)]).wanted == {"g": 2}
    assert route([gang, entry("rest", count=12)], [offer(num_vms=3)]).wanted == {"g": 1}


def test_a_gang_that_finds_no_slice_takes_nothing():
    """Not even a part of one: a gang runs whole or not at all (INV-J4)."""
    routing = route([entry(count=32, gang=16)], [offer(room=1, num_vms=2)])
    assert routing.wanted == {"g": 1}
    assert "no group takes 16 more now" in routing.reasons[0][1]


def test_bigger_gangs_come_first():
    """Whatever their names: what is hardest to place is placed while there is room."""
    routing = route([entry("a", count=8), entry("b", count=16, gang=16)], [offer(room=1, num_vms=2)])
    assert "no group" in dict(routing.reasons)["a"]
    assert "no group" not in dict(routing.reasons)["b"]


def test_nothing_that_waits_for_nobody_is_routed():
    """A demand for no task has no sentence."""
    assert route([entry(count=0)], [offer()]).reasons == ()


def test_a_bay_keeps_few_stacks():
    """Beyond the limit those with the least room are taken for full; the emptiest stay."""
    bay = Bay(offer(num_vms=1).config, 3 * MAX_STACKS)
    for index in range(2 * MAX_STACKS):
        bay.place(Capacity(4001 + index, 1, 0, 1, "H100"), 1, 1)
        assert len(bay.stacks) <= MAX_STACKS
    assert bay.used == 2 * MAX_STACKS
    rooms = [room.cpu_milli for room, _ in bay.stacks]
    assert rooms == sorted(rooms, reverse=True)
    assert max(rooms) == WORKER.cpu_milli - 4001


def test_as_many_stacks_as_a_bay_keeps_stay_in_their_order():
    """What was opened first is filled first; only one more has them sorted."""
    bay = Bay(offer(num_vms=1).config, 2 * MAX_STACKS)
    for index in range(MAX_STACKS + 1):
        before = [room.cpu_milli for room, _ in bay.stacks]
        assert before == sorted(before)
        bay.place(Capacity(7900 - index, 1, 0, 1, "H100"), 1, 1)
    rooms = [room.cpu_milli for room, _ in bay.stacks]
    assert rooms == sorted(rooms, reverse=True)


@pytest.mark.parametrize("what", [Capacity(8000, 1, 0, 0, ""), Capacity(1, 64, 0, 0, "")])
def test_a_worker_without_cpu_or_memory_is_full(what):
    """Nothing can run there, however many GPUs it has."""
    bay = Bay(offer(num_vms=1).config, 1)
    bay.place(what, 1, 1)
    assert bay.stacks == []


@pytest.mark.parametrize(
    ("op", "known", "fits"),
    [
        (Op.EQ, {}, True),
        (Op.NOT_EXISTS, {}, False),
        (Op.EQ, {"python": "3.9"}, False),
        (Op.EQ, {"python": "3.11"}, True),
    ],
)
def test_a_python_that_a_group_has_is_no_guess(op, known, fits):
    """Only where the group says nothing a worker may bring any."""
    values = ("3.11",) if op is Op.EQ else ()
    config = offer(attributes=Attributes(known)).config
    assert (misfit(config, entry(constraints=(Constraint("python", op, values),))) == "") == fits


def test_a_dislike_does_not_forbid():
    """The group that meets a preference is first; when it is full the others take the rest."""
    liked = Constraint("region", Op.EQ, ("ord1",), Mode.PREFERRED)
    there = offer("b", room=1, attributes=Attributes({"region": "ord1"}))
    assert route([entry(count=16, constraints=(liked,))], [offer("a"), there]).wanted == {"a": 1, "b": 1}


def test_many_groups_are_not_all_named():
    """Three of them with what they lack, and how many more there are."""
    routing = route([entry(what=Capacity(9000, 1))], [offer(f"g{index}") for index in range(5)])
    text = routing.reasons[0][1]
    assert ("g2:" in text, "g3:" in text, "and 2 more" in text) == (True, False, True)
    routing = route([entry(count=99)], [offer(f"g{index}", room=0) for index in range(5)])
    assert "'g2'" in routing.reasons[0][1]
    assert "'g3'" not in routing.reasons[0][1]


def test_one_task_is_one_task():
    """Sentences are English, and say why a group takes nothing where it knows."""
    closed = offer(room=1, availability=Availability.QUOTA_EXCEEDED)
    text = route([entry(count=9)], [closed]).reasons[0][1]
    assert text.startswith("8 tasks for new slices of 'g'; no group takes 1 more now: 'g' is ")
    assert "(because)" in text
    assert route([entry()], [offer()]).reasons[0][1].startswith("1 task for")
    silent = attrs.evolve(closed, reason="", room=0)
    assert "(" not in route([entry()], [silent]).reasons[0][1]
