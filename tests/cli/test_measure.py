"""bench: its JSON and its exit codes."""

import json

import pytest

from iriscw.bench import control_plane, pools, repositories, runtime, simulation, whole

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
    assert f"left out, since not installed: {', '.join(peer for peer in runtime.FLOORS if peer != 'queue')}\n" in out


FIGURES = {
    "figures": {
        "per_job": [{"tasks": 1, "decisions": 27}, {"tasks": 10, "decisions": 151}],
        "dispatch": [{"workers": 79, "tasks": 5_000, "dispatch_cpu_s": 0.1234567, "decisions": 242}],
    },
    "targets": [{"workers": 79, "tasks": 5_000, "dispatch_cpu_s": 0.375}],
    "rounds": 3,
}


@pytest.fixture
def counted(monkeypatch):
    """Bench without measuring: the report is given, sizes and rounds are noted."""
    asked = []

    def run(progress, sizes, rounds):
        asked.append((sizes, rounds))
        progress("per_job 1")
        return FIGURES

    monkeypatch.setattr(control_plane, "run", run)
    return asked


def test_control_plane_gives_the_report(iriscw, counted):
    """The JSON is one object on standard output; progress goes elsewhere."""
    code, out, err = iriscw("bench", "control-plane", "-o", "json")
    assert (code, json.loads(out), err) == (0, FIGURES, "per_job 1\n")
    assert counted == [(control_plane.FULL, control_plane.ROUNDS)]


def test_control_plane_writes_tables(iriscw, counted):
    """A table for each group has a column for each size, and the target beside the figure that it is about."""
    code, out, _ = iriscw("bench", "control-plane", "--quick", "--rounds", "1")
    assert (code, counted) == (0, [(control_plane.QUICK, 1)])
    lines = [line.split() for line in out.splitlines()]
    assert ["tasks", "1", "10"] in lines
    assert ["decisions", "27", "151"] in lines
    assert ["dispatch_cpu_s", "0.1235", "(0.375)"] in lines
    assert out.splitlines()[-1].startswith("In brackets: targets")


@pytest.mark.slow
def test_control_plane_measures(iriscw, monkeypatch):
    """The whole way: real figures at the smallest sizes."""
    tiny = control_plane.PlaneSizes(
        tasks=(1,),
        commits_ms=(1,),
        submissions=1,
        dispatch=((2, 4),),
        crowd_workers=2,
        crowds=(2,),
        listed=(3,),
        consecutive=2,
        replicas=(4,),
    )
    monkeypatch.setattr(control_plane, "QUICK", tiny)
    code, out, _ = iriscw("bench", "control-plane", "--quick", "--rounds", "1", "-o", "json")
    report = json.loads(out)
    assert code == 0
    assert report["figures"]["per_job"][0]["records"] == 9
    assert all(len(rows) == 1 for rows in report["figures"].values())


SIMULATED = {
    "figures": {
        "fleet": [{"slices": 10, "world_events": 1234, "cpu_us_per_world_event": 45.678}, {"slices": 100}],
        "checks": [{"slices": 10, "checks_share": 0.25}],
    },
    "goals": {"checks_share": 0.5},
    "rounds": 3,
}
SIMULATED["figures"]["fleet"][1] |= {"world_events": 1200, "cpu_us_per_world_event": 50.0}


@pytest.fixture
def simulated(monkeypatch):
    """Bench without measuring: the report is given, sizes and rounds are noted."""
    asked = []

    def run(progress, sizes, rounds):
        asked.append((sizes, rounds))
        progress("fleet of 10")
        return SIMULATED

    monkeypatch.setattr(simulation, "run", run)
    return asked


def test_simulation_gives_the_report(iriscw, simulated):
    """The JSON is one object on standard output; progress goes elsewhere."""
    code, out, err = iriscw("bench", "simulation", "-o", "json")
    assert (code, json.loads(out), err) == (0, SIMULATED, "fleet of 10\n")
    assert simulated == [(simulation.FULL, simulation.ROUNDS)]


