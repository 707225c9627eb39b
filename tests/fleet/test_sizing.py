"""How many slices a group should have."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings, strategies as st

from iriscw.fleet.model import SliceRow, SliceState, Trouble
from iriscw.fleet.signals import SliceReported
from iriscw.fleet.sizing import Census, plan, take_census
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
