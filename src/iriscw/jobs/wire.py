"""Jobs, tasks and attempts as values and as messages of the wire, for clients, the controller and workers. Pure.

A number that this version does not know counts as "not said", as the protocol demands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from iriscw.cloud.model import Constraint, Op
from iriscw.cloud.wire import amount, read_amount, read_constraint
from iriscw.fleet.model import FREEZABLE, PACKAGES, TASK_RUNTIME, TASK_RUNTIMES
from iriscw.jobs.keeping.messages import CopiesView
from iriscw.jobs.messages import JobRow, JobView, TaskRow
from iriscw.jobs.model import (
    JOB_TERMINAL,
    MAX_PORTS,
    Attempt,
    AttemptEnd,
    Band,
    Ending,
    Entrypoint,
    Existing,
    GangPlace,
    JobSpec,
    JobState,
    Observation,
    Preemption,
    Resumption,
    RunOrder,
    Suspension,
    TaskState,
    task_id,
)
from iriscw.jobs.suspension.messages import SuspensionView
from iriscw.jobs.traits import MAX_DETAIL_CHARS, Fault
from iriscw.proto.iriscw import v1
from iriscw.resources import GPU_LIMIT
from iriscw.runtime.vocabulary import MILLISECOND

DEFAULT_RETRIES_FAILURE = 0
DEFAULT_RETRIES_PREEMPTION = 100
DEFAULT_KEEP_CHECKPOINTS = 2
"""Iris's defaults."""

MAX_FAULT_CHARS = 64 * 1024
"""Of the text of a fault, as the protocol says."""

MAX_HOST_CHARS = 255
"""Of a host's name, as DNS has it."""

MAX_PORT = 65_535

MAX_FOLDER_CHARS = 4096
"""Of a path: as long as the kernel takes."""

MAX_GPU_CHARS = 80
"""Of the UUID of a GPU, which has 40, or of a part of one (MIG), which has a few more."""

_SUSPENSIONS = {
    Suspension.NONE: v1.Suspension.UNSPECIFIED,
    Suspension.SUSPENDING: v1.Suspension.SUSPENDING,
    Suspension.SUSPENDED: v1.Suspension.SUSPENDED,
    Suspension.RESUMING: v1.Suspension.RESUMING,
}

_BANDS = {
    v1.PriorityBand.PRODUCTION: Band.PRODUCTION,
    v1.PriorityBand.INTERACTIVE: Band.INTERACTIVE,
    v1.PriorityBand.BATCH: Band.BATCH,
}
_PREEMPTIONS = {v1.PreemptionMode.FREEZE: Preemption.FREEZE, v1.PreemptionMode.NEVER: Preemption.NEVER}
_POLICIES = {v1.ExistingJobPolicy.KEEP: Existing.KEEP, v1.ExistingJobPolicy.RECREATE: Existing.RECREATE}


def of_task_images(spec: JobSpec) -> JobSpec:
    """Have the tasks of a job placed only where each has a pod or container of its own: it names an image."""
    values: list[Any] = [*TASK_RUNTIMES]
    own = Constraint(TASK_RUNTIME, Op.IN, values)
    return attrs.evolve(spec, constraints=(*spec.constraints, own))


def of_freezable(spec: JobSpec) -> JobSpec:
    """Have the tasks of a job placed only where they can be started so that they can be frozen."""
    return attrs.evolve(spec, constraints=(*spec.constraints, Constraint(FREEZABLE, Op.EXISTS)))


def of_packages(spec: JobSpec) -> JobSpec:
    """Have the tasks of a job placed only where packages can be installed for them: never in images of their own."""
    able = (Constraint(PACKAGES, Op.EXISTS), Constraint(TASK_RUNTIME, Op.NOT_EXISTS))
    return attrs.evolve(spec, constraints=(*spec.constraints, *able))


