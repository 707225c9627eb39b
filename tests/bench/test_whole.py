"""The end-to-end benchmark: a real controller does what is measured, and its figures are there."""

from collections import Counter
from types import SimpleNamespace

import anyio
import pytest

from iriscw.bench import whole
from raised import that

WORKERS, TASKS, JOBS = 3, 12, 5


@pytest.fixture(scope="module")
def figures():
    """Figures of a small cluster."""
    return whole.whole(WORKERS, TASKS, JOBS, beat_s=0.05)


def test_every_part_is_measured(figures):
    """Each part has CPU time of the loop and of the whole process, and its longest turn."""
    assert list(figures) == ["start", "dial", "dispatch", "running", "fresh_page", "page", "heartbeats"]
    for name, row in figures.items():
        assert min(row["loop_cpu_s"], row["process_cpu_s"], row["longest_turn_ms"]) > 0, name


def test_all_jobs_are_listed(figures):
    """The page has the jobs that wait, and the one that runs."""
    assert figures["fresh_page"]["rows"] == figures["page"]["rows"] == JOBS + 1


def test_heartbeats_are_measured_beside_their_floor(figures):
    """What a heartbeat costs at least was measured in the same run, on the same loop."""
    row = figures["heartbeats"]
    assert min(row["core_share"], row["echo_core_share"], row["grpclib_core_share"]) > 0


def test_a_goal_is_of_a_figure(figures):
    """The report holds goals against figures of the same group."""
    for name in whole.GOALS:
        group = name.partition("_")[0]
        assert group in figures or group == "longest", name


@pytest.mark.parametrize("in_time", [True, False])
def test_a_fleet_that_is_made_anew_is_not_measured(in_time):
    """Slices that are given up while their workers dial in fail the measurement, by name, whoever is in at the end."""

    class Outside:
        async def ask(self, **what):
            if not in_time:
                raise TimeoutError

    cloud = SimpleNamespace(calls=Counter({"pods.delete": 2}))
    with pytest.raises(whole.MeasurementFailed, check=that(comes_from="whole._dial", names="2")):
        anyio.run(whole._dial, Outside(), cloud)


def test_every_size_is_run(monkeypatch):
    """A row of each group for each cluster, from small to large."""
    monkeypatch.setattr(whole, "whole", lambda workers, tasks, jobs: {"dial": {"workers": workers, "tasks": tasks}})
    lines = []
    report = whole.run(lines.append)
    assert [row["workers"] for row in report["figures"]["dial"]] == [79, 1_000, 5_000]
    assert len(lines) == 3
    assert report["goals"] is whole.GOALS
