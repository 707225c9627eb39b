"""Options about tiers are made from those that there are."""

from pathlib import Path

import click
import pytest

from iriscw.checkpoint.drivers.loading import tier_names
from iriscw.checkpoint.drivers.repository.key_files import KeyFiles
from iriscw.cli.at_here import _opened
from iriscw.cli.tier_options import PLACE_OPTIONS, budgets_of, keys_of, place_options


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
    assert set(PLACE_OPTIONS) == set(_parsed())


async def test_a_budget_reaches_its_tier(tmp_path):
    """Of the commands that freeze without an agent."""
    given = {**_parsed(), "state_dir": tmp_path, **{f"{name}_budget": 5 << 20 for name in tier_names()}}
    async with _opened(given) as local:
        tiers = local.machine.tiers.folders
    assert {each.budget_bytes for each in tiers.values()} == {5 << 20}


async def test_a_repository_is_named_by_an_option_or_by_a_variable(tmp_path, monkeypatch):
    """The option wins; without either there is none."""
    given = {**_parsed(), "state_dir": tmp_path}
    async with _opened(given) as local:
        assert local.machine.tiers.repository is None
    monkeypatch.setenv("IRISCW_REPOSITORY", f"file://{tmp_path}/there")
    for url, place in (("", "there"), (f"file://{tmp_path}/other", "other")):
        async with _opened({**given, "repository": url}) as local:
            assert local.machine.tiers.repository.place == f"file://{tmp_path}/{place}"


def test_keys_are_named_by_options_or_by_variables(monkeypatch):
    """As files, in both; an option wins."""
    assert keys_of(_parsed()) == KeyFiles()
    for variable, value in {
        "IRISCW_SIGN_WITH": "/keys/mine",
        "IRISCW_TRUST": "/keys/ours:/keys/theirs",
        "IRISCW_ENCRYPT_WITH": "/keys/new",
        "IRISCW_DECRYPT_WITH": "/keys/old",
        "IRISCW_ACCEPT_UNPROTECTED": "1",
    }.items():
        monkeypatch.setenv(variable, value)
    ours, theirs = Path("/keys/ours"), Path("/keys/theirs")
    new, old = Path("/keys/new"), (Path("/keys/old"),)
    assert keys_of(_parsed()) == KeyFiles(Path("/keys/mine"), (ours, theirs), new, old, unprotected_too=True)
    monkeypatch.setenv("IRISCW_REPOSITORY", "file:///kept")
    given = _parsed("--sign-with", "/other", "--trust", "/a", "--trust", "/b", "--encrypt-with", "/c")
    assert keys_of(given) == KeyFiles(Path("/other"), (Path("/a"), Path("/b")), Path("/c"), old, unprotected_too=True)
    monkeypatch.setenv("IRISCW_SIGN_WITH", "/keys/mine:/keys/other")
    with pytest.raises(click.UsageError):
        keys_of(_parsed())
    monkeypatch.setenv("IRISCW_SIGN_WITH", "/keys/mine")
    monkeypatch.delenv("IRISCW_REPOSITORY")
    assert keys_of(_parsed()).sign_with == Path("/keys/mine")
    for option in (("--trust", "/a"), ("--accept-unprotected",)):  # of nothing
        with pytest.raises(click.UsageError):
            keys_of(_parsed(*option))
