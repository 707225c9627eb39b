"""The actors of jobs, bound together: behaviors, child specs, effects and sessions.

::

    /jobs                      registry, durable; supervises
    ├─ scheduler               plain state; asks for everything when it starts
    ├─ links                   plain state
    │  └─ <worker_id>          entity: one incarnation of one worker, with the session to it
    └─ <job_id>                entity, durable: one job with its tasks and attempts

One job or worker that fails again and again is quarantined; the rest goes on. Mailboxes are sized so that
none fills without a fault; a full one is told again after a second.
"""

from __future__ import annotations

from typing import Any

import attrs

from iriscw.jobs import registry
from iriscw.jobs.errors import SuspensionRefused
from iriscw.jobs.job import ledger
from iriscw.jobs.job.decisions import JobDecisions
from iriscw.jobs.job.ledger import JobLedger
from iriscw.jobs.links.link import STOP_GRACE, Link, LinkDecisions
from iriscw.jobs.links.links import Links, LinksDecisions
from iriscw.jobs.model import AwaitLogs, WorkerStream
from iriscw.jobs.ports import Freezer, Logs, Streams
from iriscw.jobs.registry import JobRegistry, JobRegistryDecisions, RegisteredJob, RegistryLimits
from iriscw.jobs.scheduling.scheduler import SchedulerDecisions
from iriscw.jobs.scheduling.state import Scheduler
from iriscw.jobs.settings import DEFAULT_SETTINGS, JobSettings
from iriscw.jobs.suspension.effects import (
    CheckpointStored,
    DropCheckpoint,
    FreezeAttempt,
    FrozenAttempt,
    StoreCheckpoint,
    ThawAttempt,
    ThawedAttempt,
)
from iriscw.jobs.suspension.messages import FollowRepositories
from iriscw.runtime.behavior import DEFAULT_SNAPSHOT_EVERY, Behavior, ChildSpec, Restart
from iriscw.runtime.vocabulary import ROOT, ActorPath

MAX_WORKERS = 16_384
"""Workers that one controller is sized for: each may have one message waiting at a job or at the scheduler."""

JOB_CAPACITY = MAX_WORKERS
"""A job's mailbox: an observation from each worker at once."""

SCHEDULER_CAPACITY = 65_536
"""The scheduler's mailbox: of each worker readiness, link and loss, and of each job a change, at once."""

REGISTRY_CAPACITY = 16_384
"""``/jobs``: an end of each job at once, and submissions."""

RECORDS_PER_TASK = 5
"""A job's snapshot has an entry per task, and is made in one decision. It is due after so many records per task: one
more than a task that runs well has, so that only jobs with many retries make any, and that writing stays linear. Every
10,000 records, a job of 100,000 tasks would make 40 snapshots of 45 MB; reading 5 records a task takes 50 us of CPU."""


@attrs.frozen
class JobsConfig:
    """What jobs may be tuned by.

    Args:
        limits: how much is taken.
        settings: of jobs: lease grace and the bound on waiting for logs.
        stop_grace_ns: between asking an attempt to end and killing it.
        fleet: where the fleet stands in the tree.
        preempts: whether tasks give way to tasks of higher bands.
    """

    limits: RegistryLimits = attrs.field(factory=RegistryLimits)
    settings: JobSettings = DEFAULT_SETTINGS
    stop_grace_ns: int = STOP_GRACE
    fleet: ActorPath = ROOT / "fleet"
    preempts: bool = True


class NoFreezer:
    """For controllers without agents: nothing can be frozen."""

    async def freeze(self, effect: FreezeAttempt) -> FrozenAttempt:
        """Refuse."""
        raise SuspensionRefused("there is nobody here who could freeze an attempt")

    async def thaw(self, effect: ThawAttempt) -> ThawedAttempt:
        """Refuse."""
        raise SuspensionRefused("there is nobody here who could thaw an attempt")

    async def store(self, effect: StoreCheckpoint) -> CheckpointStored:
        """Refuse."""
        raise SuspensionRefused("there is nobody here who could move a checkpoint")

    async def follow(self, session: FollowRepositories, port: Any) -> None:
        """Tell of no machine, for as long as somebody listens."""
        async for _ in port:
            pass

    async def drop(self, effect: DropCheckpoint) -> None:
        """Refuse."""
        raise SuspensionRefused("there is nobody here who could remove a checkpoint")


