"""What the end of an attempt means, and why one that was not started was not. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from iriscw.jobs.model import Ending
from iriscw.jobs.traits import Fault
from iriscw.processes.ends import EndKind, ProcessEnd
from iriscw.worker.effects import Finish
from iriscw.worker.model import MAX_FAULT_CHARS, StopCause

STOPPED: Mapping[StopCause, Ending] = {
    StopCause.KILLED: Ending.KILLED,
    StopCause.PREEMPTED: Ending.PREEMPTED,
    StopCause.TIMEOUT: Ending.TIMED_OUT,
    StopCause.GANG: Ending.GANG_STOPPED,
    StopCause.FENCED: Ending.KILLED,
    StopCause.DRAINING: Ending.WORKER_LOST,
    StopCause.LEASE: Ending.WORKER_LOST,
}
"""How an attempt ended that ended because it was told to."""

JUDGED: Mapping[EndKind, Ending] = {
    EndKind.LEASE_OVER: STOPPED[StopCause.LEASE],
    EndKind.STOPPED: Ending.KILLED,
    EndKind.LOST: Ending.MISSING,
    EndKind.OUT_OF_MEMORY: Ending.FAILED,
    EndKind.SIGNALLED: Ending.FAILED,
}
"""How an attempt ended that did not end by itself, where this worker had not told it to."""

USERS_FAULTS = (
    *("ProgramMissing", "PayloadRefused", "ImageUnavailable", "NotFreezable"),
    *("InvalidArgument", "InvalidPortName"),
)
"""Errors of a start for which the job is to blame: another worker would not do better."""

SETUP_FAULTS = ("DependenciesFailed", "DependenciesTimeout", "DependenciesConflict", "InvalidDependency")
"""Errors of the installation of what a job asks for: as failures of its own code they count against its budget."""

LOST_FAULTS = ("SpecificationUnknown",)

TOO_FEW_GPUS = "TooFewGpus"
"""Fewer of the worker's GPUs are free than the attempt needs: a retry elsewhere, or later, may do better."""


def judge(finish: Finish, stop: StopCause | None) -> Ending:
    """Say what the end of a process means. A program that ended by itself before it was stopped counts as what it
    says; but a callable whose result says otherwise, is no good or is missing has not succeeded, whatever the code.
    """
    kind = finish.end.kind
    if kind is EndKind.EXITED:
        return Ending.SUCCEEDED if finish.end.succeeded and finish.fault is None else Ending.FAILED
    if stop is not None:
        return STOPPED[stop]
    return JUDGED[kind]


def unstarted(ending: Ending) -> Ending:
    """Say what an end means for an attempt that had not begun: the worker that gave up has refused it."""
    return Ending.REFUSED if ending is Ending.WORKER_LOST else ending


def fault_of(error: Exception) -> Fault:
    """Describe why an attempt could not be started."""
    return Fault(type(error).__name__, str(error)[:MAX_FAULT_CHARS], bool(getattr(error, "retryable", False)))


def refusal(fault: Fault) -> Ending:
    """Say what it means that an attempt could not be started."""
    if fault.kind in USERS_FAULTS or fault.kind in SETUP_FAULTS:
        return Ending.FAILED
    return Ending.MISSING if fault.kind in LOST_FAULTS else Ending.REFUSED


def kind_of_end(end: ProcessEnd, ending: Ending) -> str:
    """Name how it ended otherwise than well."""
    if end.kind is EndKind.OUT_OF_MEMORY:
        return "OutOfMemory"
    if ending is Ending.FAILED:
        return "ProgramFailed"
    return {Ending.TIMED_OUT: "TaskTimeout", Ending.MISSING: "AttemptLost"}.get(ending, "AttemptStopped")
