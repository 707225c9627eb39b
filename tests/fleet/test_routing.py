"""Routing demand to groups: packing, fall-through, sentences."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.model import Attributes, Capacity, Constraint, Mode, Op
from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import Availability, GroupConfig
from iriscw.fleet.routing import Offer, misfit, route

WORKER = Capacity(8000, 64, 100, 8, "H100")
TASK = Capacity(1000, 8, 0, 1, "H100")


def entry(name="a", what=TASK, count=1, gang=1, band=0, constraints=()):
    return DemandEntry(name, what, constraints, count, gang, band)


def offer(name="g", *, absorbing=0, room=10, waiting=0, availability=Availability.AVAILABLE, **config):
    made = GroupConfig(name, WORKER, max_slices=100, **{"attributes": Attributes({"region": "lga1"}), **config})
    return Offer(made, availability, "because", absorbing, room, waiting)


def test_tasks_are_packed_into_as_few_slices_as_fit():
    """Nine tasks of an eighth of a worker need two slices of one worker."""
    assert route([entry(count=9)], [offer()]).wanted == {"g": 2}


def test_small_tasks_fill_what_big_ones_left():
    """Big shapes come first, and the rest goes into the room they leave."""
    big = attrs.evolve(TASK, cpu_milli=6000, gpu_count=6)
    assert route([entry("small", count=2), entry("big", big)], [offer()]).wanted == {"g": 1}


def test_slices_on_their_way_come_first():
    """What boots already takes demand before anything new is asked for."""
    routing = route([entry(count=16)], [offer(absorbing=1)])
    assert routing.wanted == {"g": 2}
    assert routing.reasons == (("a", "8 tasks for slices of 'g' that are on their way; 8 tasks for new slices of 'g'"),)


def test_waiting_slices_take_only_what_nobody_else_takes():
    """Demand leaves the queue for machines if another group takes it, and stays otherwise."""
    waiting = offer("a", waiting=1, room=0, availability=Availability.NO_CAPACITY, priority=1)
    assert route([entry()], [waiting, offer("b")]).wanted == {"a": 0, "b": 1}
    assert route([entry()], [waiting, offer("b", room=0)]).wanted == {"a": 1, "b": 0}


def test_lower_priority_number_takes_first_and_the_rest_falls_through():
    """Groups are filled in order of priority."""
    routing = route([entry(count=24)], [offer("b", priority=1, room=2), offer("a", priority=2)])
    assert routing.wanted == {"b": 2, "a": 1}


def test_preferences_come_before_priority():
    """A group that meets more preferences is filled first."""
    liked = Constraint("region", Op.EQ, ("ord1",), Mode.PREFERRED)
    there = offer("b", priority=9, attributes=Attributes({"region": "ord1"}))
    assert route([entry(constraints=(liked,))], [offer("a", priority=1), there]).wanted == {"a": 0, "b": 1}


def test_lower_bands_are_routed_first():
    """With room for one slice the lower band gets it."""
    whole = attrs.evolve(TASK, gpu_count=8)
    routing = route([entry("late", whole, band=2), entry("early", whole, band=1)], [offer(room=1)])
    reasons = dict(routing.reasons)
    assert "new slices" in reasons["early"]
    assert "no group takes 1 more" in reasons["late"]


@pytest.mark.parametrize(("gang", "num_vms", "slices"), [(16, 2, 1), (16, 4, 1), (8, 1, 1), (9, 2, 1)])
def test_a_gang_goes_into_one_slice(gang, num_vms, slices):
    """A gang takes workers of one slice together (INV-J4)."""
    assert route([entry(count=gang, gang=gang)], [offer(num_vms=num_vms)]).wanted == {"g": slices}


def test_two_gangs_share_a_slice_only_if_both_fit_whole():
    """A slice of four workers takes two gangs of two, not one and a half."""
    assert route([entry(count=32, gang=16)], [offer(num_vms=4)]).wanted == {"g": 1}
    assert route([entry(count=48, gang=24)], [offer(num_vms=4)]).wanted == {"g": 2}


@pytest.mark.parametrize(
    ("demand", "text"),
    [
        (entry(what=Capacity(9000, 1)), "too little cpu"),
        (entry(what=attrs.evolve(TASK, gpu_class="L40")), "gpu_class"),
        (entry(constraints=(Constraint("region", Op.EQ, ("ord1",)),)), "region=ord1"),
        (entry(count=16, gang=16), "a gang of 16 needs more than the 1 workers"),
        (entry(constraints=(Constraint("slice-id", Op.EQ, ("x",)),)), "slice-id=x"),
    ],
)
def test_the_impossible_is_named(demand, text):
    """Demand that no group can ever run says which group lacks what (INV-J7)."""
    routing = route([demand], [offer()])
    assert routing.wanted == {"g": 0}
    assert "can ever run this: g: " in routing.reasons[0][1]
    assert text in routing.reasons[0][1]


def test_what_only_workers_know_is_given_a_chance():
    """A Python version is known only when a worker is there: a new one may have it."""
    assert misfit(offer().config, entry(constraints=(Constraint("python", Op.EQ, ("3.11",)),))) == ""


def test_without_groups_there_is_a_sentence_too():
    """An empty fleet says so."""
    assert route([entry()], []).reasons == (("a", "there is no scale group"),)


shapes = st.builds(
    Capacity, st.integers(1, 8000), st.integers(1, 64), st.integers(0, 100), st.integers(0, 8), st.just("H100")
)


@st.composite
def entries(draw):
    result = []
    for index in range(draw(st.integers(0, 6))):
        gang = draw(st.sampled_from([1, 1, 1, 2, 4]))
        count = gang * draw(st.integers(0, 20))
        result.append(entry(f"d{index}", draw(shapes), count, gang, draw(st.integers(0, 2))))
    return result


@given(entries(), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(1, 4))
def test_packing_is_honest(wanted, absorbing, room, waiting, num_vms):
    """No more slices are wanted than offered or useful, and all that waits has one sentence."""
    chosen = offer(absorbing=absorbing, room=room, waiting=waiting, num_vms=num_vms)
    routing = route(wanted, [chosen])
    waits = [each for each in wanted if each.count]
    assert 0 <= routing.wanted["g"] <= min(absorbing + room + waiting, sum(each.count for each in waits))
    assert [name for name, _ in routing.reasons] == sorted(each.demand_id for each in waits)
    assert all(text for _, text in routing.reasons)
    # Enough by volume: what is not refused fits into what is wanted.
    if not any("no group takes" in text or "can ever" in text for _, text in routing.reasons):
        total = sum(each.demand.cpu_milli * each.count for each in waits)
        assert total <= routing.wanted["g"] * num_vms * WORKER.cpu_milli
    assert route(list(reversed(wanted)), [chosen]) == routing
