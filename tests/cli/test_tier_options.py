"""Options about tiers are made from those that there are."""

import click

from iriscw.checkpoint.drivers.loading import tier_names
from iriscw.cli.at_here import _opened
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
    assert ("state_dir", "repository", *(f"{name}_budget" for name in tier_names())) == PLACE_OPTIONS


async def test_a_budget_reaches_its_tier(tmp_path):
    """Of the commands that freeze without an agent."""
    given = {"state_dir": tmp_path, "repository": "", **dict.fromkeys(PLACE_OPTIONS[2:], 5 << 20)}
    async with _opened(given) as local:
        tiers = local.machine.tiers.folders
    assert {each.budget_bytes for each in tiers.values()} == {5 << 20}


async def test_a_repository_is_named_by_an_option_or_by_a_variable(tmp_path, monkeypatch):
    """The option wins; without either there is none."""
    given = {"state_dir": tmp_path, "repository": "", **dict.fromkeys(PLACE_OPTIONS[2:])}
    async with _opened(given) as local:
        assert local.machine.tiers.repository is None
    monkeypatch.setenv("IRISCW_REPOSITORY", f"file://{tmp_path}/there")
    for url, place in (("", "there"), (f"file://{tmp_path}/other", "other")):
        async with _opened({**given, "repository": url}) as local:
            assert local.machine.tiers.repository.place == f"file://{tmp_path}/{place}"
