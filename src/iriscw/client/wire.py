"""Messages of the wire to values, and submissions to messages. Nothing else of the client sees a message's inside.

A number that this version does not know counts as "not said", as the protocol demands: a state becomes PENDING.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeVar

from iriscw._errors import InvalidArgument
from iriscw.client import model
from iriscw.cloud import wire as cloud
from iriscw.jobs.model import Band, Existing, JobSpec, JobState, TaskState
from iriscw.jobs.wire import ending_of, exit_code_of, read_suspension
from iriscw.packages.requirements import Setup
from iriscw.proto.iriscw.v1 import (
    ActorStatus,
    Amount,
    AttemptStatus,
    ClusterStatus,
    Command as WireCommand,
    Coscheduling,
    Entrypoint,
    ExistingJobPolicy,
    GpuStatus,
    JobState as WireJobState,
    JobStatus,
    PoolDemand,
    PoolStatus,
    PreemptionMode,
    PriorityBand,
    Progress,
    Setup as WireSetup,
    SliceStatus,
    SubmitJobRequest,
    TaskCheckpoints,
    TaskState as WireTaskState,
    TaskStatus,
    TaskSuspension,
    WorkerStatus,
)

NS_PER_MS = 1_000_000

S = TypeVar("S", JobState, TaskState)


def _state(kind: type[S], sent: Any) -> S:
    name = sent.name
    return kind[name] if name in kind.__members__ else kind["PENDING"]


def _name(sent: Any) -> str:
    """Return an enum's name for people."""
    return str(sent.name) if sent else ""


def _amount(sent: Amount | None) -> model.AmountStatus:
    if sent is None:
        return model.AmountStatus()
    return model.AmountStatus(sent.cpu_milli, sent.memory_bytes, sent.disk_bytes, sent.gpu_count, sent.gpu_class)


def _progress(sent: Progress | None) -> model.ProgressStatus | None:
    return None if sent is None else model.ProgressStatus(sent.done_milli / 1000, sent.total_milli / 1000, sent.text)


def job_status(sent: JobStatus) -> model.JobStatus:
    """Read a job's status."""
    return model.JobStatus(
        job_id=sent.job_id,
        uid=sent.job_uid,
        name=sent.name,
        state=_state(JobState, sent.state),
        version=sent.version,
        num_tasks=sent.num_tasks,
        tasks={_state(TaskState, each.state): each.count for each in sent.tasks},
        reason=sent.reason,
        fault=sent.fault.text if sent.fault is not None else "",
        entrypoint=sent.entrypoint,
        resources=_amount(sent.resources),
        failures=sent.failures,
        preemptions=sent.preemptions,
        priority=_name(sent.priority),
        parent_job_id=sent.parent_job_id,
        submitted_at_ms=sent.submitted_at_ms,
        started_at_ms=sent.started_at_ms,
        finished_at_ms=sent.finished_at_ms,
        suspended=sent.suspended,
        progress=_progress(sent.progress),
    )


def _attempt(sent: AttemptStatus) -> model.AttemptStatus:
    fault = sent.fault.text if sent.fault is not None else ""
    return model.AttemptStatus(
        uid=sent.attempt_uid,
        number=sent.attempt_number,
        state=_state(TaskState, sent.state),
        worker_id=sent.worker_id,
        exit_code=exit_code_of(sent),
        ending=ending_of(sent),
        reason=sent.reason or fault.rstrip().rpartition("\n")[2],
        fault=fault,
        placed_at_ms=sent.placed_at_ms,
        started_at_ms=sent.started_at_ms,
        finished_at_ms=sent.finished_at_ms,
        log_end_offset=sent.log_end_offset,
        gpus=tuple(sent.gpus),
    )


def task_status(sent: TaskStatus) -> model.TaskStatus:
    """Read a task's status."""
    return model.TaskStatus(
        task_id=sent.task_id,
        index=sent.task_index,
        state=_state(TaskState, sent.state),
        reason=sent.reason,
        attempts=tuple(_attempt(each) for each in sent.attempts),
        failures=sent.failures,
        preemptions=sent.preemptions,
        worker_id=sent.worker_id,
        suspension=None if sent.suspension is None else task_suspension(sent.suspension),
        progress=_progress(sent.progress),
        checkpoints=None if sent.checkpoints is None else _task_checkpoints(sent.checkpoints),
    )


