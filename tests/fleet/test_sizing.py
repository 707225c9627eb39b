"""How many slices a group should have."""

from __future__ import annotations

import attrs
from hypothesis import HealthCheck, given, settings, strategies as st

from iriscw.fleet.groups import sizing
from iriscw.fleet.groups.sizing import Census, SizingPlan, take_census
from iriscw.fleet.model import Availability, SliceRow, SliceState, Trouble
from iriscw.fleet.policy import GroupView, ask, default_policy
from iriscw.fleet.signals import SliceReported
from iriscw.runtime.vocabulary import SECOND

NOW = 1000 * SECOND


def report(state, *, trouble=Trouble.NONE, idle_s=None, ready_s=None, used=True, stuck=False, bare=False):
    row = SliceRow("x", "gpu", state, trouble, "", 0, 0)
    return SliceReported(
        row=row,
        pool_uid="",
        idle_since=None if idle_s is None else NOW - idle_s * SECOND,
        ready_since=None if ready_s is None else NOW - ready_s * SECOND,
        used=used,
        stuck=stuck,
        bare=bare,
    )


def census_of(config, *reports, doomed=()):
    named = [(f"s{index}", each, f"s{index}" in doomed) for index, each in enumerate(reports)]
    return take_census(config, named, NOW)


def view_of(config, census, wanted):
    return GroupView(
        group=config.name,
        min_slices=config.min_slices,
        max_slices=config.max_slices,
        buffer_slices=config.buffer_slices,
        wanted=wanted,
        ready=census.ready,
        booting=census.moving,
        waiting=census.waiting,
        fresh=census.fresh,
        going=census.counted - census.alive,
        idle=tuple(NOW - since for since, _ in census.idle),
        availability=Availability.AVAILABLE,
        retry_in=None,
        boot_estimate=0,
        now=NOW,
        wall=NOW,
    )


def plan(config, census, wanted, policy=default_policy):
    """Plan for what a policy answers."""
    return sizing.plan(config, census, wanted, ask(policy, view_of(config, census, wanted)).slices)


def plan_without_policies(config, census, wanted):
    """What was planned when demand, min, max and buffer were all that there was: written out a second time."""
    absorbing, idle = census.absorbing, len(census.idle)
    leftover = max(0, absorbing - wanted)
    missing = max(0, wanted - absorbing)
    buffer_missing = max(0, config.buffer_slices - leftover - idle)
    request = max(missing + buffer_missing, config.min_slices - census.alive, 0)
    if request:
        return SizingPlan(request=min(request, max(0, config.max_slices - census.counted)))
    spare = min(leftover + idle - config.buffer_slices, census.alive - config.min_slices)
    give_up = max(0, min(spare, leftover, len(census.coming)))
    return SizingPlan(give_up=give_up, surplus=max(0, min(spare - give_up, idle)))


def test_each_kind_is_counted_once(group_config):
    """States, troubles and ages are told apart, and only a stuck deletion does not count against the bound."""
    census = census_of(
        group_config(),
        None,
        report(SliceState.BOOTING, bare=True),
        report(SliceState.BOOTING, trouble=Trouble.CAPACITY, bare=True),
        report(SliceState.INITIALIZING),
        report(SliceState.READY, ready_s=5, idle_s=5, used=False),
        report(SliceState.READY, ready_s=50, idle_s=50),
        report(SliceState.READY, ready_s=50),
        report(SliceState.FAILED),
        report(SliceState.DELETING),
        report(SliceState.DELETING, stuck=True),
    )
    assert (census.counted, census.alive, census.ready) == (9, 7, 3)
    assert (census.moving, census.waiting, census.fresh) == (3, 1, 1)
    assert census.idle == [(NOW - 50 * SECOND, "s5")]
    assert [name for _, _, name in census.coming] == ["s1", "s2"]


def test_the_first_boot_to_end_is_known(group_config):
    """Of those on their way; what waits for machines, or is not wanted any more, ends no boot that counts."""
    booting = report(SliceState.BOOTING)
    later, sooner = (attrs.evolve(booting, row=attrs.evolve(booting.row, expected_at=at)) for at in (700, 500))
    assert census_of(group_config(), later, sooner).expected_at == 500
    assert census_of(group_config(), later, sooner, doomed=("s1",)).expected_at == 700
    assert census_of(group_config(), report(SliceState.BOOTING, trouble=Trouble.CAPACITY), None).expected_at is None


def test_the_doomed_only_take_room(group_config):
    """A doomed slice counts until it is gone, and for nothing else."""
    census = census_of(group_config(), report(SliceState.READY, ready_s=50, idle_s=50), doomed=("s0",))
    assert census == Census(counted=1)


def test_longest_idle_comes_first(group_config):
    """The order is by idle time, then by name."""
    idle = [report(SliceState.READY, ready_s=90, idle_s=age) for age in (10, 70, 40, 70)]
    assert [name for _, name in census_of(group_config(), *idle).idle] == ["s1", "s3", "s2", "s0"]


