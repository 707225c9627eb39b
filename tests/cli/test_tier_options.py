"""Options about tiers are made from those that there are."""

import click

from iriscw.checkpoint.drivers.loading import tier_names
from iriscw.cli.at_here import _local
from iriscw.cli.tier_options import PLACE_OPTIONS, budgets_of, place_options


@click.command("x")
@place_options
def taking(**given):
    """Take options."""


def _parsed(*arguments):
    """Return what a command with these options is given."""
    with taking.make_context("x", [*arguments]) as context:
        return context.params


def test_each_tier_has_a_budget():
    """By an option with its name; one that nobody says is the tier's own."""
    assert budgets_of(_parsed()) == dict.fromkeys(tier_names(), 0)
    for name in tier_names():
        found = budgets_of(_parsed(f"--{name}-budget", "7MiB"))
        assert found == {**dict.fromkeys(tier_names(), 0), name: 7 << 20}
    assert PLACE_OPTIONS[1:] == tuple(f"{name}_budget" for name in tier_names())


def test_a_budget_reaches_its_tier(tmp_path):
    """Of the commands that freeze without an agent."""
    given = {"state_dir": tmp_path, **dict.fromkeys(PLACE_OPTIONS[1:], 5 << 20)}
    tiers = _local(given).machine.tiers.folders
    assert {each.budget_bytes for each in tiers.values()} == {5 << 20}
