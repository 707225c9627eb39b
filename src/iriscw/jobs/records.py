"""The facts that jobs promise to keep.

Two kinds of actor write them. The registry ``/jobs`` writes what was accepted, with the whole specification,
and how it ended; it is small and is read first. Each ``/jobs/<job_id>`` writes what happened to its tasks. A
job that nobody has touched has no records of its own: all it needs is in ``jobs.accepted``.

A record holds what was *decided*, not what must be decided again: ``jobs.attempt_ended`` names the state its
task takes and the budget it counts against, so that replaying it never depends on the rules of the day.
"""

from __future__ import annotations

from typing import Any

import attrs

from iriscw.cloud.model import Capacity, Constraint, Mode, Op
from iriscw.jobs.model import Assembly, AttemptEnd, Band, Entrypoint, JobSpec, JobState, Preemption, TaskState
from iriscw.jobs.traits import kept_fault
from iriscw.journal.records import record, upcaster
from iriscw.runtime.vocabulary import message


@attrs.frozen
class StoredConstraint:
    """A constraint as it is journaled: its values as texts, as which they are compared anyway."""

    key: str
    op: Op
    values: tuple[str, ...]
    mode: Mode


@attrs.frozen
class StoredSpec:
    """A specification as it is journaled."""

    name: str
    entrypoint: Entrypoint
    demand: Capacity
    replicas: int
    environment: tuple[tuple[str, str], ...]
    ports: tuple[str, ...]
    constraints: tuple[StoredConstraint, ...]
    group_by: str | None
    band: Band
    timeout_ns: int
    scheduling_timeout_ns: int
    max_retries_failure: int
    max_retries_preemption: int
    max_task_failures: int
    parent_job_id: str
    detached: bool = True
    """Jobs of before this was written down did not end with their parents."""
    checkpoint_every_ns: int = 0
    keep_checkpoints: int = 2
    retry_from_checkpoint: bool = False
    preemption: Preemption = Preemption.KILL


def store_spec(spec: JobSpec) -> StoredSpec:
    """Return the journaled form of a specification."""
    fields = {field.name: getattr(spec, field.name) for field in attrs.fields(JobSpec)}
    fields["constraints"] = tuple(
        StoredConstraint(each.key, each.op, tuple(str(value) for value in each.values), each.mode)
        for each in spec.constraints
    )
    return StoredSpec(**fields)


def load_spec(stored: StoredSpec) -> JobSpec:
    """Return the specification that :func:`store_spec` was given, constraint values as texts."""
    fields: dict[str, Any] = {field.name: getattr(stored, field.name) for field in attrs.fields(StoredSpec)}
    fields["constraints"] = tuple(
        Constraint(each.key, each.op, list[Any](each.values), each.mode) for each in stored.constraints
    )
    fields["detached"] = stored.detached and bool(stored.parent_job_id)
    return JobSpec(**fields)


# The registry


@record("jobs.accepted", version=1)
@message
class JobAccepted:
    """A job was promised. ``replaces`` names the job of the same name that it takes the place of.

    In snapshots that is one that has not ended: the job whose place it took at first may be forgotten. ``root`` is the
    job at the top of its parents; empty: not written down.
    """

    job_id: str
    order: int
    key: str
    spec: StoredSpec
    wall_ns: int
    replaces: str = ""
    root: str = ""


@record("jobs.shown", version=1)
@message
class JobShown:
    """A job's state changed, as far as listings show it."""

    job_id: str
    state: JobState


@record("jobs.finished", version=1)
@message
class JobFinished:
    """A job is in its terminal state."""

    job_id: str
    state: JobState
    reason: str
    wall_ns: int


@record("jobs.superseded", version=1)
@message
class JobSuperseded:
    """A job was replaced. For snapshots: its successor may be forgotten before it has stopped."""

    job_id: str


@record("jobs.counted", version=1)
@message
class JobsCounted:
    """How many jobs were ever accepted. For snapshots: the latest may be forgotten."""

    orders: int


@record("jobs.forgotten", version=1)
@message
class JobForgotten:
    """A finished job is no longer listed."""

    job_id: str


# One job


@record("jobs.attempt_placed", version=1)
@message
class AttemptPlaced:
    """A worker was chosen for a task."""

    index: int
    uid: str
    number: int
    worker_id: str
    incarnation: str
    wall_ns: int


@record("jobs.gang_assembly", version=1)
@message
class GangAssembly:
    """A gang that is placed in several parts is at another point. One that is placed at once has no such record."""

    assembly: Assembly