def job_spec(sent: v1.SubmitJobRequest, entrypoint: Entrypoint, parent_job_id: str) -> JobSpec:
    """Read a submission.

    Raises:
        InvalidArgument: a constraint is none.
    """
    failures, preemptions = sent.max_retries_failure, sent.max_retries_preemption
    return JobSpec(
        name=sent.name,
        entrypoint=entrypoint,
        demand=read_amount(sent.resources),
        replicas=sent.replicas,
        environment=tuple(sent.environment.items()),
        ports=tuple(sent.ports),
        constraints=tuple(read_constraint(each) for each in sent.constraints),
        group_by=sent.coscheduling.group_by if sent.coscheduling is not None else None,
        band=_BANDS.get(sent.priority, Band.INTERACTIVE),
        timeout_ns=sent.timeout_ms * MILLISECOND,
        scheduling_timeout_ns=sent.scheduling_timeout_ms * MILLISECOND,
        max_retries_failure=DEFAULT_RETRIES_FAILURE if failures is None else failures,
        max_retries_preemption=DEFAULT_RETRIES_PREEMPTION if preemptions is None else preemptions,
        max_task_failures=sent.max_task_failures,
        parent_job_id=parent_job_id,
        detached=sent.detached,
        checkpoint_every_ns=sent.checkpoint_every_ms * MILLISECOND,
        keep_checkpoints=sent.keep_checkpoints or DEFAULT_KEEP_CHECKPOINTS,
        retry_from_checkpoint=sent.retry_from_checkpoint,
        preemption=_PREEMPTIONS.get(sent.preemption, Preemption.KILL),
    )


def existing(sent: v1.ExistingJobPolicy) -> Existing:
    """Read what to do about a job of the same name."""
    return _POLICIES.get(sent, Existing.ERROR)


def job_states(sent: list[v1.JobState]) -> tuple[JobState, ...]:
    """Read a listing's filter."""
    return tuple(JobState[each.name] for each in sent if each.name in JobState.__members__)


def _ms(wall_ns: int | None) -> int:
    return (wall_ns or 0) // MILLISECOND


def job_status(
    view: JobView, *, version: int, entrypoint: str, progress: v1.Progress | None = None, doing: str = ""
) -> v1.JobStatus:
    """Write all that is known of a job. ``doing``: what is done for one of its tasks before that begins."""
    reason = view.reason or view.pending_reason or (doing if view.state is JobState.BUILDING else "")
    fault = view.fault or reason
    failed = view.state in (JobState.FAILED, JobState.WORKER_FAILED, JobState.UNSCHEDULABLE)
    return v1.JobStatus(
        job_id=view.job_id,
        job_uid=view.uid,
        name=view.spec.name,
        state=v1.JobState[view.state.name],
        version=version,
        num_tasks=view.spec.replicas,
        tasks=_task_counts(view.counts),
        reason=reason,
        fault=v1.Fault(kind=view.state.value, text=fault) if failed else None,
        submitted_at_ms=_ms(view.submitted_wall_ns),
        started_at_ms=_ms(view.started_wall_ns),
        finished_at_ms=_ms(view.ended_wall_ns),
        priority=v1.PriorityBand[view.spec.band.name],
        parent_job_id=view.spec.parent_job_id,
        resources=amount(view.spec.demand),
        failures=view.failures,
        preemptions=view.preemptions,
        entrypoint=entrypoint,
        suspended=view.suspended,
        progress=progress,
    )


def _task_counts(counts: Iterable[tuple[TaskState, int]]) -> list[v1.TaskCount]:
    return [v1.TaskCount(state=v1.TaskState[state.name], count=count) for state, count in counts]


