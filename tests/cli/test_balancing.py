"""``iriscw tiers --balance``: what it says, what it moves, and what it refuses."""

import contextlib
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))  # for real_trees
sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))  # for moves

from moves import Places
from real_trees import Command

from iriscw.agent.local import Local, Machine
from iriscw.checkpoint.drivers.carrier import Carrier
from iriscw.checkpoint.drivers.policies import NoTieringPolicy, tiering_policy
from iriscw.checkpoint.tiering.model import Proposal
from iriscw.checkpoint.tiering.policies import GreedyDual, LeastRecentlyUsed
from iriscw.cli import at_here
from raised import that

pytestmark = pytest.mark.usefixtures("claims_of_ours")

SIZE = 73_000
"""Of one checkpoint here, and a little more."""


class MovingMachine(Machine):
    """One that can only move."""

    def effects(self, report):
        """Return what a move needs."""
        return Carrier(self.tiers, report).effects()


@pytest.fixture
def places(tmp_path):
    """RAM with room for four, and four in it."""
    made = Places(tmp_path / "places", repository=None)
    for number in range(4):
        made.put("ram", f"ck-{number}")
    return made


@pytest.fixture
def command(tmp_path, places, monkeypatch):
    """The command line over these places."""
    local = Local(tmp_path / "state", MovingMachine(*[None] * 5, places.tiers(ram=4 * SIZE)))
    monkeypatch.setattr(at_here, "_opened", lambda given: contextlib.nullcontext(local))
    return Command(tmp_path)


def lying(places, tier):
    """Return what lies in a tier."""
    return sorted(each.artifact for each in places.tiers().folders[tier].listing())


def test_a_dry_run_moves_nothing(command, places):
    """It says what would be moved, and why."""
    code, out, err = command("tiers", "--balance", "--dry-run", "--policy", "lru", "--watermarks", "ram=50-90")
    assert (code, "ck-0" in out, "demote" in out, "planned" in out) == (0, True, True, True), err
    assert len(lying(places, "ram")) == 4
    code, out, _ = command("tiers", "--balance", "--dry-run", "--watermarks", "ram=50-100", "-o", "json")
    assert (code, json.loads(out)) == (0, [])


def test_it_moves_until_the_low_mark(command, places):
    """One after the other; a second time there is nothing to do."""
    words = ("tiers", "--balance", "--policy", "lru", "--watermarks", "ram=50-90", "-o", "json")
    code, out, err = command(*words)
    rows = json.loads(out)
    assert (code, [(row["checkpoint"], row["move"], row["outcome"]) for row in rows]) == (
        0,
        [("ck-0", "demote", "moved"), ("ck-1", "demote", "moved")],
    ), err
    assert (lying(places, "ram"), lying(places, "disk")) == (["ck-2", "ck-3"], ["ck-0", "ck-1"])
    assert json.loads(command(*words)[1]) == []
    assert places.debris() == []


class Balances:
    """A policy that fetches nowhere."""

    def admit(self, view, size_bytes):
        return ""


class Reckless(Balances):
    """Proposes that a last copy goes."""

    def balance(self, view):
        return [Proposal("ck-0", "ram", "ram"), Proposal("ck-1", "ram", "cellar")]


class Raises(Balances):
    """Fails."""

    def balance(self, view):
        raise LookupError("no idea")


class Restless(Balances):
    """Moves the same checkpoint down and up for ever."""

    asked = 0

    def balance(self, view):
        Restless.asked += 1
        assert Restless.asked < 10
        return [Proposal("ck-0", "ram", "disk"), Proposal("ck-0", "disk", "ram", keep=True)]


def test_it_ends_whatever_the_policy_is(command):
    """Each checkpoint is moved once."""
    code, out, err = command(
        "tiers", "--balance", "--policy", f"{__name__}:Restless", "--watermarks", "ram=9-100", "-o", "json"
    )
    assert (code, len(json.loads(out or "[]"))) == (0, 1), err


def test_what_is_refused_is_said(command, places):
    """By name; nothing is moved."""
    code, out, _ = command("tiers", "--balance", "--policy", f"{__name__}:Reckless", "-o", "json")
    assert code == 0
    assert [row["outcome"].split()[-1] for row in json.loads(out)] == ["pointless", "unknown"]
    assert len(lying(places, "ram")) == 4


def test_a_policy_that_fails(command):
    """It is an error of its own."""
    code, _, err = command("tiers", "--balance", "--policy", f"{__name__}:Raises")
    assert (code, "TieringPolicyFailed" in err) == (3, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--dry-run",),
        ("--watermarks", "ram=50-90"),
        ("--policy", "lru"),
        ("--balance", "--collect"),
        ("--balance", "--watermarks", "cellar=50-90"),
        ("--balance", "--watermarks", "ram=90-50"),
        ("--balance", "--watermarks", "ram=x"),
        ("--balance", "--policy", "best"),
        ("--balance", "--agent", "/tmp/none"),
    ],
)
def test_mistakes(command, words):
    """They are the caller's, and nothing is moved."""
    assert command("tiers", *words)[0] == 2


def not_made():
    """Return nothing that could be asked."""


@pytest.mark.parametrize("name", ["best", "nowhere:Policy", "os:nothing", "os:getcwd", f"{__name__}:Local"])
def test_what_is_no_policy(name):
    """It is named in the error."""
    with pytest.raises(NoTieringPolicy, check=that(names=name)):
        tiering_policy(name)


def test_policies_by_name():
    """A class is called, an object is taken."""
    assert isinstance(tiering_policy("lru"), LeastRecentlyUsed)
    assert isinstance(tiering_policy("greedy-dual"), GreedyDual)
    assert isinstance(tiering_policy("iriscw.checkpoint.tiering.policies:GreedyDual"), GreedyDual)