def _task_checkpoints(sent: TaskCheckpoints) -> model.TaskCheckpoints:
    return model.TaskCheckpoints(
        kept=tuple(model.TaskCheckpoint(each.checkpoint_id, each.node, each.taken_at_ms) for each in sent.kept),
        begun_at_ms=sent.begun_at_ms,
        being_made=sent.being_made,
        failure=sent.failure,
        times_gone_back=sent.times_gone_back,
        gone_back_to=sent.gone_back_to,
        gone_back_at_ms=sent.gone_back_at_ms,
    )


def task_suspension(sent: TaskSuspension) -> model.TaskSuspension:
    """Read how far a task's suspension is."""
    return model.TaskSuspension(
        task=sent.task_index,
        attempt_uid=sent.attempt_uid,
        phase=read_suspension(sent.phase),
        checkpoint=sent.checkpoint_id,
        node=sent.node,
        reason=sent.reason,
        since_ms=sent.since_ms,
        repository=sent.repository,
        storing=sent.storing,
    )


def _worker(sent: WorkerStatus) -> model.WorkerStatus:
    attributes = {name: cloud.read_value(sent.attributes[name]) for name in sorted(sent.attributes)}
    return model.WorkerStatus(
        worker_id=sent.worker_id,
        incarnation=sent.incarnation,
        connected=sent.connected,
        address=sent.address,
        capacity=_amount(sent.capacity),
        committed=_amount(sent.committed),
        live_attempts=sent.live_attempts,
        attributes=attributes,
    )


def slice_status(sent: SliceStatus) -> model.SliceStatus:
    """Read a slice's status."""
    return model.SliceStatus(
        slice_id=sent.slice_id,
        scale_group=sent.scale_group,
        state=_name(sent.state),
        reason=sent.reason,
        created_at_ms=sent.created_at_ms,
        ready_at_ms=sent.ready_at_ms,
        idle_since_ms=sent.idle_since_ms,
        workers=tuple(_worker(each) for each in sent.workers),
        expected_at_ms=sent.expected_at_ms,
    )


def pool_status(sent: PoolStatus) -> model.PoolStatus:
    """Read a scale group's status."""
    return model.PoolStatus(
        scale_group=sent.scale_group,
        availability=_name(sent.availability),
        reason=sent.reason,
        min_slices=sent.min_slices,
        max_slices=sent.max_slices,
        target_slices=sent.target_slices,
        slices={_name(each.state): each.count for each in sent.slices},
        node=_amount(sent.node),
        num_vms=sent.num_vms,
        priority=sent.priority,
        quota_pool=sent.quota_pool,
        quota_used_up_by=sent.quota_used_up_by,
        routed_tasks=sent.routed_tasks,
        demand=tuple(_pool_demand(each) for each in sent.demand),
        demand_count=sent.demand_count,
    )


def _pool_demand(sent: PoolDemand) -> model.PoolDemand:
    return model.PoolDemand(
        demand_id=sent.demand_id,
        each=_amount(sent.each),
        tasks=sent.tasks,
        takes=sent.takes,
        why=sent.why,
        before=tuple(model.PoolPassed(each.scale_group, each.why) for each in sent.before),
        since_ms=sent.since_ms,
        job_ids=tuple(sent.job_ids),
    )


def actor_status(sent: ActorStatus) -> model.ActorStatus:
    """Read an actor's status."""
    return model.ActorStatus(
        path=sent.path,
        name=sent.name,
        state=_name(sent.state),
        restarts=sent.restarts,
        up_ms=sent.up_ms,
        queued=sent.queued,
        capacity=sent.capacity,
        operations=sent.operations,
        children=sent.children,
        failure=sent.failure,
        failed_ms=sent.failed_ms,
    )