def job_row(row: JobRow, version: int, pending_reason: str = "", progress: v1.Progress | None = None) -> v1.JobStatus:
    """Write a job of a listing: what the registry knows without asking the job, and why its tasks wait.

    What it runs and what its tasks said is left out: a listing reads no stored file and asks no job.
    """
    tally = row.tally
    return v1.JobStatus(
        job_id=row.job_id,
        job_uid=row.uid,
        name=row.name,
        state=v1.JobState[row.state.name],
        version=version,
        num_tasks=row.replicas,
        tasks=_task_counts(tally.counts),
        reason=row.reason or pending_reason,
        submitted_at_ms=_ms(row.submitted_wall_ns),
        started_at_ms=_ms(tally.started_wall_ns),
        finished_at_ms=_ms(row.ended_wall_ns),
        priority=v1.PriorityBand[row.band.name],
        parent_job_id=row.parent_job_id,
        resources=amount(row.demand),
        failures=tally.failures,
        preemptions=tally.preemptions,
        suspended=tally.suspended,
        progress=progress,
    )


def waits(row: JobRow) -> bool:
    """Whether a job of a listing has tasks that wait, and does not say itself why it is not further."""
    if row.reason or row.state in JOB_TERMINAL:
        return False
    return any(state is TaskState.PENDING for state, _ in row.tally.counts)


def task_status(
    job_id: str, row: TaskRow, pending_reason: str, progress: v1.Progress | None = None, doing: str = ""
) -> v1.TaskStatus:
    """Write a task with its attempts, the newest first. ``doing``: what is done for the newest before it begins."""
    doing = doing if row.state is TaskState.BUILDING else ""
    latest = () if row.attempt is None else (_attempt(row.attempt, row.attempt_reason or doing),)
    return v1.TaskStatus(
        task_id=task_id(job_id, row.index),
        task_index=row.index,
        state=v1.TaskState[row.state.name],
        reason=_task_reason(row, pending_reason) or doing,
        attempts=[*latest, *(_attempt(each, each.reason) for each in row.earlier)],
        failures=row.failures,
        preemptions=row.preemptions,
        worker_id=row.worker_id,
        suspension=None if row.suspension is None else task_suspension(row.suspension),
        progress=progress,
        checkpoints=None if row.copies is None else _task_checkpoints(row.copies),
    )


def _task_checkpoints(view: CopiesView) -> v1.TaskCheckpoints:
    return v1.TaskCheckpoints(
        kept=[
            v1.TaskCheckpoint(checkpoint_id=checkpoint, node=node, taken_at_ms=_ms(wall_ns))
            for checkpoint, node, wall_ns in view.kept
        ],
        begun_at_ms=_ms(view.began_wall_ns),
        being_made=view.under_way,
        failure=view.failure,
        times_gone_back=view.times,
        gone_back_to=view.back_to,
        gone_back_at_ms=_ms(view.back_wall_ns),
    )


def _task_reason(row: TaskRow, pending_reason: str) -> str:
    """Say why a task is not further: of one that gave way, for whom, and what it waits for now."""
    if row.state is not TaskState.PENDING:
        return row.reason
    if row.ending is Ending.PREEMPTED:
        return "; ".join(each for each in (row.reason, pending_reason) if each)
    return row.reason or pending_reason


def read_suspension(sent: v1.Suspension) -> Suspension:
    """Read where an attempt stands between running and not."""
    return Suspension.__members__.get(sent.name or "", Suspension.NONE)


def task_suspension(view: SuspensionView) -> v1.TaskSuspension:
    """Write how far the suspending, or resuming, of a task is. One that is to be resumed is shown as resuming."""
    phase = view.phase
    if view.resuming and phase is Suspension.SUSPENDED:
        phase = Suspension.RESUMING
    return v1.TaskSuspension(
        task_index=view.index,
        attempt_uid=view.uid,
        phase=_SUSPENSIONS[phase],
        checkpoint_id=view.checkpoint,
        node=view.node,
        reason=view.reason,
        since_ms=_ms(view.since_wall_ns),
        repository=view.repository,
        storing=view.storing,
    )


def said_chars(row: TaskRow) -> int:
    """Count the characters of what a task and its attempts say."""
    latest = 0 if row.attempt is None else len(row.attempt_reason) + len(row.attempt.details)
    return len(row.reason) + latest + sum(len(each.reason) + len(each.details) for each in row.earlier)