@record("jobs.gang_met", version=1)
@message
class GangMet:
    """It is known where the leader of a gang is reached, its attempt ``uid``: the others may start.

    An empty host, and port 0: it has begun, and nobody could say where.
    """

    uid: str
    host: str
    port: int


@record("jobs.attempt_advanced", version=1)
@message
class AttemptAdvanced:
    """An attempt was seen BUILDING or RUNNING for the first time."""

    index: int
    uid: str
    state: TaskState
    wall_ns: int


@record("jobs.attempt_equipped", version=1)
@message
class AttemptEquipped:
    """Its worker has said which GPUs an attempt has, by UUID. In snapshots it is behind its attempt."""

    index: int
    uid: str
    gpus: tuple[str, ...]


@record("jobs.attempt_overran", version=1)
@message
class AttemptOverran:
    """An attempt ran longer than its job allows, and is being stopped for it."""

    index: int
    uid: str
    wall_ns: int


@record("jobs.attempt_ended", version=2)
@message
class AttemptEnded:
    """An attempt is over: no process of it is left.

    ``then`` is what its task is now; the failure, the preemption and the unstarted attempt are counted by the flags,
    of which at most one is set. ``logs_due`` says that the end is not yet to be shown, because log bytes up to
    ``log_offset`` are still to come.
    """

    index: int
    uid: str
    end: AttemptEnd
    then: TaskState
    wall_ns: int
    failure: bool = False
    preemption: bool = False
    unstarted: bool = False
    log_offset: int = 0
    logs_due: bool = False


@record("jobs.logs_settled", version=1)
@message
class LogsSettled:
    """The last line of an ended attempt's log is stored, or (not ``complete``) will never be."""

    index: int
    uid: str
    complete: bool


@record("jobs.worker_suspected", version=1)
@message
class WorkerSuspected:
    """A worker with attempts of this job is out of reach and not known to be gone."""

    worker_id: str
    incarnation: str
    reason: str
    wall_ns: int


@record("jobs.worker_returned", version=1)
@message
class WorkerReturned:
    """A suspected worker is back with its attempts, or no longer matters."""

    worker_id: str
    incarnation: str


@record("jobs.verdict_reached", version=1)
@message
class VerdictReached:
    """It is decided how the job ends. Nothing is placed any more; what lives is being stopped.

    Tasks that wait take the state ``waiting``.
    """

    state: JobState
    waiting: TaskState
    reason: str
    wall_ns: int


@record("jobs.ended", version=1)
@message
class JobEnded:
    """The job is in its terminal state: all attempts are over and the logs are settled."""

    state: JobState
    reason: str
    wall_ns: int


# Snapshots


@record("jobs.task_kept", version=2)
@message
class TaskKept:
    """One task that was placed at least once, with its latest attempt, as a snapshot holds it."""

    index: int
    state: TaskState
    since_wall_ns: int
    failures: int
    preemptions: int
    unstarted: int
    logs_due: bool
    logs_lost: bool
    uid: str
    number: int
    worker_id: str
    incarnation: str
    attempt_state: TaskState
    placed_wall_ns: int
    started_wall_ns: int
    ended_wall_ns: int
    end: AttemptEnd | None
    log_offset: int
    overran: bool


@record("jobs.attempt_kept", version=2)
@message
class AttemptKept:
    """One attempt before the latest one of its task, as a snapshot holds it; those that were followed first, first."""

    index: int
    uid: str
    number: int
    worker_id: str
    incarnation: str
    attempt_state: TaskState
    placed_wall_ns: int
    started_wall_ns: int
    ended_wall_ns: int
    end: AttemptEnd | None
    log_offset: int
    overran: bool


@record("jobs.began", version=1)
@message
class JobBegan:
    """When the user's code was first known to run. For snapshots: the attempt that ran first may be forgotten."""

    wall_ns: int


@upcaster("jobs.attempt_ended", from_version=1)
@upcaster("jobs.task_kept", from_version=1)
@upcaster("jobs.attempt_kept", from_version=1)
def gather_the_end(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had the parts of an end beside each other, a fault as its sentence and its last lines."""
    names = ("ending", "exit_code", "reason", "fault")
    ending, exit_code, reason, details = (fields.pop(name, None) for name in names)
    if ending is None:
        return {**fields, "end": None}
    fault = kept_fault(reason or "", details or "")
    as_json = None if fault is None else attrs.asdict(fault)
    return {**fields, "end": {"ending": ending, "exit_code": exit_code, "fault": as_json}}
