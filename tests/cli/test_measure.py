"""bench and sim: their JSON and their exit codes."""

import json

import pytest

from iriscw.bench import runtime

REPORT = {"ratios": {"queue": {"tell": 0.9, "ask": 3.0}}, "bytes_per_idle_actor": 300}


@pytest.fixture
def measured(monkeypatch):
    """Bench without measuring: the report is given, the rounds are noted."""
    rounds = []

    def run(count, progress):
        rounds.append(count)
        progress("round 1")
        return REPORT

    monkeypatch.setattr(runtime, "run", run)
    return rounds


def test_bench_gives_the_report(iriscw, measured):
    """The JSON is one object on standard output; progress goes elsewhere. A figure below its floor is code 1."""
    code, out, err = iriscw("bench", "runtime", "-o", "json")
    assert (code, json.loads(out), measured) == (1, REPORT, [runtime.ROUNDS])
    assert "tell is 0.9x of queue, below 1x" in err
    assert "round 1" in err


def test_bench_takes_a_share_of_the_floors(iriscw, measured):
    """A noisy machine may ask for less."""
    code, out, _ = iriscw("bench", "runtime", "--rounds", "1", "--floor-share", "0.7")
    assert (code, measured) == (0, [1])
    assert "queue" in out
    assert "300 bytes per idle actor" in out


def test_sim_runs_seeds(iriscw):
    """Each seed gives one run, and the same seed the same trace."""
    code, out, _ = iriscw("sim", "run", "--seeds", "1", "--first", "3", "-o", "json")
    report = json.loads(out)
    assert code == 0
    [run] = report["runs"]
    assert (run["seed"], run["violations"]) == (3, [])
    assert {*run} == {"seed", "trace", "simulated_s", "violations"}
    again = json.loads(iriscw("sim", "run", "--seeds", "1", "--first", "3", "-o", "json")[1])
    assert again["runs"] == report["runs"]
