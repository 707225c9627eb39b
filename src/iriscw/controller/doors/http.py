"""The HTTP side of the controller's port: /health for probes, /metrics for Prometheus.

Both answer from memory, without asking any actor, so they answer while the control loop is busy or its disk is full.
Figures that only actors have are sampled by the assembly and shown as they were last seen. What is shown are the
figures of the runtime, the journal and the door, and those of each feature.

Each controller has a registry of its own: two in one process do not meet, and nothing of the process's default
registry is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from iriscw.controller.admission import AdmissionStatistics
from iriscw.controller.doors.actor_states import ActorStateStatistics
from iriscw.controller.doors.commands import CommandStatistics
from iriscw.controller.doors.figures import gauge, gauges
from iriscw.controller.doors.hosted import HostedStatistics
from iriscw.controller.stores.logs import LogStatistics
from iriscw.controller.stores.result_model import ResultStatistics
from iriscw.controller.suspension_figures import PhaseStatistics
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
    """A controller in figures, those of its features included.

    ``fleet``, ``scheduler`` and ``orders_open`` are None until they were first sampled.
    """

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
    hosted: HostedStatistics = attrs.field(factory=HostedStatistics)
    """Callers of hosted actors that ask where these are."""
    actor_states: ActorStateStatistics = attrs.field(factory=ActorStateStatistics)
    """Snapshots of hosted actors."""
    agents_connected: int = 0
    agents_refused: int = 0
    """Hellos of node agents that were refused, since the start."""
    orders_open: int | None = None
    """Orders to node agents that have not ended."""
    guests: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    """Of features that are not built in, by name."""
    token_reviews: Mapping[str, int] | None = None
    """Tokens of agents' pods by what became of them, since the start; None where there are none."""


class _Figures(Collector):
    """Collects families when they are asked for."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        yield from self._read()


def own_figures(
    runtime: TreeStatistics, journal: JournalStatistics, rpc: RpcServerStatistics, degraded: str
) -> Iterator[Metric]:
    """Yield the families of what every controller has."""
    yield from gauges("iriscw_runtime", runtime)
    yield from gauges("iriscw_journal", journal)
    yield from gauges("iriscw_rpc", rpc)
    yield from gauges("iriscw_rpc_unfinished", rpc.unfinished)
    yield gauge("iriscw_degraded", "1 while no new work is taken.", int(bool(degraded)))


def routes(degraded: Callable[[], str], figures: Callable[[], Iterable[Metric]]) -> dict[str, Route]:
    """Return the HTTP side of one controller.

    Args:
        degraded: says why no new work is taken; must not block.
        figures: gives the families of ``/metrics``; likewise.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(figures))

    def health() -> HttpResponse:
        why = degraded()
        body = {"status": "degraded" if why else "ok", "reason": why}
        return HttpResponse(200, "application/json", json.dumps(body).encode())

    def metrics() -> HttpResponse:
        return HttpResponse(200, METRICS_TYPE, generate_latest(registry))

    return {"/health": Route(health, public=True), "/metrics": Route(metrics, figures=True)}