def _attempt(attempt: Attempt, reason: str) -> v1.AttemptStatus:
    end = attempt.end
    fault = None
    if end is not None and end.ending is not Ending.SUCCEEDED:
        fault = v1.Fault(kind=end.ending.value, text=end.details or end.reason)
    return v1.AttemptStatus(
        attempt_uid=attempt.uid,
        attempt_number=attempt_number(attempt.number),
        worker_id=attempt.worker_id,
        **_end(attempt.state, end, fault),
        placed_at_ms=_ms(attempt.placed_wall_ns),
        started_at_ms=_ms(attempt.started_wall_ns),
        finished_at_ms=_ms(attempt.ended_wall_ns),
        log_end_offset=attempt.log_offset,
        gpus=list(attempt.gpus),
        reason=reason,
    )


def attempt_number(number: int) -> int:
    """Write the number of an attempt: jobs count from 1, the wire from 0."""
    return max(0, number - 1)


def _end(state: TaskState, end: AttemptEnd | None, fault: v1.Fault | None) -> dict[str, Any]:
    """Write what the two messages that tell an end have alike: where an attempt is, or how it ended."""
    if end is None:
        return {"state": v1.TaskState[state.name]}
    told = {"state": ENDED_AS[end.ending], "ending": v1.Ending[end.ending.name]}
    return {**told, "exit": _exit(end.exit_code), "fault": fault}


def _exit(code: int | None) -> v1.ProcessExit | None:
    if code is None:
        return None
    return v1.ProcessExit(code=code) if code >= 0 else v1.ProcessExit(signal=-code)


ENDED_AS = {
    Ending.SUCCEEDED: v1.TaskState.SUCCEEDED,
    Ending.FAILED: v1.TaskState.FAILED,
    Ending.TIMED_OUT: v1.TaskState.FAILED,
    Ending.WORKER_LOST: v1.TaskState.WORKER_FAILED,
    Ending.MISSING: v1.TaskState.MISSING,
    Ending.PREEMPTED: v1.TaskState.PREEMPTED,
    Ending.REFUSED: v1.TaskState.WORKER_FAILED,
    Ending.KILLED: v1.TaskState.KILLED,
    Ending.GANG_STOPPED: v1.TaskState.COSCHED_FAILED,
}


# Workers

_ENDINGS = {
    v1.TaskState.SUCCEEDED: Ending.SUCCEEDED,
    v1.TaskState.FAILED: Ending.FAILED,
    v1.TaskState.KILLED: Ending.KILLED,
    v1.TaskState.PREEMPTED: Ending.PREEMPTED,
    v1.TaskState.WORKER_FAILED: Ending.WORKER_LOST,
    v1.TaskState.COSCHED_FAILED: Ending.GANG_STOPPED,
    v1.TaskState.MISSING: Ending.MISSING,
}
"""What somebody means who says no ending, or none that is known here: it is of another version."""

_STOPS = {
    Ending.KILLED: v1.StopReason.KILLED,
    Ending.PREEMPTED: v1.StopReason.PREEMPTED,
    Ending.TIMED_OUT: v1.StopReason.TIMEOUT,
    Ending.GANG_STOPPED: v1.StopReason.COSCHED_FAILED,
}


def ending_of(sent: v1.AttemptObserved | v1.AttemptStatus) -> Ending | None:
    """Say how an attempt ended; None while it lives, and to clients until its log is there."""
    if (told := Ending.__members__.get(sent.ending.name or "")) is not None:
        return told
    ending = _ENDINGS.get(sent.state)
    if isinstance(sent, v1.AttemptStatus):  # a controller of an earlier version names it as the kind of its fault
        return Ending.__members__.get("" if sent.fault is None else sent.fault.kind, ending)
    if ending is Ending.WORKER_LOST and not sent.was_started:
        return Ending.REFUSED
    return ending


