"""A slice costs the API and the controller the same at any number of pools; a loss of all of them is borne in steps."""

import json

import pytest
from ratios import compare

from iriscw.bench import pools as bench
from iriscw.bench.plane import MeasurementFailed
from iriscw.bench.pools import GOALS, POOLS_PER_GROUP, Pools, PoolSizes, life, loss, memory, reactions
from raised import that


def check(lives, restarted, lost):
    """Assert what holds at any number of pools."""
    number = lives["pools"]
    assert 7 <= lives["requests_per_pool_life"] <= GOALS["requests_per_pool_life"]
    parts = [value for name, value in lives.items() if name.startswith("requests_") and not name.endswith("_life")]
    assert sum(parts) == pytest.approx(lives["requests_per_pool_life"])
    assert lives["requests_post_nodepools"] == lives["requests_delete_nodepools"] == 1, "nothing is asked for twice"
    assert lives["requests_post_pods"] == 1
    assert lives["requests_post_events"] == 2, "ready, and on its way out"
    assert lives["decisions_per_event"] < 25
    assert lives["messages_per_event"] < 20
    assert restarted["requests_that_change_something"] == 0, "what is there is taken up"
    assert restarted["requests"] <= 3 + 3 * number / 500, "each kind is listed once, in pages"
    assert restarted["decisions_per_pool"] < 60
    assert lost["lost"] == min(500, number)
    assert 0 <= lost["latest_first_replacement_after_its_pause_s"] < 0.1, "in the first step that may"
    assert lost["decisions_per_lost"] < 400 * max(1, number / 500)
    for each in (lives, restarted, lost):  # that of a group tells its slices something, that of the fleet its groups
        assert each["most_messages_of_a_decision"] <= 2 * max(POOLS_PER_GROUP, number // POOLS_PER_GROUP)


@pytest.mark.slow
def test_a_slice_costs_what_it_may():
    """Fifty pools: their lives, a restart, and the loss of all of them at once."""
    check(*life(50))


@pytest.mark.slow
def test_what_a_slice_costs_does_not_grow():
    """Five times the pools cost the same requests each, and about as many decisions and as much time an event."""
    cost = "controller_cpu_us_per_event"
    small, large = compare(lambda: life(10)[0], lambda: life(50)[0], {cost: 3.0, "decisions_per_event": 1.5})
    assert large["requests_per_pool_life"] <= small["requests_per_pool_life"] + 0.5


@pytest.mark.soak
@pytest.mark.parametrize("pools", [500, 5_000])
def test_large_fleets(pools):
    """The same at ten and at a hundred times the size; 500 are lost at once."""
    (small, *_), found = life(50), life(pools)
    check(*found)
    assert found[0]["requests_per_pool_life"] == pytest.approx(small["requests_per_pool_life"], abs=0.3)
    assert found[0]["decisions_per_event"] < 2 * small["decisions_per_event"]


@pytest.mark.slow
def test_counts_are_the_same_in_every_run():
    """What is not CPU time is a fact about the program."""
    runs = [[{name: value for name, value in part.items() if "cpu" not in name} for part in life(5)] for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.slow
def test_a_reaction_is_a_few_decisions_away():
    """From the event that nodes are ready to the pod that is asked for, and from a lost pool to the pod's removal."""
    found = reactions()
    assert 1 <= found["decisions_from_ready_nodes_to_pod"] <= 12
    assert 1 <= found["decisions_from_lost_pool_to_its_deletion"] <= 30


@pytest.mark.slow
def test_memory_per_pool():
    """A slice is two actors of the fleet and one of its worker's link, and some kilobytes."""
    found = memory(5)
    assert 2 <= found["actors_per_pool"] <= 4
    assert 1_000 < found["bytes_per_pool"] < 200_000


@pytest.mark.slow
def test_what_does_not_come_is_no_figure(monkeypatch):
    """A fleet that is not at rest in time is not measured."""
    monkeypatch.setattr(bench, "PATIENCE_S", 3.0)
    fleet = Pools(2)
    with pytest.raises(MeasurementFailed, check=that(comes_from="pools.Pools.rest", names=("0", "2"))):
        fleet.rest(1.0)
    with pytest.raises(MeasurementFailed, check=that(comes_from="pools.Pools.after_event", names="CreatePod")):
        fleet.after_event(bench.CreatePod)


@pytest.mark.slow
def test_groups_that_ask_for_nothing_are_no_figure(monkeypatch):
    """Nor is a loss that nobody replaces in time."""
    fleet = Pools(1)
    fleet.rest(1.0)
    monkeypatch.setattr(bench, "PATIENCE_S", 3.0)  # less than a group's pause
    with pytest.raises(MeasurementFailed, check=that(comes_from="pools.loss", names=("0", "1"))):
        loss(fleet)


@pytest.mark.slow
def test_the_report():
    """A row for each size, in each group of figures; and nothing that is no JSON."""
    told = []
    report = bench.run(told.append, PoolSizes(lives=(2, 3), memory=(2,)))
    assert [[row["pools"] for row in rows] for rows in report["figures"].values()] == [[2, 3]] * 3 + [[1], [2]]
    assert json.loads(json.dumps(report)) == report
    assert told == ["2 pools", "3 pools", "reactions", "memory of 2 pools"]
