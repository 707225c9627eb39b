"""A simulated fleet costs the same per event at any size, and its checks less than the rest."""

import pytest
from ratios import compare

from iriscw.bench import simulation
from iriscw.bench.plane import MeasurementFailed
from iriscw.bench.simulation import EVENTS_OF_A_BUSY_HOUR, BusyFleet, checks, fleet, growth, least_of, memory
from raised import that

PER_EVENT = "cpu_us_per_world_event"


@pytest.mark.parametrize("times", [pytest.param(5, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.soak)])
def test_cost_per_event_does_not_grow(times):
    """Many times the slices for as many slice-hours: a world event costs at most twice as much, with checks."""
    small, large = compare(lambda: fleet(10, 120), lambda: fleet(10 * times, 120 / times), {PER_EVENT: 2.0})
    assert small["slice_hours"] == large["slice_hours"]
    assert large["world_events_per_slice_hour"] > EVENTS_OF_A_BUSY_HOUR


def test_growth_is_told_against_the_smallest():
    """A row for each fleet, in the order of their measurement; the others are compared with the first."""
    rows = growth([{"slices": size, "cpu_us_per_world_event": cost} for size, cost in ((10, 40.0), (1_000, 50.0))])
    assert rows == [
        {"slices": 10, "times_the_slices": 1.0, "times_the_cpu_per_world_event": 1.0},
        {"slices": 1_000, "times_the_slices": 100.0, "times_the_cpu_per_world_event": 1.25},
    ]


def test_counts_are_the_same_in_every_run():
    """What is not CPU time is a fact about the program."""
    one, other = fleet(4, 60), fleet(4, 60)
    facts = [name for name in one if "cpu" not in name]
    assert {name: one[name] for name in facts} == {name: other[name] for name in facts}
    assert one["decisions"] > one["slice_hours"]


def test_checks_cost_less_than_the_rest():
    """The checks take less than six tenths of the time."""
    compare(lambda: {"share": 1.0}, lambda: {"share": checks(10, 120)["checks_share"]}, {"share": 0.6})


def test_a_fleet_without_checks_does_the_same():
    """Checks change nothing: the same events, decisions and trace with and without them."""
    one, other = BusyFleet(5, 60), BusyFleet(5, 60, checked=False)
    one.run(60)
    other.run(60)
    assert one.world.simulation.trace_hash == other.world.simulation.trace_hash
    assert one.decisions == other.decisions
    assert (one.learning_cpu_s, other.learning_cpu_s > 0) == (0, True)


@pytest.mark.slow
def test_memory_per_slice():
    """A slice with its pool, node, pod, worker and attempts takes some memory, and less than a megabyte."""
    assert 10_000 < memory(3)["memory_bytes_per_slice"] < 1_000_000


def test_a_fleet_that_does_not_work_is_no_figure(monkeypatch):
    """A fleet that has not booted is not measured."""
    monkeypatch.setattr(simulation, "WARM_UP_S", 1.0)
    with pytest.raises(MeasurementFailed, check=that(comes_from="simulation.BusyFleet.__init__", names=("0", "3"))):
        BusyFleet(3, 1)


def test_a_broken_invariant_is_no_figure():
    """Nor is a world that is broken."""
    busy = BusyFleet(2, 10)
    busy.world.violations.append("INV-X1: planted")
    with pytest.raises(Exception, check=that(comes_from="world.World.check", names="INV-X1")):  # noqa: B017 - check says which
        busy.run(1)


def test_the_least_of_some_rounds():
    """The run with the least CPU time counts, whole."""
    runs = iter([{"slices": 1, "cpu_us": 3.0}, {"slices": 1, "cpu_us": 1.0}, {"slices": 1, "cpu_us": 2.0}])
    assert least_of(3, lambda: next(runs)) == {"slices": 1, "cpu_us": 1.0}