def read_observation(sent: v1.AttemptObserved, *, logs_stored: int, with_end: bool = True) -> Observation:
    """Read what a worker sees of an attempt.

    Args:
        sent: the message.
        logs_stored: how much of its log the store has.
        with_end: False to keep an end back, because the result has not arrived.
    """
    ending = ending_of(sent)
    if ending is None:
        known = sent.state in (v1.TaskState.BUILDING, v1.TaskState.RUNNING)
        state = TaskState[sent.state.name] if known else TaskState.ASSIGNED
    else:
        state = TaskState.RUNNING if sent.was_started else TaskState.ASSIGNED
    # A program that cannot be started is the job's failure, not the infrastructure's: it counts as one that ran.
    started = sent.was_started or state is TaskState.RUNNING or ending is Ending.FAILED
    if not with_end:
        return Observation(sent.attempt_uid, state, started=started, logs_stored=logs_stored, life=sent.life_grant)
    return Observation(
        uid=sent.attempt_uid,
        state=state,
        end=None if ending is None else AttemptEnd(ending, exit_code_of(sent), _read_fault(sent.fault, ending)),
        started=started,
        log_offset=sent.log_end_offset,
        logs_stored=logs_stored,
        suspension=read_suspension(sent.suspension) if ending is None else Suspension.NONE,
        folder=sent.folder[:MAX_FOLDER_CHARS],
        ports=tuple(sorted(sent.ports.items()))[:MAX_PORTS],
        process_started_wall_ns=max(0, sent.started_at_ms) * MILLISECOND,
        gpus=tuple(each[:MAX_GPU_CHARS] for each in sent.gpus[:GPU_LIMIT]),
        host=sent.host[:MAX_HOST_CHARS],
        rendezvous_port=sent.rendezvous_port if 0 < sent.rendezvous_port <= MAX_PORT else 0,
        process_ended_wall_ns=max(0, sent.finished_at_ms) * MILLISECOND,
        withdrawn=sent.withdrawn_grant,
        withdrawn_reason=sent.withdrawn_reason[:MAX_DETAIL_CHARS],
        life=sent.life_grant,
    )


def observation(seen: Observation) -> v1.AttemptObserved:
    """Write what a worker sees of an attempt."""
    result = seen.result
    return v1.AttemptObserved(
        attempt_uid=seen.uid,
        **_end(seen.state, seen.end, None if seen.end is None else _fault(seen.end.fault)),
        log_end_offset=seen.log_offset,
        result=None
        if result is None
        else v1.ResultRef(
            size_bytes=result.size_bytes, sha256=bytes.fromhex(result.sha256), python_version=result.python
        ),
        started_at_ms=seen.process_started_wall_ns // MILLISECOND,
        finished_at_ms=seen.process_ended_wall_ns // MILLISECOND,
        ports=dict(seen.ports),
        was_started=seen.started,
        suspension=_SUSPENSIONS[seen.suspension],
        folder=seen.folder,
        gpus=list(seen.gpus),
        host=seen.host,
        rendezvous_port=seen.rendezvous_port,
        withdrawn_grant=seen.withdrawn,
        withdrawn_reason=seen.withdrawn_reason[:MAX_DETAIL_CHARS],
        life_grant=seen.life,
    )


def _fault(fault: Fault | None) -> v1.Fault | None:
    if fault is None:
        return None
    return v1.Fault(kind=fault.kind, text=fault.text[-MAX_DETAIL_CHARS:], retryable=fault.retryable)


def _read_fault(sent: v1.Fault | None, ending: Ending) -> Fault | None:
    """Read what went wrong. Only of what failed by itself more is kept than a sentence."""
    if sent is None:
        return None
    fault = Fault(sent.kind, sent.text[-MAX_FAULT_CHARS:], sent.retryable)
    return fault if ending is Ending.FAILED else Fault("", fault.reason)


def exit_code_of(sent: v1.AttemptObserved | v1.AttemptStatus) -> int | None:
    """Read how the process of an attempt ended; negative for a signal."""
    if sent.exit is None:
        return None
    return -sent.exit.signal if sent.exit.signal is not None else sent.exit.code