def job_behavior(
    entry: RegisteredJob, logs: Logs, settings: JobSettings = DEFAULT_SETTINGS, freezer: Freezer | None = None
) -> Behavior:
    """Return the behavior of ``/jobs/<job_id>``, from what the registry recorded of it."""
    decisions = JobDecisions(settings)
    freezer = NoFreezer() if freezer is None else freezer
    job_id, order, spec, submitted = entry.job_id, entry.order, entry.spec, entry.submitted_wall_ns
    return Behavior(
        initial=lambda: JobLedger(job_id, order, spec, submitted, namespace=entry.root),
        on=decisions.rules(),
        resume=decisions.resume,
        evolve=ledger.evolve,
        compact=ledger.compact,
        snapshot_every=max(DEFAULT_SNAPSHOT_EVERY, RECORDS_PER_TASK * spec.replicas),
        effects={
            AwaitLogs: logs.await_logs,
            FreezeAttempt: freezer.freeze,
            ThawAttempt: freezer.thaw,
            StoreCheckpoint: freezer.store,
            DropCheckpoint: freezer.drop,
        },
        name="job",
    )


def link_behavior(worker_id: str, incarnation: str, streams: Streams, stop_grace_ns: int) -> Behavior:
    """Return the behavior of ``/jobs/links/<worker_id>``."""
    decisions = LinkDecisions(stop_grace_ns)
    return Behavior(
        initial=lambda: Link(worker_id, incarnation),
        on=decisions.rules(),
        resume=decisions.resume,
        sessions={WorkerStream: streams.serve},
        name="link",
    )


def links_behavior(streams: Streams, stop_grace_ns: int) -> Behavior:
    """Return the behavior of ``/jobs/links``."""

    def child(worker_id: str, incarnation: str) -> ChildSpec:
        behavior = link_behavior(worker_id, incarnation, streams, stop_grace_ns)
        return ChildSpec(worker_id, behavior, Restart.TRANSIENT, entity=True)

    decisions = LinksDecisions(child)
    return Behavior(initial=Links, on=decisions.rules(), resume=decisions.resume, name="links")


def scheduler_behavior(fleet: ActorPath, freezer: Freezer, *, preempts: bool = True) -> Behavior:
    """Return the behavior of ``/jobs/scheduler``."""
    decisions = SchedulerDecisions(fleet, preempts=preempts)
    return Behavior(
        initial=Scheduler,
        on=decisions.rules(),
        resume=decisions.resume,
        sessions={FollowRepositories: freezer.follow},
        name="scheduler",
    )


def jobs_behavior(
    streams: Streams, logs: Logs, config: JobsConfig | None = None, freezer: Freezer | None = None
) -> Behavior:
    """Return the behavior of ``/jobs``, with all below it.

    Args:
        streams: the doors' side of worker streams.
        logs: the log store.
        config: limits and times.
        freezer: freezes and thaws attempts; None: nobody does.
    """
    config = JobsConfig() if config is None else config
    settings = config.settings

    def child(entry: RegisteredJob) -> ChildSpec:
        behavior = job_behavior(entry, logs, settings, freezer)
        return ChildSpec(entry.job_id, behavior, Restart.TRANSIENT, entity=True, capacity=JOB_CAPACITY)

    decisions = JobRegistryDecisions(child, config.limits)
    return Behavior(
        initial=JobRegistry,
        on=decisions.rules(),
        resume=decisions.resume,
        evolve=registry.evolve,
        compact=registry.compact,
        children=(
            ChildSpec(
                "scheduler",
                scheduler_behavior(config.fleet, freezer or NoFreezer(), preempts=config.preempts),
                capacity=SCHEDULER_CAPACITY,
            ),
            ChildSpec("links", links_behavior(streams, config.stop_grace_ns), capacity=MAX_WORKERS),
        ),
        name="jobs",
    )


def jobs_child(
    streams: Streams, logs: Logs, config: JobsConfig | None = None, freezer: Freezer | None = None
) -> ChildSpec:
    """Return the child spec of ``/jobs``."""
    return ChildSpec("jobs", jobs_behavior(streams, logs, config, freezer), capacity=REGISTRY_CAPACITY)
