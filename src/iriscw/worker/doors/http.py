"""The worker's own port: ``/health`` for probes and ``/metrics`` for Prometheus.

``/health`` is public and says 200 for as long as the process turns: whether the controller can be reached is no reason
to restart a worker that runs attempts. It never waits for the control loop.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from iriscw.dialling.messages import Connected, Disconnected
from iriscw.jobs.model import Observation
from iriscw.packages.cache import EnvironmentCounts
from iriscw.rpc.http1 import HttpResponse, Route
from iriscw.runtime.vocabulary import SECOND
from iriscw.worker.gpu_readings import GpuLook, GpuReading
from iriscw.worker.messages import AttemptChanged, LeaseExpired
from iriscw.worker.model import AttemptPhase

if TYPE_CHECKING:  # who has no pods loads nothing of Kubernetes
    from iriscw.worker.runtimes.pod_view import ViewStatistics


class WorkerFigures:
    """What the metrics count, kept by the events that the tree emits."""

    def __init__(self, worker_id: str, incarnation: str) -> None:
        self._names = {"worker_id": worker_id, "incarnation": incarnation}
        self._began = time.monotonic()
        self._phases: dict[str, AttemptPhase] = {}
        self.session_id = ""
        self.registry = CollectorRegistry()
        self._live = Gauge("iriscw_worker_attempts", "Attempts by phase.", ["phase"], registry=self.registry)
        self._ended = Counter(
            "iriscw_worker_attempts_ended", "Attempts that ended, by how.", ["ending"], registry=self.registry
        )
        self._ran = Histogram(
            "iriscw_worker_attempt_seconds",
            "How long the processes of attempts ran.",
            buckets=(1, 10, 60, 600, 3600, 14400, 86400),
            registry=self.registry,
        )
        self._logs = Counter("iriscw_worker_log_bytes", "Bytes that ended attempts wrote.", registry=self.registry)
        self._connected = Gauge("iriscw_worker_connected", "Whether a stream is up.", registry=self.registry)
        self._streams = Counter("iriscw_worker_streams", "Streams to the controller.", registry=self.registry)
        self._leases = Counter("iriscw_worker_leases_expired", "Leases that ran out.", registry=self.registry)

    def note(self, event: object) -> None:
        """Count an event."""
        match event:
            case AttemptChanged(phase=phase, observation=seen):
                self._note_attempt(phase, seen)
            case Connected(session_id=session_id):
                self.session_id = session_id
                self._connected.set(1)
                self._streams.inc()
            case Disconnected():
                self.session_id = ""
                self._connected.set(0)
            case LeaseExpired():
                self._leases.inc()

    def _note_attempt(self, phase: AttemptPhase, seen: Observation) -> None:
        before = self._phases.pop(seen.uid, None)
        if before is not None:
            self._live.labels(before.value).dec()
        if seen.live:
            self._phases[seen.uid] = phase
            self._live.labels(phase.value).inc()
            return
        if seen.ending is not None:
            self._ended.labels(seen.ending.value).inc()
        if seen.process_started_wall_ns:
            self._ran.observe(max(0, seen.process_ended_wall_ns - seen.process_started_wall_ns) / SECOND)
        self._logs.inc(seen.log_offset)

    def show_pods(self, statistics: Callable[[], ViewStatistics]) -> None:
        """Show figures of the pods that attempts have, as they are whenever somebody asks."""
        self.registry.register(_Pods(statistics))

    def show_packages(self, counts: EnvironmentCounts) -> None:
        """Show what came of requests for environments of packages, as it is whenever somebody asks."""
        self.registry.register(_Packages(counts))

    def show_gpus(self, look: Callable[[], GpuLook]) -> None:
        """Show what GPUs were doing when they were last looked at."""
        self.registry.register(_Gpus(look))

    def routes(self) -> Mapping[str, Route]:
        """Return the door's routes."""
        return {"/health": Route(self._health, public=True), "/metrics": Route(self._metrics, figures=True)}

    def _health(self) -> HttpResponse:
        body = {
            **self._names,
            "status": "ok",
            "connected": bool(self.session_id),
            "live_attempts": len(self._phases),
            "uptime_s": round(time.monotonic() - self._began, 3),
        }
        return HttpResponse(200, "application/json", json.dumps(body).encode() + b"\n")

    def _metrics(self) -> HttpResponse:
        return HttpResponse(200, CONTENT_TYPE_LATEST, generate_latest(self.registry))


_GPU_GAUGES: Mapping[str, tuple[str, Callable[[GpuReading], float | None]]] = {
    "utilization_ratio": (
        "The share of the last moments in which something ran on a GPU.",
        lambda read: None if read.utilization_percent is None else read.utilization_percent / 100,
    ),
    "memory_used_bytes": ("Memory of a GPU that is used.", lambda read: read.memory_used_bytes),
    "memory_total_bytes": ("Memory that a GPU has.", lambda read: read.memory_total_bytes),
    "temperature_celsius": ("How warm a GPU is.", lambda read: read.temperature_c),
    "power_watts": (
        "The power that a GPU draws.",
        lambda read: None if read.power_mw is None else read.power_mw / 1000,
    ),
}
"""By the end of its name: what a figure is, and how it is read."""


@attrs.frozen
class _Gpus(Collector):
    """What a worker knows of its GPUs. A figure that is not known now is not shown."""

    look: Callable[[], GpuLook]

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of the last look."""
        look = self.look()
        known = [(gpu, look.readings[gpu.uuid]) for gpu in look.gpus if gpu.uuid in look.readings]
        for name, (text, figure) in _GPU_GAUGES.items():
            family = GaugeMetricFamily(f"iriscw_worker_gpu_{name}", text, labels=["gpu", "index"])
            for gpu, read in known:
                value = figure(read)
                if value is not None:
                    family.add_metric([gpu.uuid, str(gpu.index)], value)
            yield family
        yield CounterMetricFamily(
            "iriscw_worker_gpu_look_failures", "Times that GPUs could not be looked at.", look.failures
        )


@attrs.frozen
class _Packages(Collector):
    """What came of requests for environments of packages."""

    counts: EnvironmentCounts

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of now."""
        text = "Environments of packages that were made, used again, removed, or could not be made."
        family = CounterMetricFamily("iriscw_worker_environments", text, labels=["outcome"])
        for outcome, count in attrs.asdict(self.counts).items():
            family.add_metric([outcome], count)
        yield family


@attrs.frozen
class _Pods(Collector):
    """What a worker knows of the pods of its attempts."""

    statistics: Callable[[], ViewStatistics]

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of now."""
        now = self.statistics()
        yield GaugeMetricFamily("iriscw_worker_task_pods", "Pods that attempts have or wait for.", now.held)
        yield GaugeMetricFamily("iriscw_worker_task_pods_stray", "Pods of no attempt, to be deleted.", now.strays)
        yield CounterMetricFamily("iriscw_worker_task_pods_deleted", "Stray pods that were deleted.", now.deleted)
        yield CounterMetricFamily(
            "iriscw_worker_task_pod_failures", "Failures of the API, that were waited out.", now.failures
        )
