"""What a worker knows of its attempts: phases, orders, observations.

The words are the worker's own; :mod:`iriscw.worker.wire` translates them into those of the protocol. Times are
integer nanoseconds, sizes are bytes, ``*_wall_ns`` is a reading of the wall clock.
"""

from __future__ import annotations

import enum

import attrs

from iriscw.cloud.model import Capacity
from iriscw.jobs.model import Ending, GangPlace
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


class Phase(enum.Enum):
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
    REVOKING = "revoking"
    """As RESUMING, and it is stopped if the grant cannot be taken back."""
    ENDED = "ended"
    """Nothing of it runs; what is left are its log, its result and how it ended."""


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


class RefusalReason(enum.Enum):
    """Why the controller did not take the worker."""

    PROTOCOL_VERSION = "protocol_version"
    UNKNOWN_WORKER = "unknown_worker"
    CAPACITY = "capacity"
    DRAINING = "draining"
    BUSY = "busy"
    SUPERSEDED = "superseded"
    OTHER = "other"


@attrs.frozen
class Fault:
    """An error as text. ``kind`` is the name of an error of iriscw or of the user's exception."""

    kind: str
    text: str
    retryable: bool = False


@attrs.frozen
class ResultFacts:
    """What is known of a callable's result before its bytes have arrived."""

    size_bytes: int
    sha256: str
    python: str


@attrs.frozen
class Resumption:
    """A grant to go on, for an attempt that was suspended, here or on another worker of this machine.

    ``grant`` names this one thaw (see :mod:`iriscw.processes.grants`), ``folder`` is the attempt's, absolute. The rest
    is what the worker that had it before knew: its timeout goes on, less what it was suspended.
    """

    grant: str
    folder: str
    started_wall_ns: int = 0
    timeout_ns: int = 0
    paused_ns: int = 0
    ports: tuple[tuple[str, int], ...] = ()
    gpus: tuple[str, ...] = ()
    """Those that it had, by UUID. It gets as many, and the same if they are free."""
    host: str = ""


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


@attrs.frozen
class Observation:
    """Where one attempt stands. Everything from ``ending`` on is final once ``phase`` is ENDED.

    ``log_bytes`` is the length of the log of one that is SUSPENDED, too.
    """

    uid: str
    phase: Phase
    was_started: bool = False
    started_wall_ns: int = 0
    ports: tuple[tuple[str, int], ...] = ()
    ending: Ending | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    fault: Fault | None = None
    log_bytes: int = 0
    result: ResultFacts | None = None
    ended_wall_ns: int = 0
    host: str = ""
    """Where others reach what it listens to."""
    rendezvous_port: int = 0
    """Of a gang's leader: where the others meet it."""
    folder: str = ""
    """Of one that is suspended, or can be brought back now: where its files are."""
    gpus: tuple[str, ...] = ()
    """Its own, by UUID; of one that is suspended or has ended, those that it had."""

    @property
    def live(self) -> bool:
        """Whether it may still have a process, or get one from this worker."""
        return self.phase not in (Phase.ENDED, Phase.SUSPENDED)

    def without_result(self, fault: Fault) -> Observation:
        """Return the same end without its result, which is lost: what succeeded with it has failed, with ``fault``."""
        if self.ending is Ending.SUCCEEDED:
            return attrs.evolve(self, ending=Ending.FAILED, fault=fault, result=None)
        return attrs.evolve(self, result=None)