def test_demand_beyond_what_comes_is_requested(group_config):
    """Only what is missing is asked for."""
    config = group_config(max_slices=10)
    census = census_of(config, report(SliceState.BOOTING, bare=True), report(SliceState.READY, ready_s=50))
    assert plan(config, census, 3).request == 2
    assert plan(config, census, 1).request == 0


def test_buffer_is_met_by_idle_and_leftover(group_config):
    """Idle slices and those on their way beyond demand are the buffer."""
    config = group_config(max_slices=10, buffer_slices=2)
    idle = report(SliceState.READY, ready_s=50, idle_s=50)
    assert plan(config, census_of(config), 0).request == 2
    assert plan(config, census_of(config, idle), 0).request == 1
    assert plan(config, census_of(config, idle, report(SliceState.BOOTING, bare=True)), 0).request == 0
    assert plan(config, census_of(config, idle, report(SliceState.BOOTING, bare=True)), 1).request == 1


kinds = st.sampled_from(
    [
        None,
        report(SliceState.BOOTING, bare=True),
        report(SliceState.BOOTING, trouble=Trouble.CAPACITY, bare=True),
        report(SliceState.INITIALIZING),
        report(SliceState.READY, ready_s=5, idle_s=5, used=False),
        report(SliceState.READY, ready_s=50, idle_s=50),
        report(SliceState.READY, ready_s=50),
        report(SliceState.FAILED),
        report(SliceState.DELETING),
        report(SliceState.DELETING, stuck=True),
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.lists(kinds, max_size=12), st.integers(0, 12))
def test_bounds_hold_whatever_there_is(group_config, data, reports, wanted):
    """max is never exceeded by a request, min and the buffer never undercut by a removal (INV-F4)."""
    most = data.draw(st.integers(0, 12))
    config = group_config(
        max_slices=most,
        min_slices=data.draw(st.integers(0, most)),
        buffer_slices=data.draw(st.integers(0, 3)),
    )
    census = census_of(config, *reports)
    target = plan(config, census, wanted)
    assert target.request >= 0
    assert target.request == 0 or census.counted + target.request <= most
    assert not (target.request and (target.give_up or target.surplus))
    if target.give_up or target.surplus:
        assert census.alive - target.give_up - target.surplus >= config.min_slices
        assert census.absorbing - target.give_up >= wanted
        assert census.absorbing - wanted + len(census.idle) - target.give_up - target.surplus >= config.buffer_slices
    assert target.give_up <= len(census.coming)
    assert target.surplus <= len(census.idle)
    if census.counted + target.request < most:
        assert census.alive + target.request >= config.min_slices


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.lists(kinds, max_size=12), st.integers(0, 12))
def test_the_default_policy_decides_as_ever(group_config, data, reports, wanted):
    """By way of one number comes out what demand, min, max and buffer said without it."""
    most = data.draw(st.integers(0, 12))
    config = group_config(
        max_slices=most,
        min_slices=data.draw(st.integers(0, most)),
        buffer_slices=data.draw(st.integers(0, 3)),
    )
    census = census_of(config, *reports)
    assert plan(config, census, wanted) == plan_without_policies(config, census, wanted)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.lists(kinds, max_size=12), st.integers(0, 12), st.integers())
def test_bounds_hold_whatever_a_policy_says(group_config, data, reports, wanted, answer):
    """Requests stay within max, removals above min and among idle and bare slices; what is too many goes (INV-F4)."""
    most = data.draw(st.integers(0, 12))
    config = group_config(max_slices=most, min_slices=data.draw(st.integers(0, most)))
    census = census_of(config, *reports)
    target = plan(config, census, wanted, lambda view: answer)
    removed = target.give_up + target.surplus
    assert target.request == 0 or census.counted + target.request <= most
    assert not (target.request and removed)
    assert 0 <= target.give_up <= len(census.coming)
    assert 0 <= target.surplus <= len(census.idle)
    assert removed == 0 or census.alive - removed >= config.min_slices
    if census.alive > max(answer, config.min_slices) and answer <= most:
        too_many = census.alive - max(answer, config.min_slices)
        assert removed == min(too_many, len(census.coming) + len(census.idle))


def test_what_demand_counts_on_goes_last(group_config):
    """A policy that wants less than demand gives up slices on their way that nothing was routed to, then idle ones."""
    config = group_config(max_slices=10)
    coming = [report(SliceState.BOOTING, bare=True) for _ in range(3)]
    idle = [report(SliceState.READY, ready_s=50, idle_s=50) for _ in range(2)]
    census = census_of(config, *coming, *idle)
    found = [plan(config, census, 2, lambda view, slices=slices: slices) for slices in (4, 3, 2, 1, 0)]
    assert [(each.give_up, each.surplus) for each in found] == [(1, 0), (1, 1), (1, 2), (2, 2), (3, 2)]
