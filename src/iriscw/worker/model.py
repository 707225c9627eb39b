"""What a worker knows of its attempts: phases, orders, specifications. What it sees of them is jobs' `Observation`.

The words are the worker's own; :mod:`iriscw.worker.wire` translates them into those of the protocol. Times are
integer nanoseconds, sizes are bytes, ``*_wall_ns`` is a reading of the wall clock.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from iriscw.cloud.model import Capacity
from iriscw.jobs.model import GangPlace, Resumption, Suspension, TaskState
from iriscw.packages.requirements import Setup
from iriscw.runtime.vocabulary import SECOND

MAX_ATTEMPTS = 512
"""Attempts that a worker holds, ended ones included until they are released. Kubernetes allows 110 pods per node."""

MAX_FAULT_CHARS = 16 << 10
"""Of the text of a fault. An observed set of ``MAX_ATTEMPTS`` must fit into one message of 16 MiB."""

DEFAULT_LEASE_NS = 60 * SECOND
"""Until the controller says another: what a restarted worker gives the attempts that it finds running."""

DEFAULT_HEARTBEAT_NS = 5 * SECOND

STOP_GRACE_NS = 10 * SECOND
"""For attempts that are stopped without anybody having named a grace. Docker's default."""


class AttemptPhase(enum.Enum):
    """Where an attempt is on this worker."""

    NEW = "new"
    """Known by its uid; nothing was done for it."""
    FETCHING = "fetching"
    """Accepted; its specification and its bundle are brought here."""
    STARTING = "starting"
    """Its process is being started: from here on it may run, whatever happens to the worker."""
    WITHDRAWN = "withdrawn"
    """As STARTING, and it is stopped as soon as it is known to run."""
    RUNNING = "running"
    STOPPING = "stopping"
    """It was told to end."""
    SUSPENDING = "suspending"
    """It is being frozen: it runs, and that its processes are gone is no end of it."""
    SUSPENDED = "suspended"
    """Nothing of it runs: it is a checkpoint, and the files in its folder."""
    RESUMING = "resuming"
    """It has a grant to be brought back, and may run from here on."""
    RETURNING = "returning"
    """As RESUMING, and it is suspended again if the grant can be taken back."""
    REVOKING = "revoking"
    """As RESUMING, and it is stopped if the grant cannot be taken back."""
    ENDED = "ended"
    """Nothing of it runs; what is left are its log, its result and how it ended."""


SEEN_AS: Mapping[AttemptPhase, tuple[TaskState, Suspension]] = {
    AttemptPhase.NEW: (TaskState.ASSIGNED, Suspension.NONE),
    AttemptPhase.FETCHING: (TaskState.BUILDING, Suspension.NONE),
    AttemptPhase.STARTING: (TaskState.BUILDING, Suspension.NONE),
    AttemptPhase.WITHDRAWN: (TaskState.BUILDING, Suspension.NONE),
    AttemptPhase.RUNNING: (TaskState.RUNNING, Suspension.NONE),
    AttemptPhase.STOPPING: (TaskState.RUNNING, Suspension.NONE),
    AttemptPhase.SUSPENDING: (TaskState.RUNNING, Suspension.SUSPENDING),
    AttemptPhase.SUSPENDED: (TaskState.RUNNING, Suspension.SUSPENDED),
    AttemptPhase.RESUMING: (TaskState.RUNNING, Suspension.RESUMING),
    AttemptPhase.RETURNING: (TaskState.RUNNING, Suspension.RESUMING),
    AttemptPhase.REVOKING: (TaskState.RUNNING, Suspension.RESUMING),
}
"""What jobs hear of one that lives. One that has ended is what it was last, RUNNING or not."""


class StopCause(enum.Enum):
    """Why an attempt is to end."""

    KILLED = "killed"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    GANG = "gang"
    FENCED = "fenced"
    """The controller does not know it."""
    DRAINING = "draining"
    """The worker is ending in order."""
    LEASE = "lease"
    """The worker had no contact with the controller for its lease."""


@attrs.frozen
class Order:
    """What is said about one attempt when it is to run; the rest is in the specification of its job."""

    uid: str
    specification: str
    """The hash, in hexadecimal."""
    task_id: str
    index: int
    number: int
    environment: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    token: str = attrs.field(default="", repr=False)
    resumption: Resumption | None = None
    """It is to be brought back, and never to be started."""
    gang: GangPlace | None = None
    """None: its job is not a gang."""

    @property
    def waits(self) -> bool:
        """Whether it is not to be started before it is ordered again, without that."""
        return self.gang is not None and self.gang.waits

    @property
    def grant(self) -> str:
        """The grant to come back that it gives; empty: it is to be started."""
        return "" if self.resumption is None else self.resumption.grant


@attrs.frozen
class Specification:
    """What all attempts of a job share. Exactly one of ``argv`` and ``payload`` is given."""

    job_id: str
    job_uid: str
    argv: tuple[str, ...] = ()
    payload: bytes = attrs.field(default=b"", repr=False)
    python: str = ""
    demand: Capacity = attrs.field(factory=Capacity)
    environment: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    ports: tuple[str, ...] = ()
    bundle_id: str = ""
    num_tasks: int = 1
    parent_job_id: str = ""
    timeout_ns: int = 0
    namespace: str = ""
    image: str = ""
    """The job's own, for attempts with a pod of their own; empty: the worker's default."""
    freezable: bool = False
    """Its attempts get no io_uring, so that they can be frozen."""
    setup: Setup = attrs.field(factory=Setup)
    """What is done before its program begins."""
