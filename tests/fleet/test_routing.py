"""Routing demand to groups: packing, fall-through, sentences."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, strategies as st

from iriscw.cloud.model import Attributes, Capacity, Constraint, Mode, Op
from iriscw.fleet.bays import Bay
from iriscw.fleet.messages import DemandEntry
from iriscw.fleet.model import FREEZABLE, Availability, GroupConfig
from iriscw.fleet.offers import GroupOffer, spreads
from iriscw.fleet.routing import misfit, route
from iriscw.fleet.useless import IdleSlice
from iriscw.runtime.vocabulary import SECOND

WORKER = Capacity(8000, 64, 100, 8, "H100")
TASK = Capacity(1000, 8, 0, 1, "H100")


def entry(name="a", what=TASK, count=1, gang=1, band=0, constraints=(), by="slice-id"):
    return DemandEntry(name, what, constraints, count, gang, band, by)


def offer(
    name="g",
    *,
    absorbing=0,
    room=10,
    waiting=0,
    idle=0,
    later=None,
    availability=Availability.AVAILABLE,
    known=(),
    going=0,
    **config,
):
    usual = {"per_worker": WORKER, "attributes": Attributes({"region": "lga1"}), "max_slices": 100}
    made = GroupConfig(name, **{**usual, **config})
    later = room if later is None else later
    return GroupOffer(
        made,
        availability,
        "because",
        absorbing,
        room,
        waiting,
        idle=idle,
        later=later,
        known=tuple(known),
        going=going,
    )


def idle_slice(name, *workers):
    """Return a slice of group g in region lga1 whose workers say this of themselves, besides what the group names."""
    usual = {"region": "lga1", "group": "g", "slice-id": name}
    return IdleSlice(name, tuple(Attributes({**usual, **each}) for each in workers))


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


def test_lower_bands_are_routed_first():
    """With room for one slice the lower band gets it."""
    whole = attrs.evolve(TASK, gpu_count=8)
    routing = route([entry("late", whole, band=2), entry("early", whole, band=1)], [offer(room=1)])
    reasons = dict(routing.reasons)
    assert "new slices" in reasons["early"]
    assert "no group takes 1 more" in reasons["late"]


@pytest.mark.parametrize(
    ("count", "gang", "num_vms", "slices"),
    [
        (16, 16, 4, 1),
        (32, 16, 4, 1),
        (48, 16, 4, 2),
        (16, 16, 3, 1),
        (32, 16, 3, 2),
        (4, 2, 1, 2),
        (10, 2, 2, 3),
        (8, 8, 1, 1),
        (9, 9, 2, 1),
    ],
)
def test_gangs_take_whole_workers_of_one_slice(count, gang, num_vms, slices):
    """As many share a slice as have all their workers there; none takes a worker that another has begun (INV-J4)."""
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


def test_preferences_come_before_priority():
    """The group that meets more of them is filled first; a dislike does not forbid, and the others take the rest."""
    liked = Constraint("region", Op.EQ, ("ord1",), Mode.PREFERRED)
    there = offer("b", room=1, priority=9, attributes=Attributes({"region": "ord1"}))
    assert route([entry(count=16, constraints=(liked,))], [offer("a", priority=1), there]).wanted == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("demand", "text"),
    [
        (entry(what=Capacity(9000, 1)), "too small (9 CPU asked, 8 there)"),
        (entry(what=attrs.evolve(TASK, gpu_class="L40")), "GPU class L40 asked, H100 there"),
        (entry(constraints=(Constraint("region", Op.EQ, ("ord1",)),)), "region=ord1"),
        (
            entry(count=16, gang=16),
            "a gang of 16 needs 2 workers of one slice, which has 1 (num_vms); by 'group' it may have several",
        ),
        (entry(count=16, gang=16, by="worker-id"), "a gang of 16 needs room on one worker, and takes 2"),
    ],
)
def test_the_impossible_is_named(demand, text):
    """Demand that no group can ever run says which group lacks what (INV-J7)."""
    routing = route([demand], [offer()])
    assert routing.wanted == {"g": 0}
    assert "can ever run this: g: " in routing.reasons[0][1]
    assert text in routing.reasons[0][1]


@pytest.mark.parametrize(
    ("demand", "text"),
    [
        (entry(constraints=(Constraint("slice-id", Op.EQ, ("x",)),)), "slice-id=x"),
        (entry(count=2, gang=2, by="slice_id"), "to have the attribute 'slice_id' (did you mean 'slice-id'?)"),
        (entry(count=801, gang=801, by="region"), "of a gang of 801 at most 800 fit where 'region' is the same"),
        (
            entry(count=801, gang=801, by="group"),
            "of a gang of 801 at most 800 fit where 'group' is the same (max_slices)",
        ),
        (entry(count=2, gang=2, by="rack"), "no worker is known to have the attribute 'rack'"),
    ],
)
def test_what_only_a_worker_could_bring_is_named(demand, text):
    """No machine is asked for: one after the other would come without it. It does not say that this is for ever."""
    routing = route([demand], [offer(absorbing=1)])
    assert (routing.wanted, routing.never) == ({"g": 0}, ())
    assert "no scale group is known to run this: g: " in routing.reasons[0][1]
    assert text in routing.reasons[0][1]


@pytest.mark.parametrize("by", ["region", "group", "python"])
def test_a_gang_by_another_attribute_spreads_over_slices(by):
    """It takes slices on their way and new ones, or none at all: half of its machines would stand idle."""
    gang = entry(count=24, gang=24, by=by)
    routing = route([gang], [offer()])
    assert (routing.wanted, routing.spread) == ({"g": 3}, {"g": 3})
    assert route([gang], [offer(num_vms=2)]).wanted == {"g": 2}
    assert route([gang], [offer(absorbing=1)]).wanted == {"g": 3}
    routing = route([gang], [offer(room=2)])
    assert (routing.wanted, routing.never) == ({"g": 0}, ())
    assert routing.reasons == (("a", "no group takes 24 more now: 'g' is available (because)"),)


def test_a_gang_that_spreads_shares_its_slices():
    """What it leaves free others take, and what others leave free it takes; those slices are not for it alone."""
    gang, small = entry(count=20, gang=20, by="group"), entry("z", count=12)
    routing = route([gang, small], [offer()])
    assert (routing.wanted, routing.spread) == ({"g": 4}, {"g": 3})
    before = attrs.evolve(WORKER, gpu_count=5, cpu_milli=5000, memory_bytes=40)
    routing = route([gang, entry("big", before, band=-1)], [offer()])
    assert (routing.wanted, routing.spread) == ({"g": 4}, {"g": 3})


def test_idle_slices_are_kept_for_a_gang_that_spreads():
    """They count as its own, whatever else is asked for; for nobody else: what waits has no room there."""
    gang = entry(count=32, gang=32, by="group")
    routing = route([gang, entry("z", count=8)], [offer(idle=2, absorbing=1)])
    assert (routing.wanted, routing.spread) == ({"g": 5}, {"g": 4})
    kept = "16 tasks for idle slices of 'g', which are kept for the rest of the gang"
    assert dict(routing.reasons)["a"] == (
        f"{kept}; 8 tasks for slices of 'g' that are on their way; 8 tasks for new slices of 'g'"
    )
    routing = route([gang], [offer(idle=9)])
    assert (routing.wanted, routing.spread) == ({"g": 4}, {"g": 4})
    assert route([entry(count=8), entry("b", count=8, gang=8)], [offer(idle=9)]).wanted == {"g": 2}


OLD, NEW = {"python": "3.11", FREEZABLE: "false"}, {"python": "3.12", FREEZABLE: "true"}


@pytest.mark.parametrize("asked", [Constraint("python", Op.EQ, ("3.12",)), Constraint(FREEZABLE, Op.EQ, ("true",))])
def test_idle_slices_that_do_not_do_for_a_gang_are_not_kept(asked):
    """What only workers know decides: all it needs is asked for besides them, and they are named."""
    gang = entry(count=32, gang=32, by="region", constraints=(asked,))
    old = [idle_slice("s1", OLD), idle_slice("s2", OLD)]
    routing = route([gang], [offer(idle=2, known=old)])
    assert (routing.wanted, routing.spread, routing.unfit) == ({"g": 4}, {"g": 4}, {"g": ("s1", "s2")})
    mixed = [old[0], idle_slice("s2", NEW), idle_slice("s3", OLD, NEW)]
    routing = route([gang], [offer(idle=3, known=mixed, room=3, absorbing=0)])
    assert (routing.wanted, routing.unfit) == ({"g": 4}, {"g": ("s1", "s3")})
    assert route([gang], [offer(idle=2, known=old, room=1)]).wanted == {"g": 0}
    replaced = route([gang], [offer(idle=2, known=old, room=3)])
    assert (replaced.wanted, replaced.renew) == ({"g": 3}, {"g": 1}), "with the room of one of them all of it fits"
    liked = attrs.evolve(gang, constraints=(attrs.evolve(asked, mode=Mode.PREFERRED),))
    assert route([liked], [offer(idle=2, known=old)]).unfit == {"g": ()}


def test_a_gang_by_what_only_workers_know_keeps_slices_of_one_value():
    """Those of which the most are there; what is still to come may have any value."""
    gang = entry(count=32, gang=32, by="python")
    known = [idle_slice("s1", OLD), idle_slice("s2", NEW), idle_slice("s3", NEW), idle_slice("s4", {})]
    routing = route([gang], [offer(idle=4, known=known, num_vms=1)])
    assert (routing.wanted, routing.spread, routing.unfit) == ({"g": 4}, {"g": 4}, {"g": ("s1", "s4")})
    assert "16 tasks for idle slices of 'g', which are kept" in routing.reasons[0][1]
    mixed = [idle_slice("s1", OLD, NEW)]
    assert route([gang], [offer(idle=1, known=mixed, num_vms=2)]).unfit == {"g": ("s1",)}


def test_each_gang_keeps_the_idle_slices_that_do_for_it():
    """None that another one needs; one that does for either is not named."""
    known = [idle_slice("s1", OLD), idle_slice("s2", NEW)]
    first, second = (
        entry(python, count=16, gang=16, by="region", constraints=(Constraint("python", Op.EQ, (python,)),))
        for python in ("3.11", "3.12")
    )
    routing = route([first, second], [offer(idle=2, known=known)])
    assert (routing.wanted, routing.spread, routing.unfit) == ({"g": 4}, {"g": 4}, {"g": ()})
    assert all("8 tasks for idle slices" in text for _, text in routing.reasons)


def test_idle_slices_that_groups_do_not_count_are_not_kept():
    """One that only just became ready is told of as on its way; one of which nothing is known is taken to do."""
    gang = entry(count=32, gang=32, by="region")
    known = [idle_slice("s1", OLD), idle_slice("s2", OLD)]
    assert route([gang], [offer(idle=1, known=known, absorbing=1, room=2)]).wanted == {"g": 4}
    assert route([gang], [offer(idle=1, known=known, absorbing=1, room=1)]).wanted == {"g": 0}
    assert route([gang], [offer(idle=3, known=known, room=1)]).wanted == {"g": 4}


def test_groups_with_the_same_value_hold_a_gang_together():
    """Those of another value do not; nor do those of which only workers know the value."""
    gang = entry(count=32, gang=32, by="region")
    fleet = [
        offer("a", room=2),
        offer("b", room=2),
        offer("c", room=9, attributes=Attributes({"region": "x"}), priority=900),
    ]
    assert route([gang], fleet).wanted == {"a": 2, "b": 2, "c": 0}
    assert route([gang], [offer("a", room=2), fleet[2]]).wanted == {"a": 0, "c": 4}
    assert route([entry(count=32, gang=32, by="python")], fleet[:2]).wanted == {"a": 0, "b": 0}


def test_a_gang_stays_where_the_least_has_to_be_asked_for():
    """Whatever is liked better: it would be asked for anew each time, and given back each time."""
    gang = entry(count=32, gang=32, by="group")
    assert route([gang], [offer("a", priority=1), offer("b", absorbing=1)]).wanted == {"a": 0, "b": 4}
    assert route([gang], [offer("a", priority=1, idle=2), offer("b", absorbing=1)]).wanted == {"a": 4, "b": 0}
    assert route([gang], [offer("a", priority=2), offer("b", priority=1)]).wanted == {"a": 0, "b": 4}
    queued = offer("a", priority=1, idle=3, waiting=1, room=0)
    assert route([gang], [queued, offer("b")]).wanted == {"a": 0, "b": 4}
    assert route([gang], [queued]).wanted == {"a": 4}


def test_what_is_there_is_kept_while_a_group_is_closed():
    """Nothing is asked for until it opens. Where the rest could not come then either, nothing is kept."""
    gang = entry(count=32, gang=32, by="group")
    closed = {"room": 0, "availability": Availability.BACKOFF}
    routing = route([gang], [offer(idle=1, absorbing=1, later=2, **closed)])
    assert (routing.wanted, routing.spread) == ({"g": 2}, {"g": 2})
    assert "no group takes 16 more now: 'g' is" in routing.reasons[0][1]
    assert route([gang], [offer(idle=1, absorbing=1, later=1, **closed)]).wanted == {"g": 0}
    assert route([gang], [offer(later=4, **closed)]).wanted == {"g": 0}
    most = offer("b", idle=1, absorbing=2, later=1, **closed)
    assert route([gang], [offer("a", idle=1, absorbing=1, later=2, **closed), most]).wanted == {"a": 0, "b": 3}
    first = entry("first", count=8, band=-1)
    assert route([gang, first], [offer(idle=2, room=2)]).wanted == {"g": 1}, "another takes the room, open or not"


@pytest.mark.parametrize(
    ("demand", "never"),
    [
        (entry(what=Capacity(9000, 1)), True),
        (entry(constraints=(Constraint("group", Op.EQ, ("other",)),)), True),
        (entry(constraints=(Constraint("zone", Op.EQ, ("b",)),)), True),
        (entry(count=16, gang=16), True),
        (entry(constraints=(Constraint("rack", Op.EQ, ("7",)),)), False),
        (entry(count=16, gang=16, constraints=(Constraint("rack", Op.EQ, ("7",)),)), False),
        (entry(constraints=(Constraint("group", Op.EQ, ("g",)),)), False),
        (entry(constraints=(Constraint("python", Op.EQ, ("3.9",)),)), False),
        (entry(count=1000), False),
    ],
)
def test_never_is_what_the_configuration_says(demand, never):
    """A size, a gang, an attribute that the group names; a worker may bring attributes that no group does."""
    there = offer(attributes=Attributes({"zone": "a"}))
    assert route([demand], [there]).never == (("a",) if never else ())
    roomy = Capacity(90_000, 99, 100, 8, "H100")
    other = offer("other", num_vms=9, per_worker=roomy, attributes=Attributes({"zone": "b"}))
    assert route([demand], [there, other]).never == (), "one group is enough"


@pytest.mark.parametrize(
    ("op", "known", "fits"),
    [
        (Op.EQ, {}, True),
        (Op.EXISTS, {}, True),
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


def test_nothing_that_waits_and_no_group_have_their_sentence_too():
    """A demand for no task has none; an empty fleet says so."""
    assert route([entry(count=0)], [offer()]).reasons == ()
    assert route([entry()], []).reasons == (("a", "there is no scale group"),)


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


shapes = st.builds(
    Capacity, st.integers(1, 8000), st.integers(1, 64), st.integers(0, 100), st.integers(0, 8), st.just("H100")
)


@st.composite
def entries(draw):
    result = []
    for index in range(draw(st.integers(0, 6))):
        gang = draw(st.sampled_from([1, 1, 1, 2, 4]))
        count = gang * draw(st.integers(0, 20))
        by = draw(st.sampled_from(["slice-id", "group"]))
        result.append(entry(f"d{index}", draw(shapes), count, gang, draw(st.integers(0, 2)), by=by))
    return result


@given(entries(), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.integers(1, 4))
def test_packing_is_honest(wanted, absorbing, room, waiting, idle, num_vms):
    """No more slices are wanted than offered or useful, and all that waits has one sentence."""
    chosen = offer(absorbing=absorbing, room=room, waiting=waiting, idle=idle, num_vms=num_vms)
    routing = route(wanted, [chosen])
    waits = [each for each in wanted if each.count]
    usable = absorbing + room + waiting + (idle if any(spreads(each) for each in waits) else 0)
    assert 0 <= routing.spread["g"] <= routing.wanted["g"] <= min(usable, sum(each.count for each in waits))
    assert [name for name, _ in routing.reasons] == sorted(each.demand_id for each in waits)
    assert all(text for _, text in routing.reasons)
    # Enough by volume: what is not refused fits into what is wanted.
    if not any("no group takes" in text or "can ever" in text for _, text in routing.reasons):
        total = sum(each.demand.cpu_milli * each.count for each in waits)
        assert total <= routing.wanted["g"] * num_vms * WORKER.cpu_milli
    assert route(list(reversed(wanted)), [chosen]) == routing


AT = (14 * 3600 + 31 * 60 + 7) * SECOND
"""14:31:07 UTC of some day."""


@pytest.mark.parametrize(
    ("minutes", "ready", "boots"),
    [
        (20, "the first ready at about 14:32 UTC", "which take about 20 min to boot"),
        (0.1, "the first ready at about 14:31:07 UTC", "which take about 6 s to boot"),
    ],
)
def test_who_waits_for_a_boot_is_told_when_it_should_be_over(minutes, ready, boots):
    """By the clock, which stays as it is while time passes; of what is still to be asked for, how long that takes."""
    estimate = round(minutes * 60) * SECOND
    it = attrs.evolve(offer(absorbing=1), expected_at=AT + 86_400 * SECOND, boot_estimate=estimate)
    ((_, reason),) = route([entry(count=16)], [it]).reasons
    assert reason == f"8 tasks for slices of 'g' that are on their way, {ready}; 8 tasks for new slices of 'g', {boots}"


def test_nobody_is_told_of_a_boot_that_nobody_can_foretell():
    """As of slices that are ready and unused: what is said then is what it was."""
    it = attrs.evolve(offer(absorbing=1), boot_estimate=20 * 60 * SECOND)
    ((_, reason),) = route([entry(count=1)], [it]).reasons
    assert reason == "1 task for slices of 'g' that are on their way"


def counted(monkeypatch, entries, offers):
    """Return how often routing looked whether a shape fits a worker."""
    looks = []
    times = Capacity.times
    with monkeypatch.context() as patched:
        patched.setattr(Capacity, "times", lambda self, demand: looks.append(demand) or times(self, demand))
        route(entries, offers)
    return len(looks)


def test_many_gangs_that_spread_are_routed_at_once(monkeypatch):
    """A gang more costs a look at the groups of one value; those of the others are as they were."""
    fleet = [offer(f"g{n}", idle=9, absorbing=9, attributes=Attributes({"region": f"r{n}"})) for n in range(20)]
    few, many = (counted(monkeypatch, [entry(count=16 * n, gang=16, by="region")], fleet) for n in (5, 105))
    assert few < many < few + 100 * 10


def test_gangs_of_many_shapes_are_tried_without_being_packed(monkeypatch):
    """Where a gang does not go, its shape is looked at; nothing is packed there."""
    packed = []
    place = Bay.place
    monkeypatch.setattr(Bay, "place", lambda self, *args: packed.append(self) or place(self, *args))
    fleet = [offer(f"g{n}", idle=9, absorbing=9, attributes=Attributes({"region": f"r{n}"})) for n in range(20)]
    shapes = [attrs.evolve(TASK, cpu_milli=1000 + n) for n in range(50)]
    route([entry(f"e{n:02}", what, count=16, gang=16, by="region") for n, what in enumerate(shapes)], fleet)
    assert 50 <= len(packed) <= 100
