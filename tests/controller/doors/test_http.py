"""/health is for everybody and answers at once; /metrics wants the token and shows one controller's figures."""

import json

from controller_world import World, get
from prometheus_client import CollectorRegistry, generate_latest

from iriscw.controller.features.fleet import fleet_figures
from iriscw.controller.features.nodes import phase_figures, review_figures
from iriscw.controller.suspension_figures import Phases
from iriscw.fleet.model import Availability, FleetDescription, GroupRow
from iriscw.jobs.keeping.messages import CheckpointMissed, GoesBack
from iriscw.jobs.model import Suspension
from iriscw.jobs.suspension.messages import CheckpointLeft, PhaseOver


async def test_health(world: World) -> None:
    """A probe without a token is told that all is well."""
    status, body = await get(world, "/health")
    assert (status, json.loads(body)) == (200, {"status": "ok", "reason": ""})


async def test_metrics(world: World) -> None:
    """A scraper with the token gets counters of jobs, runtime, journal and door."""
    await world.submit()
    assert (await get(world, "/metrics"))[0] == 401
    status, body = await get(world, "/metrics", world.controller.admin_token.reveal())
    text = body.decode()
    assert status == 200
    assert 'iriscw_job_changes_total{state="PENDING"} 1.0' in text
    names = ("iriscw_runtime_live", "iriscw_journal_durable", "iriscw_rpc_connections", "iriscw_logs_stored_bytes")
    for name in (*names, "iriscw_results_waiting", "iriscw_results_archive_stalled"):
        assert f"\n{name} " in text
    assert "\niriscw_worker_strangers_total 0.0\n" in text
    assert '\niriscw_suspensions_total{outcome="asked"} 0.0\n' in text
    assert "iriscw_agent_tokens" not in text, "tokens of pods are for a controller on Kubernetes"
    assert "python_info" not in text, "the process's own registry is not ours to show"


def test_a_policy_that_fails_is_counted() -> None:
    """By scale group, as a counter; one of routing by itself."""
    row = GroupRow("gpu", Availability.AVAILABLE, "", 1, 1, 1, 0, 4, 0, policy_failures=3)

    class Shown:
        def collect(self):
            return fleet_figures(FleetDescription(groups=(row,), slices=(), synced=True, routing_failures=2))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Shown())
    text = generate_latest(registry)
    assert b'\niriscw_policy_failures_total{group="gpu"} 3.0\n' in text
    assert b"\niriscw_routing_failures_total 2.0\n" in text


def test_tokens_of_agents_are_counted() -> None:
    """By what became of them, those that never happened included."""

    class Shown:
        def collect(self):
            return [review_figures({"accepted": 2, "refused": 0})]

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Shown())
    text = generate_latest(registry)
    assert b'\niriscw_agent_tokens_total{outcome="accepted"} 2.0\n' in text
    assert b'\niriscw_agent_tokens_total{outcome="refused"} 0.0\n' in text


def test_suspensions_are_measured() -> None:
    """What came of each phase is counted, and how long it took; what was never seen is 0."""
    phases = Phases()
    for event in (
        PhaseOver(Suspension.NONE, "asked", 0),
        PhaseOver(Suspension.SUSPENDING, "suspended", 400_000_000),
        PhaseOver(Suspension.SUSPENDING, "suspended", 500_000_000),
        PhaseOver(Suspension.SUSPENDED, "ended", 10**15),
        CheckpointLeft("job-a", "k", "ck-1", "n1", "NoAgent", 0),
        CheckpointMissed("job-a", 0, "u", "no room", False, 0),
        GoesBack("job-a", 0, "u", "ck-1", "killed", 0),
        "something else",
    ):
        phases.notice(event)

    class Shown:
        def collect(self):
            return phase_figures(phases.statistics())

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Shown())
    text = generate_latest(registry).decode()
    counts = {"asked": 1, "suspended": 2, "undone": 0, "resuming": 0, "resumed": 0, "ended": 1}
    for outcome, count in counts.items():
        assert f'\niriscw_suspensions_total{{outcome="{outcome}"}} {count}.0\n' in text
    name, labels = "iriscw_suspension_phase_seconds", 'outcome="suspended",phase="suspending"'
    assert f'\n{name}_bucket{{le="0.1",{labels}}} 0.0\n' in text
    assert f'\n{name}_bucket{{le="0.5",{labels}}} 2.0\n' in text
    assert f"\n{name}_count{{{labels}}} 2.0\n" in text
    assert f"\n{name}_sum{{{labels}}} 0.9\n" in text
    assert f'\n{name}_bucket{{le="86400.0",outcome="ended",phase="suspended"}} 0.0\n' in text
    assert f'\n{name}_bucket{{le="+Inf",outcome="ended",phase="suspended"}} 1.0\n' in text
    assert "\niriscw_checkpoints_left_total 1.0\n" in text
    for outcome, count in {"made": 0, "missed": 1, "gone_back": 1, "passed_over": 0}.items():
        assert f'\niriscw_task_checkpoints_total{{outcome="{outcome}"}} {count}.0\n' in text
