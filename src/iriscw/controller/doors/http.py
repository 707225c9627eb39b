"""The HTTP side of the controller's port: /health for probes, /metrics for Prometheus.

Both answer from memory, without asking any actor, so they answer while the control loop is busy or its disk is full.
Figures that only actors have are sampled by the assembly and shown as they were last seen.

Each controller has a registry of its own: two in one process do not meet, and nothing of the process's default
registry is shown.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from iriscw.controller.admission import AdmissionStatistics
from iriscw.controller.doors.commands import CommandStatistics
from iriscw.controller.logs import LogStatistics
from iriscw.controller.result_model import ResultStatistics
from iriscw.controller.suspension_figures import BOUNDS_S, OUTCOMES, PhaseStatistics
from iriscw.fleet.model import FleetDescription
from iriscw.jobs.messages import SchedulerStatistics
from iriscw.journal.port import JournalStatistics
from iriscw.rpc.http1 import HttpResponse, Route
from iriscw.rpc.server import RpcServerStatistics
from iriscw.runtime.tree import TreeStatistics

if TYPE_CHECKING:
    from iriscw.cloud.kube.notices import NoticeStatistics

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@attrs.frozen
class ControllerStatistics:
    """A controller in figures. ``fleet``, ``scheduler`` and ``orders_open`` are None until they were first sampled."""

    runtime: TreeStatistics
    journal: JournalStatistics
    rpc: RpcServerStatistics
    logs: LogStatistics
    results: ResultStatistics
    workers_connected: int
    job_changes: Mapping[str, int]
    """Events by the state that they announced, since the start."""
    task_changes: Mapping[str, int]
    degraded: str
    """Why no new work is taken; empty if it is."""
    fleet: FleetDescription | None = None
    scheduler: SchedulerStatistics | None = None
    admission: AdmissionStatistics = attrs.field(factory=AdmissionStatistics)
    notices: NoticeStatistics | None = None
    """What was told on pools; None where the platform takes nothing of the kind."""
    strangers: int = 0
    """Messages of workers about attempts that they were not given, since the start: none of them was believed."""
    moves: Mapping[tuple[str, str], int] = attrs.field(factory=dict)
    """Orders of jobs to agents, by kind and outcome, since the start."""
    phases: PhaseStatistics = attrs.field(factory=PhaseStatistics)
    """Suspensions of attempts, since the start."""
    commands: CommandStatistics = attrs.field(factory=CommandStatistics)
    """Commands beside tasks."""
    agents_connected: int = 0
    agents_refused: int = 0
    """Hellos of node agents that were refused, since the start."""
    orders_open: int | None = None
    """Orders to node agents that have not ended."""
    token_reviews: Mapping[str, int] | None = None
    """Tokens of agents' pods by what became of them, since the start; None where there are none."""


