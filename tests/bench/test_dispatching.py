"""Handing out tasks costs work in proportion to tasks and workers; a step costs the same however many run.

Counts are exact. CPU time is asserted as growth only, with room for a machine that others use too: tenfold size may
cost 25-fold time, where quadratic work would cost a hundredfold.
"""

from functools import partial

import pytest
from ratios import compare

from iriscw.bench.dispatching import crowd, dispatch

LINEAR = 25
"""What ten times the size may cost."""

CONSTANT = 5
"""What a step may cost more at ten times the size, if it should cost the same."""


def test_few_workers_get_batches():
    """Ten times the tasks for the same workers are ten times the records, and hardly more decisions."""
    small, large = dispatch(10, 50), dispatch(10, 500)
    assert (small["records"], large["records"]) == (51, 501)
    assert large["decisions"] <= 1.5 * small["decisions"]
    assert large["bytes_journaled"] <= 10.5 * small["bytes_journaled"]


def test_many_workers_cost_two_decisions_each():
    """One task for each worker is a decision of its link and one of the fleet, and little else."""
    for workers in (50, 500):
        assert dispatch(workers, workers)["decisions"] <= 2.5 * workers


@pytest.mark.parametrize("large", [pytest.param((10, 500), id="tasks"), pytest.param((500, 500), id="workers")])
def test_a_step_does_not_grow(large):
    """A pass, a minute of idling and a replacement are as many decisions with ten times the tasks or workers."""
    small_figures, large_figures = dispatch(10, 50), dispatch(*large)
    for name in ("pass_decisions", "idle_decisions", "replace_decisions", "replace_records"):
        assert large_figures[name] == pytest.approx(small_figures[name], rel=0.02)


def test_a_replacement_is_ten_decisions():
    """The end of one attempt and the order of the next are at most ten decisions and three records."""
    figures = dispatch(20, 100)
    assert figures["replace_decisions"] <= 10
    assert figures["replace_records"] <= 3
    assert figures["pass_decisions"] == 1


def test_idling_costs_nothing():
    """In a quiet minute the control plane takes a few decisions, none of them per worker or task."""
    assert dispatch(50, 100)["idle_decisions"] <= 20


def test_streams_come_back_in_three_decisions_each():
    """A stream that breaks and returns is its end, its begin and one word to the job that has an attempt there."""
    figures = dispatch(100, 100)
    assert figures["resync_decisions"] <= 3.1 * 100 + 10


@pytest.mark.slow
@pytest.mark.parametrize("gangs", [True, False], ids=["gangs", "demands"])
def test_what_waits_does_not_multiply_with_the_workers(gangs):
    """An attempt's end costs no search of all workers for each shape that waits."""
    few, many = compare(
        partial(crowd, 200, 100, gangs=gangs), partial(crowd, 2_000, 100, gangs=gangs), {"end_cpu_ms": CONSTANT}
    )
    assert many["end_decisions"] == pytest.approx(few["end_decisions"], rel=0.05)
    assert many["placed"] == (0 if gangs else 100)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "large"), [((79, 500), (79, 5_000)), ((500, 500), (5_000, 5_000))], ids=["79-workers", "5000-workers"]
)
def test_full_size(small, large):
    """5,000 tasks cost about ten times what 500 cost; a step with 5,000 tasks costs what one with 500 does."""
    bounds = {"dispatch_cpu_s": LINEAR, "admission_cpu_s": LINEAR, "steady_cpu_ms": CONSTANT}
    before, after = compare(partial(dispatch, *small), partial(dispatch, *large), bounds)
    assert after["records"] == 5_001
    assert after["decisions"] <= 10.1 * before["decisions"]
    assert after["idle_decisions"] == before["idle_decisions"]
