"""Between the worker's own words and those of the protocol (``iriscw/v1/worker.proto``)."""

from __future__ import annotations

from collections.abc import Mapping

from iriscw._errors import OperationError
from iriscw.cloud.wire import read_amount
from iriscw.dialling.messages import Heartbeat, HeartbeatAcked, Welcomed
from iriscw.dialling.wire import turned_away
from iriscw.jobs.wire import observation, read_gang_place, read_resumption
from iriscw.packages.requirements import Setup
from iriscw.proto.iriscw import v1
from iriscw.runtime.vocabulary import MILLISECOND
from iriscw.worker.gpu_readings import GpuLook, GpuReading
from iriscw.worker.gpus import Gpu
from iriscw.worker.messages import (
    ContinueAttempt,
    DesiredAttempts,
    DownItem,
    ForgetAttempt,
    Goodbye,
    HeldChanged,
    ObservedAll,
    RunAttempt,
    StopAttempt,
    SuspendAttempt,
    UpItem,
    WithdrawGrant,
)
from iriscw.worker.model import Order, Specification, StopCause

PROTOCOL_VERSION = 1


class MalformedSpecification(OperationError):
    """A specification does not have the hash that names it, or holds neither a program nor a callable."""


_CAUSES: Mapping[v1.StopReason, StopCause] = {
    v1.StopReason.KILLED: StopCause.KILLED,
    v1.StopReason.PREEMPTED: StopCause.PREEMPTED,
    v1.StopReason.TIMEOUT: StopCause.TIMEOUT,
    v1.StopReason.COSCHED_FAILED: StopCause.GANG,
    v1.StopReason.FENCED: StopCause.FENCED,
    v1.StopReason.DRAINING: StopCause.DRAINING,
}


# Upward


def up(item: UpItem) -> v1.WorkerMessage | None:
    """Translate what goes to the controller; None for what only the stream itself reads."""
    match item:
        case Heartbeat(sequence=sequence):
            return v1.WorkerMessage(heartbeat=v1.Heartbeat(sequence=sequence))
        case ObservedAll(round=number, observations=observations):
            attempts = [observation(seen) for seen in observations]
            return v1.WorkerMessage(observed_set=v1.ObservedSet(round=number, attempts=attempts))
        case HeldChanged(observation=seen):
            return v1.WorkerMessage(observed=observation(seen))
        case Goodbye(reason=reason):
            return v1.WorkerMessage(goodbye=v1.Goodbye(reason=reason))
        case _:
            return None


# Downward


def down(message: v1.ControllerMessage) -> DownItem | None:
    """Translate what comes from the controller; None for what is data (acks, specifications) or unknown."""
    if message.desired_set is not None:
        orders = tuple(order(each) for each in message.desired_set.attempts)
        return DesiredAttempts(message.desired_set.round, orders)
    if message.run is not None:
        return RunAttempt(order(message.run))
    if message.stop is not None:
        cause = _CAUSES.get(message.stop.reason, StopCause.KILLED)
        return StopAttempt(message.stop.attempt_uid, cause, max(0, message.stop.grace_ms) * MILLISECOND)
    if message.suspend is not None:
        return SuspendAttempt(message.suspend.attempt_uid)
    if message.continue_ is not None:
        return ContinueAttempt(message.continue_.attempt_uid)
    if message.withdraw is not None:
        return WithdrawGrant(message.withdraw.attempt_uid, message.withdraw.grant)
    if message.forget is not None:
        return ForgetAttempt(message.forget.attempt_uid)
    if message.heartbeat_ack is not None:
        ack = message.heartbeat_ack
        return HeartbeatAcked(ack.sequence, max(0, ack.heartbeat_interval_ms) * MILLISECOND)
    if message.refused is not None:
        return turned_away(message.refused)
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
        resumption=None if message.resumption is None else read_resumption(message.resumption),
        gang=None if message.gang is None else read_gang_place(message.gang),
    )


def welcomed(message: v1.Welcome) -> Welcomed:
    """Translate a welcome."""
    return Welcomed(
        message.session_id,
        max(0, message.heartbeat_interval_ms) * MILLISECOND,
        max(0, message.lease_ms) * MILLISECOND,
    )


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
    return Specification(
        job_id=message.job_id,
        job_uid=message.job_uid,
        argv=argv,
        payload=payload,
        python=entrypoint.callable.python_version if entrypoint.callable is not None else "",
        demand=read_amount(message.resources),
        environment=tuple(sorted(message.environment.items())),
        ports=tuple(message.ports),
        bundle_id=message.bundle_id,
        num_tasks=message.num_tasks,
        parent_job_id=message.parent_job_id,
        timeout_ns=max(0, message.timeout_ms) * MILLISECOND,
        namespace=message.namespace,
        image=message.image,
        freezable=message.freezable,
        setup=_setup(message.setup),
    )


def _setup(message: v1.Setup | None) -> Setup:
    if message is None:
        return Setup()
    steps = tuple(tuple(step.argv) for step in message.steps)
    return Setup(tuple(message.dependencies), steps, max(0, message.timeout_ms) * MILLISECOND)


def gpus_message(look: GpuLook) -> v1.ListGpusResponse:
    """Write what is known of the GPUs that a worker hands out."""
    return v1.ListGpusResponse(gpus=[_gpu(gpu, look.readings.get(gpu.uuid), look.problem) for gpu in look.gpus])


def _gpu(gpu: Gpu, read: GpuReading | None, problem: str) -> v1.GpuStatus:
    known = read or GpuReading(gpu.uuid)
    return v1.GpuStatus(
        uuid=gpu.uuid,
        name=gpu.name,
        index=gpu.index,
        utilization_percent=known.utilization_percent,
        memory_used_bytes=known.memory_used_bytes,
        memory_total_bytes=gpu.memory_bytes if known.memory_total_bytes is None else known.memory_total_bytes,
        temperature_c=known.temperature_c,
        power_mw=known.power_mw,
        problem=problem,
    )