def test_simulation_writes_tables(iriscw, simulated):
    """A table for each group has a column for each size; the goals stand below."""
    code, out, _ = iriscw("bench", "simulation", "--quick", "--rounds", "1")
    assert (code, simulated) == (0, [(simulation.QUICK, 1)])
    lines = [line.split() for line in out.splitlines()]
    assert ["slices", "10", "100"] in lines
    assert ["cpu_us_per_world_event", "45.68", "50"] in lines
    assert out.splitlines()[-1] == "Goals: checks_share 0.5."


@pytest.mark.slow
def test_simulation_measures(iriscw, monkeypatch):
    """The whole way: real figures at the smallest sizes."""
    tiny = simulation.SimulationSizes(fleets=((2, 5), (3, 5)), checks=(2, 20), memory=1)
    monkeypatch.setattr(simulation, "QUICK", tiny)
    code, out, _ = iriscw("bench", "simulation", "--quick", "--rounds", "1", "-o", "json")
    report = json.loads(out)
    assert code == 0
    assert [row["slices"] for row in report["figures"]["fleet"]] == [2, 3]
    assert report["figures"]["growth"][1]["times_the_slices"] == 1.5
    assert report["figures"]["memory"][0]["memory_bytes_per_slice"] > 0


def test_pools_gives_the_report(iriscw, monkeypatch):
    """Full or quick, as JSON or as tables with the goals below; progress goes elsewhere."""
    report = {"figures": {"life": [{"pools": 50, "requests_per_pool_life": 11.4}]}, "goals": pools.GOALS}
    asked = []

    def run(progress, sizes):
        asked.append(sizes)
        progress("50 pools")
        return report

    monkeypatch.setattr(pools, "run", run)
    code, out, err = iriscw("bench", "pools", "-o", "json")
    assert (code, json.loads(out), err) == (0, report, "50 pools\n")
    code, out, _ = iriscw("bench", "pools", "--quick")
    assert (code, asked) == (0, [pools.FULL, pools.QUICK])
    assert ["requests_per_pool_life", "11.4"] in [line.split() for line in out.splitlines()]
    assert out.splitlines()[-1] == "Goals: requests_per_pool_life 12."


def test_end_to_end_gives_the_report(iriscw, monkeypatch):
    """Full or quick, as JSON or as tables with the goals below; progress goes elsewhere."""
    report = {"figures": {"page": [{"workers": 79, "page_loop_cpu_ms": 9.5}]}, "goals": {"page_loop_cpu_ms": 10}}
    asked = []

    def run(progress, sizes):
        asked.append(sizes)
        progress("79 workers")
        return report

    monkeypatch.setattr(whole, "run", run)
    code, out, err = iriscw("bench", "end-to-end", "-o", "json")
    assert (code, json.loads(out), err) == (0, report, "79 workers\n")
    code, out, _ = iriscw("bench", "end-to-end", "--quick")
    assert (code, asked) == (0, [whole.FULL, whole.QUICK])
    assert ["page_loop_cpu_ms", "9.5"] in [line.split() for line in out.splitlines()]
    assert out.splitlines()[-1] == "Goals: page_loop_cpu_ms 10."


def test_repository_gives_the_report(iriscw, monkeypatch):
    """Full or quick, as JSON or as tables with the goals below; progress goes elsewhere."""
    report = {"figures": {"dense memory": [{"mib": 512, "up_s": 1.5}]}, "goals": {"second_share": 0.05}}
    asked = []

    def run(progress, mib, rounds):
        asked.append((mib, rounds))
        progress("round 1")
        return report

    monkeypatch.setattr(repositories, "run", run)
    code, out, err = iriscw("bench", "repository", "-o", "json")
    assert (code, json.loads(out), err) == (0, report, "round 1\n")
    code, out, _ = iriscw("bench", "repository", "--quick", "--rounds", "1")
    assert (code, asked) == (0, [(repositories.FULL_MIB, repositories.ROUNDS), (repositories.QUICK_MIB, 1)])
    assert ["up_s", "1.5"] in [line.split() for line in out.splitlines()]
    assert out.splitlines()[-1] == "Goals: second_share 0.05."
