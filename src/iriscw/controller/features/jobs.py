"""The feature ``jobs``: jobs, the streams of workers, what clients ask of them, and what forgotten jobs leave."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from iriscw.cloud.model import CloudError
from iriscw.config.model import ClusterConfig
from iriscw.controller import settings
from iriscw.controller.doors.clients import ClientDoor
from iriscw.controller.doors.figures import COUNTER, counter, gauge, gauges, labelled
from iriscw.controller.doors.workers import WelcomeSettings, WorkerDoor
from iriscw.controller.feature import Background, Feature, FeatureContext, Parts
from iriscw.controller.granted_attempts import HeldAttempts
from iriscw.controller.platforms.local_leftovers import Lives, workers_of
from iriscw.controller.upkeep import JobSweep
from iriscw.controller.waiting import WaitingReasons
from iriscw.fleet.model import FleetConfig
from iriscw.jobs.actor import jobs_child
from iriscw.jobs.messages import SchedulerFigures, SchedulerStatistics
from iriscw.jobs.ports import Freezer
from iriscw.jobs.registry import RegistryLimits

if TYPE_CHECKING:
    from iriscw.controller.doors.figures import Family
    from iriscw.rpc.server import Service
    from iriscw.runtime import ChildSpec

log = logging.getLogger(__name__)


class JobsParts(Parts):
    """See the module."""

    def __init__(self, context: FeatureContext, limits: RegistryLimits, confirm: Callable[[], Awaitable[None]]) -> None:
        config, access, hub, stores = context.config, context.access, context.hub, context.stores
        self._context = context
        self._limits = limits
        self._held = HeldAttempts(context.state_dir / "held")
        self.workers = WorkerDoor(
            _worker_settings(config, context.fleet),
            stores,
            held=self._held,
            tokens=context.tokens,
            actors=access.actors,
            switchboard=context.workers,
            progress=hub.progress,
        )
        self._reasons = WaitingReasons(access, hub)
        self._clients = ClientDoor(
            access,
            stores,
            hub=hub,
            reasons=self._reasons,
            images=settings.has_task_images(config),
            packages=settings.has_task_processes(config),
            pythons=settings.pythons(config, context.fleet, started_here=context.platform.leftovers is not None),
            switchboard=context.workers,
            tokens=context.tokens,
        )
        self.sweep = JobSweep(access, stores.logs, stores.results, stores.states, limits.finished, confirm)
        cache = context.platform.leftovers
        self._lives = None if cache is None else Lives(cache, context.platform.drivers, access, stores.logs)
        self._scheduler: SchedulerStatistics | None = None

    async def prepare(self) -> None:
        """Remove the records of workers whose pods are gone, before anything runs that could need them."""
        try:
            pods = await self._context.platform.drivers.pods.list({})
        except CloudError as error:
            log.warning("records of earlier workers stay: %s: %s", type(error).__name__, error)
            return
        await self._held.retain(workers_of(pods))

    def children(self) -> tuple[ChildSpec, ...]:
        """Return ``/jobs``."""
        config = settings.jobs_config(self._context.config, self._limits)
        freezer: Freezer = self._context.port(Freezer)  # type: ignore[type-abstract]
        return (jobs_child(self.workers, self._context.stores.logs, config, freezer),)

    def services(self) -> tuple[Service, ...]:
        """Return the clients' door, and the workers'."""
        return (self._clients, self.workers)

    def background(self) -> tuple[Background, ...]:
        """Look at what watched jobs wait for, and at what workers left."""
        return (self._reasons.run,) if self._lives is None else (self._reasons.run, self._lives.run)

    async def sample(self) -> None:
        """Ask for the scheduler's figures, and drop what belongs to jobs that were forgotten."""
        self._scheduler = await self._context.access.ask("/jobs/scheduler", SchedulerFigures())
        await self.sweep.round()

    def notice(self, event: Any) -> None:
        """Know which jobs have ended."""
        self.sweep.notice(event)
        if self._lives is not None:
            self._lives.notice(event)

    def statistics(self) -> Mapping[str, Any]:
        """Return figures for programs."""
        return {
            "logs": self._context.stores.logs.statistics(),
            "results": self._context.stores.results.statistics(),
            "workers_connected": len(self._context.workers),
            "job_changes": dict(self._context.hub.job_changes),
            "task_changes": dict(self._context.hub.task_changes),
            "scheduler": self._scheduler,
            "admission": self.workers.gate.statistics(),
            "strangers": self.workers.intake.strangers,
        }

    def figures(self) -> Iterator[Family]:
        """Yield logs, results, workers and changes."""
        hub, stores = self._context.hub, self._context.stores
        yield from gauges("iriscw_logs", stores.logs.statistics())
        yield from gauges("iriscw_results", stores.results.statistics())
        yield from gauges("iriscw_admission", self.workers.gate.statistics())
        yield gauge("iriscw_workers_connected", "Workers with a stream.", len(self._context.workers))
        text = "Messages of workers about attempts that they were not given."
        yield counter("iriscw_worker_strangers", text, self.workers.intake.strangers)
        for name, counts in (("job", hub.job_changes), ("task", hub.task_changes)):
            changes = [((state,), counts[state]) for state in sorted(counts)]
            text = f"Changes of {name}s by new state."
            yield labelled(COUNTER, f"iriscw_{name}_changes", text, ("state",), changes)
        if self._scheduler is not None:
            yield from gauges("iriscw_scheduler", self._scheduler)


def _worker_settings(config: ClusterConfig, fleet: FleetConfig) -> WelcomeSettings:
    return WelcomeSettings(
        cluster=config.name,
        groups={group.name: group for group in fleet.groups},
        task_environment=settings.task_environment(config),
        heartbeats=settings.heartbeats(config),
        lease_ms=settings.lease_ms(config),
    )


def jobs_feature(limits: RegistryLimits, confirm: Callable[[], Awaitable[None]]) -> Feature:
    """Return the feature.

    Args:
        limits: how much is taken and kept.
        confirm: see :class:`~iriscw.controller.upkeep.JobSweep`.
    """
    return Feature(name="jobs", open=lambda context: JobsParts(context, limits, confirm))
