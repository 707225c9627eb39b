"""The command line of the simulated world."""

import json

import pytest

from iriscw_sims import run
from iriscw_sims.world import World


def test_json_says_what_came_of_each_seed(capsys):
    """The output has seed, trace, simulated time and violations of each run, and the time all took."""
    assert run.main(["--seeds", "2", "--first", "1", "-o", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [each["seed"] for each in printed["runs"]] == [1, 2]
    assert [sorted(each) for each in printed["runs"]] == [["seed", "simulated_s", "trace", "violations"]] * 2
    assert printed["runs"][0]["violations"] == []
    assert printed["wall_s"] > 0


def test_a_broken_seed_ends_with_1_and_a_report(capsys, monkeypatch):
    """A violation is the exit code, and its report stands on standard error; the search ends if that was asked for."""
    monkeypatch.setattr(World, "heal", lambda self: self.violate("X1", "planted"))
    assert run.main(["--seeds", "3", "--until-broken"]) == 1
    printed = capsys.readouterr()
    assert printed.out.count("INV-X1: planted") == 1
    assert "repeat it: python -m iriscw_sims.run --seeds 1 --first 0" in printed.err


def test_faults_are_counted(capsys):
    """What fired is counted when that is asked for."""
    run.main(["--seeds", "3", "--faults"])
    assert "controller" in capsys.readouterr().err


def test_nonsense_is_refused(capsys):
    """An unknown option is a usage error."""
    with pytest.raises(SystemExit) as ended:
        run.main(["--no-such-option"])
    assert ended.value.code == 2
