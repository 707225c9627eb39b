"""Between the worker's own words and those of the protocol (``iriscw/v1/worker.proto``)."""

from __future__ import annotations

from collections.abc import Mapping

from iriscw.cloud.model import Attributes, Capacity
from iriscw.errors import OperationError
from iriscw.jobs.model import Ending, GangPlace
from iriscw.proto.iriscw import v1
from iriscw.runtime.vocabulary import MILLISECOND
from iriscw.worker.messages import (
    Changed,
    ContinueAttempt,
    Desired,
    DownItem,
    ForgetAttempt,
    Goodbye,
    Heartbeat,
    HeartbeatAcked,
    ObservedAll,
    RunAttempt,
    StopAttempt,
    SuspendAttempt,
    TurnedAway,
    UpItem,
    Welcomed,
)
from iriscw.worker.model import Observation, Order, Phase, RefusalReason, Resumption, Specification, StopCause

PROTOCOL_VERSION = 1
MAX_TOLD_CHARS = 4096
"""Of a fault's text: the end, which is what the controller keeps."""


class MalformedSpecification(OperationError):
    """A specification does not have the hash that names it, or holds neither a program nor a callable."""


_LIVE: Mapping[Phase, v1.TaskState] = {
    Phase.NEW: v1.TaskState.ASSIGNED,
    Phase.FETCHING: v1.TaskState.BUILDING,
    Phase.STARTING: v1.TaskState.BUILDING,
    Phase.WITHDRAWN: v1.TaskState.BUILDING,
    Phase.RUNNING: v1.TaskState.RUNNING,
    Phase.STOPPING: v1.TaskState.RUNNING,
    Phase.SUSPENDING: v1.TaskState.RUNNING,
    Phase.SUSPENDED: v1.TaskState.RUNNING,
    Phase.RESUMING: v1.TaskState.RUNNING,
    Phase.REVOKING: v1.TaskState.RUNNING,
}
_SUSPENDED: Mapping[Phase, v1.Suspension] = {
    Phase.SUSPENDING: v1.Suspension.SUSPENDING,
    Phase.SUSPENDED: v1.Suspension.SUSPENDED,
    Phase.RESUMING: v1.Suspension.RESUMING,
    Phase.REVOKING: v1.Suspension.RESUMING,
}
_ENDED: Mapping[Ending, v1.TaskState] = {
    Ending.SUCCEEDED: v1.TaskState.SUCCEEDED,
    Ending.FAILED: v1.TaskState.FAILED,
    Ending.TIMED_OUT: v1.TaskState.FAILED,
    Ending.KILLED: v1.TaskState.KILLED,
    Ending.PREEMPTED: v1.TaskState.PREEMPTED,
    Ending.GANG_STOPPED: v1.TaskState.COSCHED_FAILED,
    Ending.MISSING: v1.TaskState.MISSING,
    Ending.REFUSED: v1.TaskState.WORKER_FAILED,
    Ending.WORKER_LOST: v1.TaskState.WORKER_FAILED,
}
"""What its task is, for a controller that knows no endings."""

_CAUSES: Mapping[v1.StopReason, StopCause] = {
    v1.StopReason.KILLED: StopCause.KILLED,
    v1.StopReason.PREEMPTED: StopCause.PREEMPTED,
    v1.StopReason.TIMEOUT: StopCause.TIMEOUT,
    v1.StopReason.COSCHED_FAILED: StopCause.GANG,
    v1.StopReason.FENCED: StopCause.FENCED,
    v1.StopReason.DRAINING: StopCause.DRAINING,
}
_REFUSALS: Mapping[v1.RefusalReason, RefusalReason] = {
    v1.RefusalReason.PROTOCOL_VERSION: RefusalReason.PROTOCOL_VERSION,
    v1.RefusalReason.UNKNOWN_WORKER: RefusalReason.UNKNOWN_WORKER,
    v1.RefusalReason.CAPACITY: RefusalReason.CAPACITY,
    v1.RefusalReason.DRAINING: RefusalReason.DRAINING,
    v1.RefusalReason.BUSY: RefusalReason.BUSY,
    v1.RefusalReason.SUPERSEDED: RefusalReason.SUPERSEDED,
}


# Upward


def observed(seen: Observation) -> v1.AttemptObserved:
    """Translate an observation."""
    state = _LIVE[seen.phase] if seen.ending is None else _ENDED[seen.ending]
    how = None
    if seen.exit_code is not None:
        how = v1.ProcessExit(code=seen.exit_code)
    elif seen.exit_signal is not None:
        how = v1.ProcessExit(signal=seen.exit_signal)
    fault, result = seen.fault, seen.result
    return v1.AttemptObserved(
        attempt_uid=seen.uid,
        state=state,
        ending=v1.Ending.UNSPECIFIED if seen.ending is None else v1.Ending[seen.ending.name],
        exit=how,
        fault=None
        if fault is None
        else v1.Fault(kind=fault.kind, text=fault.text[-MAX_TOLD_CHARS:], retryable=fault.retryable),
        log_end_offset=seen.log_bytes,
        result=None
        if result is None
        else v1.ResultRef(
            size_bytes=result.size_bytes, sha256=bytes.fromhex(result.sha256), python_version=result.python
        ),
        started_at_ms=seen.started_wall_ns // MILLISECOND,
        finished_at_ms=seen.ended_wall_ns // MILLISECOND,
        ports=dict(seen.ports),
        was_started=seen.was_started,
        suspension=_SUSPENDED.get(seen.phase, v1.Suspension.UNSPECIFIED),
        folder=seen.folder,
        gpus=list(seen.gpus),
        host=seen.host,
        rendezvous_port=seen.rendezvous_port,
    )


