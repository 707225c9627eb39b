"""A routing policy of the user's own: what it is shown, what its order does, and what is said of it."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, strategies as st
from test_routing import TASK, WORKER, entries, entry, offer

from iriscw.cloud.model import Attributes, Constraint, Mode, Op
from iriscw.fleet.choosing import Asking
from iriscw.fleet.explaining import MAX_BEFORE_TOLD, MAX_DEMANDS_TOLD, explain_demand
from iriscw.fleet.model import Availability
from iriscw.fleet.policy import default_routing
from iriscw.fleet.routing import route
from iriscw.runtime.vocabulary import SECOND

NOW, WALL = 1000 * SECOND, 5 * SECOND


def asking(policy, offers, **since):
    return Asking(policy, {each.config.name: each for each in offers}, since, NOW, WALL)


def routed(policy, waits, offers, **since):
    return route(waits, offers, choose=asking(policy, offers, **since).choose)


def those(view, names):
    """Return the groups of a view that have these names, in this order."""
    by_name = {each.name: each for each in view.groups}
    return [by_name[name] for name in names if name in by_name]


def explained(routing, offers, group):
    """Return what is told of the one demand at a group: what it takes, why, and of those before it."""
    (at,) = explain_demand([group], routing, {each.config.name: each for each in offers}, {})
    (told,) = at.told
    return told.takes, told.why, dict(told.before)


GROUPS = [
    offer("near", absorbing=1, room=2, priority=10),
    offer("far", room=3, idle=1, attributes=Attributes({"region": "ord1"})),
    offer("full", room=0, waiting=2, availability=Availability.NO_CAPACITY, num_vms=4, priority=10),
]


@given(entries())
def test_the_default_gives_the_order_that_routing_has_anyway(waits):
    """Asked or not, the same is decided and said."""
    assert routed(default_routing, waits, GROUPS) == route(waits, GROUPS)


@given(entries(), st.permutations(["near", "far", "full"]), st.integers(0, 3))
def test_a_group_that_is_not_named_gets_nothing(waits, order, length):
    """In whichever order the others stand; and what is packed holds there, too."""
    named = order[:length]
    routing = routed(lambda view: those(view, named), waits, GROUPS)
    assert [name for name, count in routing.wanted.items() if count and name not in named] == []
    assert [name for name, _ in routing.reasons] == sorted(each.demand_id for each in waits if each.count)
    for each in GROUPS:
        assert routing.wanted[each.config.name] <= each.absorbing + each.room + each.waiting + each.idle


def test_what_a_policy_is_shown():
    """The demand with how long it waits, and each group that could run it: closed ones too, with when they open."""
    seen = []

    def policy(view):
        seen.append(view)
        return default_routing(view)

    closed = attrs.evolve(
        offer("shut", room=0, availability=Availability.QUOTA_EXCEEDED, quota_pool="h100"), retry_at=WALL + 7
    )
    wish = Constraint("region", Op.EQ, ("lga1",), Mode.PREFERRED)
    offers = [*GROUPS, closed, offer("cpu", per_worker=attrs.evolve(WORKER, gpu_count=0))]
    routed(policy, [entry(count=4, gang=2, constraints=(wish,))], offers, a=NOW - 3 * SECOND)
    (view,) = seen
    assert (view.demand_id, view.tasks, view.each, view.gang_size, view.waited) == ("a", 4, TASK, 2, 3 * SECOND)
    assert [each.name for each in view.groups] == ["full", "near", "shut", "far"]
    full, near, shut, far = view.groups
    assert (near.booting, near.room, near.unmet, near.attributes.get("region")) == (1, 2, 0, "lga1")
    assert (far.idle, far.unmet, far.attributes.get("group")) == (1, 1, "far")
    assert (full.waiting, full.num_vms, full.availability) == (2, 4, Availability.NO_CAPACITY)
    assert (shut.retry_in, shut.quota_pool, shut.reason) == (7, "h100", "because")


def test_who_fails_is_counted_and_the_first_error_kept():
    """For each demand that was asked about."""
    them = asking(lambda view: ["near"], GROUPS)
    route([entry("a"), entry("b")], GROUPS, choose=them.choose)
    assert (them.failures, them.error.startswith("a: ValueError: 'near' is none")) == (2, True)


def test_what_is_left_out_is_said():
    """To who waits for it, and at the group."""
    routing = routed(lambda view: those(view, ["near"]), [entry(count=99)], GROUPS)
    assert routing.reasons[0][1].endswith("'near' is available (because), the routing policy leaves out 'full', the"
        " routing policy leaves out 'far'")  # fmt: skip
    assert explained(routing, GROUPS, "far")[:2] == (0, "the routing policy leaves it out now")
    nothing = routed(lambda view: (), [entry()], GROUPS)
    assert nothing.reasons[0][1].startswith("no group takes 1 more now: the routing policy leaves out 'full', the")


QUOTA = attrs.evolve(offer("a", room=0, availability=Availability.QUOTA_EXCEEDED), retry_at=(14 * 60 + 5) * 60 * SECOND)
FULL = offer("a", room=0, availability=Availability.AT_MAX)
SPREAD = {"gang": 4, "by": "region"}


@pytest.mark.parametrize(
    ("first", "second", "waits", "why"),
    [
        (QUOTA, {}, {}, "quota exceeded until 14:05:00 UTC (because)"),
        (FULL, {}, {}, "at max_slices (because)"),
        (
            *(offer("a", room=1), {}, {"count": 9}),
            "8 for new slices; no more: other demand takes all that it could ask for",
        ),
        (offer("a"), {"absorbing": 1}, {}, "slices that are there or on their way elsewhere come before new ones"),
        (offer("a", num_vms=1), {"num_vms": 2}, {"count": 16, "gang": 16}, None),
        (
            offer("a", room=2),
            {"absorbing": 0, "room": 5, "attributes": Attributes({"region": "ord1"}), "idle": 1},
            {"count": 4, **SPREAD},
            "slices that are there or on their way elsewhere come before new ones",
        ),
        (offer("a", room=0), {}, {}, "it takes nothing now (because)"),
    ],
)  # fmt: skip
def test_why_a_group_passes_demand_on(first, second, waits, why):
    """In one sentence, at the group itself and at the one that takes it; who could never run it is not there."""
    offers = [first, offer("b", priority=200, **second)]
    routing = route([entry(**{"count": 1, **waits})], offers)
    took, _, before = explained(routing, offers, "b")
    assert took >= 1
    assert before == ({} if why is None else {"a": why})
    if why is not None:
        assert explained(routing, offers, "a")[1] == why


def test_what_comes_after_is_not_needed():
    """And other demand is named as what took the room."""
    offers = [offer("a", room=1), offer("b")]
    routing = route([entry("big", WORKER), entry("small")], offers)
    by_name = {each.config.name: each for each in offers}
    at_a, at_b = explain_demand("ab", routing, by_name, {"big": 7})
    assert [(each.demand_id, each.takes, each.since) for each in at_a.told] == [("big", 1, 7), ("small", 0, 0)]
    assert (at_a.tasks, at_a.demands) == (1, 2)
    small, big = at_b.told
    assert small.before == (("a", "other demand takes all that it could ask for"),)
    assert big.why == "those before it take the rest"


def test_little_is_told_of_much():
    """Of each group the first demands, of each demand the first groups before; how many there are is said."""
    offers = [offer(f"g{index}", room=0, availability=Availability.AT_MAX) for index in range(9)] + [offer("h")]
    routing = route([entry(f"d{index:02}") for index in range(30)], offers)
    (told,) = explain_demand(["h"], routing, {each.config.name: each for each in offers}, {})
    assert (told.tasks, told.demands, len(told.told)) == (30, 30, MAX_DEMANDS_TOLD)
    assert {len(each.before) for each in told.told} == {MAX_BEFORE_TOLD}