def gpu_status(sent: GpuStatus) -> model.GpuStatus:
    """Read how a GPU is."""
    return model.GpuStatus(
        uuid=sent.uuid,
        name=sent.name,
        index=sent.index,
        utilization_percent=sent.utilization_percent,
        memory_used_bytes=sent.memory_used_bytes,
        memory_total_bytes=sent.memory_total_bytes,
        temperature_c=sent.temperature_c,
        power_w=None if sent.power_mw is None else sent.power_mw / 1000,
        problem=sent.problem,
    )


def cluster_status(sent: ClusterStatus) -> model.ClusterStatus:
    """Read a cluster's status."""
    return model.ClusterStatus(
        name=sent.name,
        iriscw_version=sent.iriscw_version,
        platform=sent.platform,
        durability=sent.durability,
        degraded=sent.degraded,
        started_at_ms=sent.started_at_ms,
        jobs={_state(JobState, each.state): each.count for each in sent.jobs},
        workers_connected=sent.workers_connected,
        slices=sent.slices,
    )


# What is sent


def job_states(states: Iterable[str]) -> list[WireJobState]:
    """Write states for a listing's filter.

    Raises:
        InvalidArgument: one is no state of a job.
    """
    return [WireJobState[each.name] for each in _states(JobState, states)]


def task_states(states: Iterable[str]) -> list[WireTaskState]:
    """Write states for a filter of tasks.

    Raises:
        InvalidArgument: one is no state of a task.
    """
    return [WireTaskState[each.name] for each in _states(TaskState, states)]


def _states(kind: type[S], states: Iterable[Any]) -> list[S]:
    if isinstance(states, str):  # each of its letters would be taken for a state
        raise InvalidArgument(f"states: give several: [{str(states)!r}]")
    found = []
    for each in states:
        if not isinstance(each, str) or each not in kind.__members__:
            near = difflib.get_close_matches(str(each).upper(), kind.__members__, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise InvalidArgument(f"states: {each!r:.64} is not one of {', '.join(kind.__members__)}{hint}")
        found.append(kind[each])
    return found


def submit_request(
    spec: JobSpec,
    entrypoint: Entrypoint,
    *,
    key: str,
    existing: Existing,
    bundle_id: str = "",
    image: str = "",
    freezable: bool = False,
    setup: Setup | None = None,
) -> SubmitJobRequest:
    """Write a submission. The specification's own entrypoint names what ``entrypoint`` holds and is not sent."""
    return SubmitJobRequest(
        idempotency_key=key,
        name=spec.name,
        entrypoint=entrypoint,
        replicas=spec.replicas,
        resources=cloud.amount(spec.demand),
        environment=dict(spec.environment),
        ports=list(spec.ports),
        constraints=[cloud.constraint(each) for each in spec.constraints],
        coscheduling=Coscheduling(group_by=spec.group_by) if spec.group_by is not None else None,
        priority=_BANDS[spec.band],
        timeout_ms=spec.timeout_ns // NS_PER_MS,
        scheduling_timeout_ms=spec.scheduling_timeout_ns // NS_PER_MS,
        max_retries_failure=spec.max_retries_failure,
        max_retries_preemption=spec.max_retries_preemption,
        max_task_failures=spec.max_task_failures,
        existing=ExistingJobPolicy[existing.name],
        bundle_id=bundle_id,
        parent_job_id=spec.parent_job_id,
        detached=spec.detached,
        image=image,
        freezable=freezable,
        setup=_setup(setup),
        checkpoint_every_ms=spec.checkpoint_every_ns // NS_PER_MS,
        keep_checkpoints=spec.keep_checkpoints,
        retry_from_checkpoint=spec.retry_from_checkpoint,
        preemption=PreemptionMode[spec.preemption.name],
    )


def _setup(setup: Setup | None) -> WireSetup | None:
    if not setup:
        return None
    steps = [WireCommand(argv=list(step)) for step in setup.steps]
    return WireSetup(dependencies=list(setup.dependencies), steps=steps, timeout_ms=setup.timeout_ns // NS_PER_MS)


_BANDS = {
    Band.PRODUCTION: PriorityBand.PRODUCTION,
    Band.INTERACTIVE: PriorityBand.INTERACTIVE,
    Band.BATCH: PriorityBand.BATCH,
}