def up(item: UpItem) -> v1.WorkerMessage | None:
    """Translate what goes to the controller; None for what only the stream itself reads."""
    match item:
        case Heartbeat(sequence=sequence):
            return v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=sequence))
        case ObservedAll(round=number, observations=observations):
            attempts = [observed(seen) for seen in observations]
            return v1.WorkerMessage(observed_set=v1.ObservedSet(round=number, attempts=attempts))
        case Changed(observation=seen):
            return v1.WorkerMessage(observed=observed(seen))
        case Goodbye(reason=reason):
            return v1.WorkerMessage(goodbye=v1.Goodbye(reason=reason))
        case _:
            return None


def amount(capacity: Capacity) -> v1.Amount:
    """Translate a capacity."""
    return v1.Amount(
        cpu_milli=capacity.cpu_milli,
        memory_bytes=capacity.memory_bytes,
        disk_bytes=capacity.disk_bytes,
        gpu_count=capacity.gpu_count,
        gpu_class=capacity.gpu_class,
    )


def attributes(values: Attributes) -> dict[str, v1.AttributeValue]:
    """Translate attributes."""
    return {
        name: v1.AttributeValue(number=value) if isinstance(value, int) else v1.AttributeValue(text=value)
        for name, value in values.pairs
    }


# Downward


def down(message: v1.ControllerMessage) -> DownItem | None:
    """Translate what comes from the controller; None for what is data (acks, specifications) or unknown."""
    if message.desired_set is not None:
        orders = tuple(order(each) for each in message.desired_set.attempts)
        return Desired(message.desired_set.round, orders)
    if message.run is not None:
        return RunAttempt(order(message.run))
    if message.stop is not None:
        cause = _CAUSES.get(message.stop.reason, StopCause.KILLED)
        return StopAttempt(message.stop.attempt_uid, cause, max(0, message.stop.grace_ms) * MILLISECOND)
    if message.suspend is not None:
        return SuspendAttempt(message.suspend.attempt_uid)
    if message.continue_ is not None:
        return ContinueAttempt(message.continue_.attempt_uid)
    if message.forget is not None:
        return ForgetAttempt(message.forget.attempt_uid)
    if message.heartbeat_ack is not None:
        ack = message.heartbeat_ack
        return HeartbeatAcked(ack.sequence, max(0, ack.heartbeat_interval_ms) * MILLISECOND)
    if message.refused is not None:
        return refused(message.refused)
    return None


def order(message: v1.RunAttempt) -> Order:
    """Translate an order."""
    return Order(
        uid=message.attempt_uid,
        specification=message.specification_hash.hex(),
        task_id=message.task_id,
        index=message.task_index,
        number=message.attempt_number,
        environment=tuple(sorted(message.environment.items())),
        token=message.token,
        resumption=None if message.resumption is None else resumption(message.resumption),
        gang=None if message.gang is None else gang_place(message.gang),
    )


def gang_place(message: v1.GangPlace) -> GangPlace:
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


def resumption(message: v1.Resumption) -> Resumption:
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
    )


def welcomed(message: v1.Welcome) -> Welcomed:
    """Translate a welcome."""
    return Welcomed(
        message.session_id,
        max(0, message.heartbeat_interval_ms) * MILLISECOND,
        max(0, message.lease_ms) * MILLISECOND,
    )


def refused(message: v1.Refused) -> TurnedAway:
    """Translate a refusal."""
    reason = _REFUSALS.get(message.reason, RefusalReason.OTHER)
    return TurnedAway(reason, message.text, max(0, message.retry_after_ms) * MILLISECOND)


def specification(content: bytes) -> Specification:
    """Read the content of a specification.

    Raises:
        MalformedSpecification: it is none.
    """
    try:
        message = v1.TaskSpecification.parse(content)
    except Exception as error:  # the library raises what it likes on bytes that are no message
        raise MalformedSpecification(f"not a specification: {error}") from error
    entrypoint = message.entrypoint or v1.Entrypoint()
    argv = tuple(entrypoint.command.argv) if entrypoint.command is not None else ()
    payload = entrypoint.callable.payload if entrypoint.callable is not None else b""
    if bool(argv) == bool(payload):
        raise MalformedSpecification("the specification has neither a program nor a callable")
    wanted = message.resources or v1.Amount()
    return Specification(
        job_id=message.job_id,
        job_uid=message.job_uid,
        argv=argv,
        payload=payload,
        python=entrypoint.callable.python_version if entrypoint.callable is not None else "",
        demand=Capacity(wanted.cpu_milli, wanted.memory_bytes, wanted.disk_bytes, wanted.gpu_count, wanted.gpu_class),
        environment=tuple(sorted(message.environment.items())),
        ports=tuple(message.ports),
        bundle_id=message.bundle_id,
        num_tasks=message.num_tasks,
        parent_job_id=message.parent_job_id,
        timeout_ns=max(0, message.timeout_ms) * MILLISECOND,
        namespace=message.namespace,
        image=message.image,
        freezable=message.freezable,
    )
