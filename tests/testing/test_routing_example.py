"""A routing policy of a user's own, as the documentation shows it."""

import runpy
from pathlib import Path

import pytest

from iriscw.testing.fleet import assert_holds

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "examples" / "routing_policy.py"))


def test_the_example_spares_the_dear_region(capsys):
    """What the cheap region can do within a minute never goes to the dear one; by priority it does."""
    EXAMPLE["main"]()
    _, by_priority, cheap_first = capsys.readouterr().out.splitlines()
    dear = [int(line.split(" s ")[1]) for line in (by_priority, cheap_first)]
    assert dear[0] > dear[1] == 0


def test_what_waits_for_longer_goes_to_the_dear_one():
    """A policy without patience is the built-in order, and each group has its costs."""
    plan = EXAMPLE["BURST"]
    at_once = assert_holds(plan, routing=lambda view: sorted(view.groups, key=EXAMPLE["price"]))
    assert at_once.slice_seconds_by_group == assert_holds(plan).slice_seconds_by_group
    assert sum(at_once.slice_seconds_by_group.values()) == pytest.approx(at_once.slice_seconds)


@pytest.mark.slow
def test_the_example_is_tested_with_drawn_jobs():
    """As a user runs it."""
    EXAMPLE["test_nobody_waits_for_long"]()