class _Figures(Collector):
    """Turns statistics into Prometheus's families when it is scraped."""

    def __init__(self, read: Callable[[], ControllerStatistics]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        figures = self._read()
        for part, prefix in ((figures.runtime, "runtime"), (figures.journal, "journal"), (figures.rpc, "rpc")):
            yield from _gauges(f"iriscw_{prefix}", part)
        yield from _gauges("iriscw_rpc_unfinished", figures.rpc.unfinished)
        yield from _gauges("iriscw_logs", figures.logs)
        yield from _gauges("iriscw_results", figures.results)
        yield from _gauges("iriscw_admission", figures.admission)
        yield from _gauges("iriscw_commands", figures.commands)
        yield GaugeMetricFamily("iriscw_workers_connected", "Workers with a stream.", figures.workers_connected)
        yield GaugeMetricFamily("iriscw_agents_connected", "Node agents with a stream.", figures.agents_connected)
        text = "Hellos of node agents that were refused."
        yield CounterMetricFamily("iriscw_agents_refused", text, figures.agents_refused)
        if figures.orders_open is not None:
            text = "Orders to node agents that have not ended."
            yield GaugeMetricFamily("iriscw_orders_open", text, figures.orders_open)
        if figures.token_reviews is not None:
            yield from _reviews(figures.token_reviews)
        text = "Messages of workers about attempts that they were not given."
        yield CounterMetricFamily("iriscw_worker_strangers", text, figures.strangers)
        text = "Orders of jobs to node agents, by kind and outcome."
        moves = CounterMetricFamily("iriscw_attempt_moves", text, labels=["kind", "outcome"])
        for kind, outcome in sorted(figures.moves):
            moves.add_metric([kind, outcome], figures.moves[kind, outcome])
        yield moves
        yield from _phases(figures.phases)
        yield GaugeMetricFamily("iriscw_degraded", "1 while no new work is taken.", int(bool(figures.degraded)))
        for name, counts in (("job", figures.job_changes), ("task", figures.task_changes)):
            family = CounterMetricFamily(
                f"iriscw_{name}_changes", f"Changes of {name}s by new state.", labels=["state"]
            )
            for state in sorted(counts):
                family.add_metric([state], counts[state])
            yield family
        if figures.notices is not None:
            yield from _notices(figures.notices)
        if figures.fleet is not None:
            yield from _fleet(figures.fleet)
        if figures.scheduler is not None:
            yield from _gauges("iriscw_scheduler", figures.scheduler)


def _gauges(prefix: str, statistics: Any) -> Iterator[Metric]:
    for field in attrs.fields(type(statistics)):
        value = getattr(statistics, field.name)
        if isinstance(value, int | float):
            yield GaugeMetricFamily(f"{prefix}_{field.name}", f"{prefix} {field.name}".replace("_", " "), float(value))


def _notices(notices: NoticeStatistics) -> Iterator[Metric]:
    text = "What was to be told on node pools as Events of Kubernetes, by what became of it."
    family = CounterMetricFamily("iriscw_pool_notices", text, labels=["outcome"])
    for outcome in ("told", "dropped", "lost"):
        family.add_metric([outcome], getattr(notices, outcome))
    yield family
    yield GaugeMetricFamily("iriscw_pool_notices_waiting", "Events that wait to be written.", notices.waiting)


def _phases(phases: PhaseStatistics) -> Iterator[Metric]:
    text = "Steps of suspending and resuming attempts, by what came of them."
    steps = CounterMetricFamily("iriscw_suspensions", text, labels=["outcome"])
    for outcome in OUTCOMES:
        steps.add_metric([outcome], phases.outcomes.get(outcome, 0))
    yield steps
    text = "How long attempts were in a phase of being suspended and resumed, by what came of it."
    family = HistogramMetricFamily("iriscw_suspension_phase_seconds", text, labels=["phase", "outcome"])
    for (phase, outcome), lasted in sorted(phases.lasted.items()):
        counts = itertools.accumulate(lasted.counts)
        bounds = (*map(str, BOUNDS_S), "+Inf")
        family.add_metric([phase, outcome], list(zip(bounds, counts, strict=True)), lasted.sum_s)
    yield family
    text = "Checkpoints of suspensions that nobody needs and that could not be removed."
    yield CounterMetricFamily("iriscw_checkpoints_left", text, phases.left)


def _reviews(counts: Mapping[str, int]) -> Iterator[Metric]:
    text = "Tokens of node agents' pods that were shown, by what became of them."
    family = CounterMetricFamily("iriscw_agent_tokens", text, labels=["outcome"])
    for outcome, count in counts.items():
        family.add_metric([outcome], count)
    yield family


def _fleet(fleet: FleetDescription) -> Iterator[Metric]:
    slices = GaugeMetricFamily("iriscw_slices", "Slices by scale group and state.", labels=["group", "state"])
    counts: dict[tuple[str, str], int] = {}
    for row in fleet.slices:
        key = (row.group, row.state.value)
        counts[key] = counts.get(key, 0) + 1
    for key in sorted(counts):
        slices.add_metric(list(key), counts[key])
    yield slices
    wanted = GaugeMetricFamily("iriscw_slices_wanted", "Slices that demand was routed to.", labels=["group"])
    for group in fleet.groups:
        wanted.add_metric([group.group], group.wanted)
    yield wanted
    text = "Times that the policy of a scale group failed, and the default one decided."
    failures = CounterMetricFamily("iriscw_policy_failures", text, labels=["group"])
    for group in fleet.groups:
        failures.add_metric([group.group], group.policy_failures)
    yield failures


def routes(read: Callable[[], ControllerStatistics]) -> dict[str, Route]:
    """Return the HTTP side of one controller; ``read`` must not block."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(read))

    def health() -> HttpResponse:
        degraded = read().degraded
        body = {"status": "degraded" if degraded else "ok", "reason": degraded}
        return HttpResponse(200, "application/json", json.dumps(body).encode())

    def metrics() -> HttpResponse:
        return HttpResponse(200, METRICS_TYPE, generate_latest(registry))

    return {"/health": Route(health, public=True), "/metrics": Route(metrics, figures=True)}