def specification(
    order: RunOrder, document: v1.TaskSpecification, environment: Mapping[str, str]
) -> v1.TaskSpecification:
    """Put together what all attempts of a job share. ``environment`` is the cluster's and the job's own together."""
    spec = order.spec
    return v1.TaskSpecification(
        job_id=order.job_id,
        job_uid=order.job_uid,
        entrypoint=document.entrypoint,
        bundle_id=document.bundle_id,
        image=document.image,
        freezable=document.freezable,
        setup=document.setup,
        resources=amount(spec.demand),
        environment=dict(environment),
        ports=list(spec.ports),
        num_tasks=spec.replicas,
        parent_job_id=spec.parent_job_id,
        namespace=order.namespace,
        timeout_ms=0,  # the controller's clock judges, so that a worker's never disagrees with it
    )


def run_attempt(order: RunOrder, specification_hash: bytes, token: str) -> v1.RunAttempt:
    """Write the order to run an attempt."""
    return v1.RunAttempt(
        attempt_uid=order.uid,
        specification_hash=specification_hash,
        task_id=task_id(order.job_id, order.index),
        task_index=order.index,
        attempt_number=attempt_number(order.number),
        token=token,
        resumption=None if order.resumption is None else _resumption(order.resumption),
        gang=None if order.gang is None else _gang_place(order.gang),
    )


def _gang_place(place: GangPlace) -> v1.GangPlace:
    return v1.GangPlace(
        local_rank=place.local_rank,
        local_world_size=place.local_world_size,
        node_rank=place.node_rank,
        nodes=place.nodes,
        leads=place.leads,
        waits=place.waits,
        leader_host=place.leader_host,
        leader_port=place.leader_port,
    )


def _resumption(given: Resumption) -> v1.Resumption:
    return v1.Resumption(
        grant=given.grant,
        folder=given.folder,
        started_at_ms=given.started_wall_ns // MILLISECOND,
        timeout_ms=given.timeout_ns // MILLISECOND,
        paused_ms=given.paused_ns // MILLISECOND,
        ports=dict(given.ports),
        gpus=list(given.gpus),
        host=given.host,
        anew=given.anew,
        log_end_offset=given.log_offset,
    )


def stop_reason(ending: Ending) -> v1.StopReason:
    """Write why an attempt is to end."""
    return _STOPS.get(ending, v1.StopReason.FENCED)


def read_gang_place(message: v1.GangPlace) -> GangPlace:
    """Translate where an attempt stands in its gang."""
    return GangPlace(
        local_rank=message.local_rank,
        local_world_size=message.local_world_size,
        node_rank=message.node_rank,
        nodes=message.nodes,
        leads=message.leads,
        waits=message.waits,
        leader_host=message.leader_host,
        leader_port=message.leader_port,
    )


def read_resumption(message: v1.Resumption) -> Resumption:
    """Translate the grant to go on of an attempt that was suspended."""
    return Resumption(
        grant=message.grant,
        folder=message.folder,
        started_wall_ns=max(0, message.started_at_ms) * MILLISECOND,
        timeout_ns=max(0, message.timeout_ms) * MILLISECOND,
        paused_ns=max(0, message.paused_ms) * MILLISECOND,
        ports=tuple(sorted(message.ports.items())),
        gpus=tuple(message.gpus),
        host=message.host,
        anew=message.anew,
        log_offset=max(0, message.log_end_offset),
    )


_BEAT = re.compile(rb"\x12(.)\x08[\x80-\xff]{0,8}[\x00-\x7f]", re.DOTALL)
"""A message of a worker that holds a heartbeat of nothing but a sequence, which has up to 63 bits; with its size."""

_ACK = b"\x52"
"""How a message of the controller begins that acknowledges one."""


def heartbeat_ack(data: bytes) -> bytes | None:
    """Return the bytes that acknowledge a heartbeat's; None if they are of anything else, or of more than that.

    Both hold a sequence and nothing else, so all but the first byte is the same.
    """
    beat = _BEAT.fullmatch(data)
    if beat is None or beat[1][0] != len(data) - 2:
        return None
    return _ACK + data[1:]
