"""Running seeds, and the sum over them."""

import json
import subprocess
import sys

import pytest

from iriscw_sims import run
from iriscw_sims.world import World


@pytest.fixture
def broken(monkeypatch):
    """Have every world break an invariant where its faults end."""
    monkeypatch.setattr(World, "heal", lambda self: self.violate("X1", "planted"))


def test_each_seed_runs():
    """In order, each with its own plan."""
    made = list(run.run_seeds((41, 34)))
    assert [each.seed for each in made] == [41, 34]
    assert made[1] == World(34).run()


@pytest.mark.parametrize(("until_broken", "runs"), [(True, 1), (False, 2)])
def test_the_search_may_end_with_the_first_that_breaks(broken, until_broken, runs):
    """The broken one is given, too."""
    made = list(run.run_seeds((41, 34), until_broken=until_broken))
    assert len(made) == runs
    assert made[-1].violations


def test_a_run_is_json():
    """Seed, trace, simulated time, steps and violations."""
    made = World(41).run()
    values = json.loads(json.dumps(run.as_json(made)))
    assert values == {
        "seed": 41,
        "trace": made.trace,
        "simulated_s": made.simulated_s,
        "steps": made.steps,
        "violations": [],
    }


def test_totals_add_up(broken):
    """Seeds, steps, time, faults, and which seeds broke; the pace is what a second had of them."""
    totals = run.Totals()
    made = list(run.run_seeds((41, 34)))
    for each in made:
        totals.add(each)
    assert (totals.seeds, totals.broken) == (2, [41, 34])
    assert totals.steps == sum(each.steps for each in made)
    assert sum(totals.fired.values()) == sum(count for each in made for _, count in each.fired)
    assert totals.pace(2.0).startswith("2 seeds in 2.0 s: ")
    assert totals.pace(2.0).endswith(f"; 1.0 seeds/s, {totals.steps / 2:,.0f} steps/s")
    assert "0 seeds" in run.Totals().pace(0.0)


@pytest.mark.slow
def test_the_module_is_the_command():
    """``python -m iriscw_sims.run`` is ``iriscw sim run``."""
    command = [sys.executable, "-m", "iriscw_sims.run", "--seeds", "1", "--first", "41", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [each["seed"] for each in json.loads(done.stdout)["runs"]] == [41]
    assert run.main(["--no-such-option"]) == 2
