"""Packing compared with the plainest way to do it: one worker after the other, one task after the other."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.model import Capacity
from iriscw.fleet.bays import MAX_STACKS, Bay
from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import Availability, GroupConfig
from iriscw.fleet.offers import GroupOffer
from iriscw.fleet.routing import route

WORKER = Capacity(8000, 64, 100, 8, "H100")


def entry(name, what, count):
    return DemandEntry(name, what, (), count, 1, 0)


def offer(num_vms, offered=(0, 10, 0)):
    absorbing, room, waiting = offered
    config = GroupConfig("g", WORKER, max_slices=100, num_vms=num_vms)
    return GroupOffer(config, Availability.AVAILABLE, "because", absorbing, room, waiting)


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
    routing = route(entries, [offer(num_vms, offered)])
    assert routing.wanted == {"g": sum(bay.used for bay in plain)}
    for name, text in routing.reasons:
        assert (f"no group takes {refused[name]} more now" in text) == (refused[name] > 0)


@given(st.lists(st.tuples(shapes, st.integers(1, 40)), max_size=5), shapes, st.integers(0, 60), st.integers(0, 4))
def test_a_bay_says_how_much_room_it_has(before, demand, count, untouched):
    """As much as is packed then, whatever was packed before."""
    bay = Bay(offer(2).config, untouched)
    for what, number in before:
        bay.place(what, number, 1)
    room = bay.has_room(demand, count)
    assert bay.place(demand, count, 1) == room


def test_a_bay_keeps_few_stacks():
    """Beyond the limit those with the least room are taken for full; the emptiest stay."""
    bay = Bay(offer(1).config, 3 * MAX_STACKS)
    for index in range(2 * MAX_STACKS):
        bay.place(Capacity(4001 + index, 1, 0, 1, "H100"), 1, 1)
        assert len(bay.stacks) <= MAX_STACKS
    assert bay.used == 2 * MAX_STACKS
    rooms = [room.cpu_milli for room, _ in bay.stacks]
    assert rooms == sorted(rooms, reverse=True)
    assert max(rooms) == WORKER.cpu_milli - 4001


def test_as_many_stacks_as_a_bay_keeps_stay_in_their_order():
    """What was opened first is filled first; only one more has them sorted."""
    bay = Bay(offer(1).config, 2 * MAX_STACKS)
    for index in range(MAX_STACKS + 1):
        before = [room.cpu_milli for room, _ in bay.stacks]
        assert before == sorted(before)
        bay.place(Capacity(7900 - index, 1, 0, 1, "H100"), 1, 1)
    rooms = [room.cpu_milli for room, _ in bay.stacks]
    assert rooms == sorted(rooms, reverse=True)


@pytest.mark.parametrize("what", [Capacity(8000, 1, 0, 0, ""), Capacity(1, 64, 0, 0, "")])
def test_a_worker_without_cpu_or_memory_is_full(what):
    """Nothing can run there, however many GPUs it has."""
    bay = Bay(offer(1).config, 1)
    bay.place(what, 1, 1)
    assert bay.stacks == []
