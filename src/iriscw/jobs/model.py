"""What jobs are made of: specifications, states, attempts and their ids.

A *job* is one submission. It has ``replicas`` *tasks*, numbered from 0. A task is carried out by *attempts*,
one after the other; an attempt is one run of the user's code in one worker. Only attempts touch the world, so
only they have an identity that the world sees: the attempt uid, minted when the scheduler chooses its worker
and never used again.

States keep Iris's names. ``TASK_TERMINAL`` and ``JOB_TERMINAL`` say which of them are final.

Times are integer nanoseconds; sizes are bytes; ``*_wall_ns`` is a reading of the wall clock.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Any, TypeAlias

import attrs

from iriscw._errors import InvalidArgument
from iriscw.cloud.model import Capacity, Constraint
from iriscw.jobs.traits import Fault, ResultFacts, kept_fault
from iriscw.runtime.vocabulary import message, replace

MAX_REPLICAS = 100_000
"""Tasks of one job. The largest array job Slurm takes by default has 1,001, Kubernetes' indexed Job 100,000."""

MAX_ENVIRONMENT_BYTES = 64 * 1024
"""Names and values of a job's environment together: Linux takes 128 KiB for one string, Kubernetes 1 MiB per object."""

MAX_NAME_LENGTH = 128
"""Characters of a job's name."""

MAX_PORTS = 64
"""Named ports of one task."""

MAX_CONSTRAINTS = 64
"""Constraints of one job."""

MAX_RETRIES = 10_000
"""The largest retry budget. Iris's defaults are 0 for failures and 100 for preemptions."""

MAX_ATTEMPTS_SHOWN = 16
"""Attempts of one task that are kept and shown, the newest; Kubernetes' Job keeps the counts only, Nomad 10 events."""

MAX_EARLIER_ATTEMPTS = 4_096
"""Attempts of one job that are kept beside the latest of each task, the newest: about a megabyte of a snapshot."""

MAX_FAULTS_CHARS = 1024 * 1024
"""Characters of all faults that one job keeps: a quarter of a thousand of the longest. Further ones are a sentence."""

MIN_CHECKPOINT_EVERY_NS = 10 * 1_000_000_000
"""The shortest time between two checkpoints of a task that runs: each holds it for as long as its memory and its folder
are written. Slurm's and DMTCP's intervals are in minutes."""

MAX_KEEP_CHECKPOINTS = 100
"""Checkpoints of one task that are kept while it runs: each is as large as the task's memory."""

MAX_DURATION_NS = 10 * 365 * 86_400 * 1_000_000_000
"""The longest timeout: ten years. More is a slip of units."""


class TaskState(enum.StrEnum):
    """Where a task is. An attempt's state uses the same words. A text: equal to its name."""

    PENDING = "PENDING"
    """It waits for a worker."""
    ASSIGNED = "ASSIGNED"
    """A worker was chosen and is being told."""
    BUILDING = "BUILDING"
    """The worker prepares it; the user's code has not started."""
    RUNNING = "RUNNING"
    """The user's code runs."""
    SUCCEEDED = "SUCCEEDED"
    """The user's code ended well."""
    FAILED = "FAILED"
    """The user's code failed and the failure budget is spent."""
    KILLED = "KILLED"
    """Stopped because its job was stopped."""
    WORKER_FAILED = "WORKER_FAILED"
    """Its worker was lost and the preemption budget is spent."""
    UNSCHEDULABLE = "UNSCHEDULABLE"
    """No worker took it in the time its job allows for that."""
    PREEMPTED = "PREEMPTED"
    """Preempted, and the preemption budget is spent."""
    COSCHED_FAILED = "COSCHED_FAILED"
    """Stopped because another member of its gang is over for good."""
    MISSING = "MISSING"
    """Of an attempt only: its worker is there and knows nothing of it."""


class JobState(enum.StrEnum):
    """Where a job is, derived from its tasks. A text: equal to its name."""

    PENDING = "PENDING"
    """Its tasks wait for workers."""
    BUILDING = "BUILDING"
    """Workers prepare tasks; no code of the user's has started."""
    RUNNING = "RUNNING"
    """The user's code runs."""
    SUCCEEDED = "SUCCEEDED"
    """All tasks have."""
    FAILED = "FAILED"
    """More tasks have failed than the job allows."""
    KILLED = "KILLED"
    """It was stopped."""
    WORKER_FAILED = "WORKER_FAILED"
    """A task lost more attempts to the infrastructure than the job allows."""
    UNSCHEDULABLE = "UNSCHEDULABLE"
    """No worker took a task in the time the job allows for that."""


TASK_LIVE = (TaskState.ASSIGNED, TaskState.BUILDING, TaskState.RUNNING)
"""States of a task that has a live attempt."""

TASK_TERMINAL = (
    TaskState.SUCCEEDED,
    TaskState.FAILED,
    TaskState.KILLED,
    TaskState.WORKER_FAILED,
    TaskState.UNSCHEDULABLE,
    TaskState.PREEMPTED,
    TaskState.COSCHED_FAILED,
)

JOB_TERMINAL = (
    JobState.SUCCEEDED,
    JobState.FAILED,
    JobState.KILLED,
    JobState.WORKER_FAILED,
    JobState.UNSCHEDULABLE,
)


class Ending(enum.StrEnum):
    """How an attempt ended. What follows from each is a table in :mod:`iriscw.jobs.lifecycle`."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    """The user's code ended with an error."""
    TIMED_OUT = "TIMED_OUT"
    """It ran longer than its job allows."""
    WORKER_LOST = "WORKER_LOST"
    """Its worker is gone: fenced, or silent for longer than the lease."""
    MISSING = "MISSING"
    """Its worker is there and knows nothing of it."""
    PREEMPTED = "PREEMPTED"
    """It gave way to work of a higher band."""
    REFUSED = "REFUSED"
    """The worker could not start it (no room, an unreadable bundle, another Python)."""
    KILLED = "KILLED"
    """It was stopped because its job was."""
    GANG_STOPPED = "GANG_STOPPED"
    """It was stopped because another member of its gang ended."""


@attrs.frozen
class AttemptEnd:
    """How an attempt ended: what its worker found out, and from then on what its job has decided.

    Args:
        ending: in one word.
        exit_code: of the process, if it ended by itself; negative for a signal.
        fault: what went wrong, if anything did.
    """

    ending: Ending
    exit_code: int | None = None
    fault: Fault | None = None

    @property
    def reason(self) -> str:
        """One sentence for people; empty if there is nothing to say."""
        return "" if self.fault is None else self.fault.reason

    @property
    def details(self) -> str:
        """The end of what the user's code said, a traceback for instance; empty if ``reason`` says it all."""
        return "" if self.fault is None else self.fault.details

    def saying(self, reason: str) -> AttemptEnd:
        """Return the same end with another sentence."""
        return attrs.evolve(self, fault=kept_fault(reason, self.details))


class MayHaveEnded:
    """What has an ``end`` once it has one: what that says, and nothing before."""

    __slots__ = ()
    end: AttemptEnd | None

    @property
    def ending(self) -> Ending | None:
        """How it ended; None: it has not."""
        return None if self.end is None else self.end.ending

    @property
    def exit_code(self) -> int | None:
        """Of its process, if that ended by itself; negative for a signal."""
        return None if self.end is None else self.end.exit_code

    @property
    def reason(self) -> str:
        """Why it ended so, in one sentence; empty if there is nothing to say."""
        return "" if self.end is None else self.end.reason

    @property
    def details(self) -> str:
        """The end of what the user's code said; empty if ``reason`` says it all."""
        return "" if self.end is None else self.end.details


class Assembly(enum.Enum):
    """Where a gang stands that is placed in several parts. See :mod:`iriscw.jobs.job.gangs`."""

    NONE = "none"
    """It waits, or is whole."""
    GATHERING = "gathering"
    """Some of its members are placed. None of them was ordered to run."""
    DISBANDING = "disbanding"
    """The rest will not come: those that are placed are taken back. Over with the last of them."""


class Band(enum.IntEnum):
    """The priority of a job: lower numbers are placed first."""

    PRODUCTION = 1
    INTERACTIVE = 2
    BATCH = 3


class Preemption(enum.Enum):
    """What becomes of a task that has to give way to one of a higher band."""

    KILL = "kill"
    """Its attempt is stopped, which counts against ``max_retries_preemption``, and it waits again."""
    FREEZE = "freeze"
    """Its attempt is suspended, which counts against nothing, and goes on when there is room on its machine again."""
    NEVER = "never"
    """It does not give way."""


class Existing(enum.Enum):
    """What a submission does when a job of its name has not ended yet."""

    ERROR = "error"
    KEEP = "keep"
    RECREATE = "recreate"


class EntrypointKind(enum.Enum):
    """What the payload holds."""

    CALLABLE = "callable"
    COMMAND = "command"


@attrs.frozen
class Entrypoint:
    """What a task runs. Opaque here: only workers open the payload.

    Args:
        kind: what the payload holds.
        payload_sha256: names the payload in the bundle store.
        python: the Python version that pickled a callable, as ``3.11``; empty if any will do. Bytecode of another
            version crashes the interpreter, so the scheduler never lets the two meet.
    """

    kind: EntrypointKind
    payload_sha256: str
    python: str = ""


@attrs.frozen
class JobSpec:
    """All that a submission says about a job; never changed afterwards.

    Args:
        name: for people; unique among the jobs that have not ended.
        entrypoint: what each task runs.
        demand: what each task takes of its worker.
        replicas: the number of tasks.
        environment: names and values, in order. Not shown in reprs: values may be secret.
        ports: names of the ports each task wants.
        constraints: which workers will do.
        group_by: run the tasks as a gang on workers that share this attribute; None: each by itself.
        band: priority.
        timeout_ns: how long an attempt may run; 0: for ever.
        scheduling_timeout_ns: how long a task may wait for a worker; 0: for ever.
        max_retries_failure: failed attempts that a task may have before it is FAILED.
        max_retries_preemption: attempts that a task may lose to the infrastructure before it is given up.
        max_task_failures: tasks that may be FAILED before the job is.
        parent_job_id: the job from whose task this one was submitted; empty if none.
        detached: it goes on when that job ends; otherwise it ends with it.
        checkpoint_every_ns: how often a checkpoint is made of each task that runs, which runs on; 0: never.
        keep_checkpoints: how many of these are kept of a task, the newest.
        retry_from_checkpoint: whether a task that is tried again begins from the newest that can be brought back.
        preemption: what becomes of a task that has to give way to one of a higher band.
    """

    name: str
    entrypoint: Entrypoint
    demand: Capacity
    replicas: int = 1
    environment: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    ports: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    group_by: str | None = None
    band: Band = Band.INTERACTIVE
    timeout_ns: int = 0
    scheduling_timeout_ns: int = 0
    max_retries_failure: int = 0
    max_retries_preemption: int = 100
    max_task_failures: int = 0
    parent_job_id: str = ""
    detached: bool = False
    checkpoint_every_ns: int = 0
    keep_checkpoints: int = 2
    retry_from_checkpoint: bool = False
    preemption: Preemption = Preemption.KILL


def check_spec(spec: JobSpec) -> None:
    """Check what a caller sent, before anything is promised.

    Raises:
        InvalidArgument: a value is out of its range, or two contradict each other.
    """
    within = (
        ("replicas", spec.replicas, 1, MAX_REPLICAS),
        ("timeout", spec.timeout_ns, 0, MAX_DURATION_NS),
        ("scheduling_timeout", spec.scheduling_timeout_ns, 0, MAX_DURATION_NS),
        ("max_retries_failure", spec.max_retries_failure, 0, MAX_RETRIES),
        ("max_retries_preemption", spec.max_retries_preemption, 0, MAX_RETRIES),
        ("max_task_failures", spec.max_task_failures, 0, MAX_REPLICAS),
        ("keep_checkpoints", spec.keep_checkpoints, 1, MAX_KEEP_CHECKPOINTS),
        ("ports", len(spec.ports), 0, MAX_PORTS),
        ("constraints", len(spec.constraints), 0, MAX_CONSTRAINTS),
        ("name length", len(spec.name), 1, MAX_NAME_LENGTH),
    )
    for name, value, least, most in within:
        if not least <= value <= most:
            raise InvalidArgument(f"{name}: {value} is not between {least} and {most}")
    _check_checkpoints(spec)
    if spec.preemption is Preemption.FREEZE and spec.group_by is not None:
        raise InvalidArgument("preemption: a gang cannot be frozen: choose 'kill' or 'never'")
    if "/" in spec.name or not spec.name.isprintable():
        raise InvalidArgument(f"name: {spec.name!r} holds '/' or a character that cannot be shown")
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in spec.environment)
    if size_bytes > MAX_ENVIRONMENT_BYTES:
        raise InvalidArgument(f"environment: {size_bytes} bytes are more than {MAX_ENVIRONMENT_BYTES}")
    for name, _ in spec.environment:
        if not name or "=" in name or "\0" in name:
            raise InvalidArgument(f"environment: {name!r} cannot name a variable")
    if len(dict.fromkeys(spec.ports)) != len(spec.ports):
        raise InvalidArgument(f"ports: a name occurs twice in {spec.ports}")
    if spec.group_by == "":
        raise InvalidArgument("coscheduling: the attribute that a gang shares has a name")
    demand = spec.demand
    for name, value in (
        ("cpu", demand.cpu_milli),
        ("memory", demand.memory_bytes),
        ("disk", demand.disk_bytes),
        ("gpu", demand.gpu_count),
    ):
        if value < 0:
            raise InvalidArgument(f"{name}: {value} is negative")
    if demand == Capacity():
        raise InvalidArgument("resources: a task that takes nothing would fit any number of times")


def _check_checkpoints(spec: JobSpec) -> None:
    every = spec.checkpoint_every_ns
    if every and not MIN_CHECKPOINT_EVERY_NS <= every <= MAX_DURATION_NS:
        least, most = MIN_CHECKPOINT_EVERY_NS // 1_000_000_000, MAX_DURATION_NS // 1_000_000_000
        raise InvalidArgument(f"checkpoint_every: {every / 1e9:g} s are not between {least} and {most} s")
    if spec.retry_from_checkpoint and not every:
        raise InvalidArgument("retry_from_checkpoint: there is none to begin from without checkpoint_every")
    if every and spec.group_by is not None:
        raise InvalidArgument("checkpoint_every: none is made of a gang, whose tasks run together or not at all")


def canonical_spec(spec: JobSpec) -> JobSpec:
    """Return the same specification as it is compared, and journaled: constraint values are texts, and only a job that
    has a parent can be detached from it.
    """
    texts: list[Any] = [[str(value) for value in each.values] for each in spec.constraints]
    constraints = tuple(
        Constraint(each.key, each.op, values, each.mode) for each, values in zip(spec.constraints, texts, strict=True)
    )
    return attrs.evolve(spec, constraints=constraints, detached=spec.detached and bool(spec.parent_job_id))


def spec_fingerprint(spec: JobSpec) -> str:
    """Return a text that is equal for equal specifications and holds none of their secrets."""
    parts = [repr(spec), *(f"{name}={value}" for name, value in spec.environment)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def job_uid(job_id: str) -> str:
    """Return the 16 hexadecimal characters that follow from a job's id."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:16]


def attempt_uid(fresh: str) -> str:
    """Turn a fresh id of the runtime (12 characters of ``[a-z2-7]``, 60 bits) into 16 hexadecimal characters.

    The mapping is one to one, so an attempt uid is as unique as the runtime's ids are.
    """
    number = 0
    for character in fresh:
        number = number * 32 + _BASE32.index(character)
    return f"{number:016x}"


_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


def task_id(job_id: str, index: int) -> str:
    """Name a task."""
    return f"{job_id}/{index}"


@attrs.define
class Attempt(MayHaveEnded):
    """One run of a task. Owned and changed by the job's ledger only."""

    uid: str
    number: int
    worker_id: str
    incarnation: str
    state: TaskState
    placed_wall_ns: int
    started_wall_ns: int = 0
    """When the user's code was first known to run; 0 if never."""
    ended_wall_ns: int = 0
    end: AttemptEnd | None = None
    log_offset: int = 0
    """The number of log bytes it wrote; known when it has ended."""
    overran: bool = False
    """Whether it is being stopped because it ran too long."""
    gpus: tuple[str, ...] = ()
    """Its own, or those that it had, by UUID, in its order."""

    @property
    def live(self) -> bool:
        """Whether it may still have a process."""
        return self.end is None


# What passes between controller and worker: see ports.py for the protocol. What is asked of others: see also moving.py


class Suspension(enum.StrEnum):
    """Where an attempt stands between running and not. Its state is RUNNING meanwhile. A text: equal to its name, and
    empty where there is nothing to say.
    """

    NONE = ""
    """It runs, or has not begun, or has ended."""
    SUSPENDING = "SUSPENDING"
    """It may be frozen: from here on the end of its processes is no end of it."""
    SUSPENDED = "SUSPENDED"
    """Nothing of it runs."""
    RESUMING = "RESUMING"
    """A worker has a grant to bring it back. To clients also: it waits for one that is to have it."""


@message
class WorkerStream:
    """The session of one connection of one worker."""

    worker_id: str
    incarnation: str


@message
class Observation(MayHaveEnded):
    """What a worker sees of one attempt.

    Args:
        uid: which attempt.
        state: ASSIGNED (accepted), BUILDING or RUNNING; of an ended attempt the state it was last in.
        end: how it ended; None while it lives.
        started: whether the user's code ever ran.
        log_offset: the number of log bytes it wrote; final when it has ended.
        logs_stored: how many of them the log store held when this was passed on. Filled in by the door.
        unstartable: of a REFUSED one: no worker could start it, so this one is not to blame.
        suspension: whether it is on its way to being suspended or back.
        folder: where its files are, absolute. Of one that is SUSPENDED; of one that is RESUMING as soon as it can be
            brought back, and not before; of one that is SUSPENDING if the worker says so already.
        ports: by name, in order, the numbers that its worker picked.
        process_started_wall_ns: when its process was started, by the worker's clock; 0: not yet, or not told.
        process_ended_wall_ns: likewise when it ended.
        result: of a callable that has ended; None: there is none, or it is not told here.
        gpus: its own, by UUID, in its order; of one that is SUSPENDED or has ended, those that it had.
        host: where others reach what it listens to; empty: it has not begun, or nobody said.
        rendezvous_port: of a gang's leader, where the others meet it; 0: not yet, or not told.
        withdrawn: of one that is SUSPENDED: the grant that was taken back here before anybody had taken it;
            empty: none.
        withdrawn_reason: why its worker could not let it go on under that; empty: it was told to take it back.
        life: the grant under which this worker has it; empty: it began here.

    Of one that is SUSPENDED ``log_offset`` is final, too.
    """

    uid: str
    state: TaskState
    end: AttemptEnd | None = None
    started: bool = False
    log_offset: int = 0
    logs_stored: int = 0
    unstartable: bool = False
    suspension: Suspension = Suspension.NONE
    folder: str = ""
    ports: tuple[tuple[str, int], ...] = ()
    process_started_wall_ns: int = 0
    gpus: tuple[str, ...] = ()
    host: str = ""
    rendezvous_port: int = 0
    process_ended_wall_ns: int = 0
    result: ResultFacts | None = None
    withdrawn: str = ""
    withdrawn_reason: str = ""
    life: str = ""

    @property
    def live(self) -> bool:
        """Whether it may still have a process, or get one from its worker."""
        return self.end is None and self.suspension is not Suspension.SUSPENDED

    def without_result(self, fault: Fault) -> Observation:
        """Return the same end without its result, which is lost: what succeeded with it has failed, with ``fault``."""
        if self.end is not None and self.end.ending is Ending.SUCCEEDED:
            return replace(self, end=attrs.evolve(self.end, ending=Ending.FAILED, fault=fault), result=None)
        return replace(self, result=None)


@message
class StreamUp:
    """First from the worker: everything it knows."""

    observed: tuple[Observation, ...]


@message
class Observed:
    """From the worker: what changed."""

    observations: tuple[Observation, ...]


@message
class Resumption:
    """A grant for one thaw of an attempt that was suspended.

    Args:
        grant: names this grant; no other one is ever called so.
        folder: where its files are, as the worker said that had it. Absolute.
        started_wall_ns: when its process was started, by the clock of the worker that did; 0: never told.
        paused_ns: how long it was suspended altogether, as of when the grant was given.
        ports: by name, in order, as they were told.
        gpus: those that it had, by UUID: it gets as many.
        host: where others reached it, as it was told.
        timeout_ns: how long it may run by its worker's clock; 0: the controller's clock judges, or for ever.
        anew: the attempt has lived on after its checkpoint was made, and that life is over: whatever is in the place of
            its folder is of that, and goes.
        log_offset: where its log goes on, with ``anew``: behind what that life wrote.
    """

    grant: str
    folder: str
    started_wall_ns: int = 0
    paused_ns: int = 0
    ports: tuple[tuple[str, int], ...] = ()
    gpus: tuple[str, ...] = ()
    host: str = ""
    timeout_ns: int = 0
    anew: bool = False
    log_offset: int = 0


@message
class GangPlace:
    """Where an attempt stands in its gang.

    Args:
        local_rank: which of the members on its worker it is, by index.
        local_world_size: how many these are.
        node_rank: which of the gang's workers that is, in the order of their first members.
        nodes: how many these are.
        leads: whether it is the one at whose address the others meet: member 0.
        waits: whether it is not to be started before it is ordered again without this.
        leader_host: of the leader, once it waits no longer; empty: nobody could say.
        leader_port: likewise; 0: nobody could say.
    """

    local_rank: int
    local_world_size: int
    node_rank: int
    nodes: int
    leads: bool
    waits: bool = False
    leader_host: str = ""
    leader_port: int = 0


@message
class RunOrder:
    """Have this attempt run; with a ``resumption`` have it brought back, and never started. Twice is harmless.

    ``gang`` is None where its job is none. One that waits for its gang's leader is ordered again when that runs.
    """

    uid: str
    job_id: str
    job_uid: str
    index: int
    number: int
    spec: JobSpec
    resumption: Resumption | None = None
    namespace: str = ""
    gang: GangPlace | None = None


@message
class StopOrder:
    """Stop this attempt: ask first, kill after ``grace_ns``. It is reported as ended with ``ending``."""

    uid: str
    ending: Ending
    grace_ns: int


@message
class Orders:
    """To the worker. ``release`` names attempts that it may forget: ended ones, or suspended ones, whose files stay.

    ``suspend`` names attempts that are about to be frozen: the worker says SUSPENDING, and only then they may be.
    ``go_on`` names those that were not frozen after all. Of orders that are complete, ``run`` names both as well, and
    those of ``withdraw``: pairs of attempts and grants that are to be taken back if nobody has taken them.
    """

    complete: bool = False
    run: tuple[RunOrder, ...] = ()
    stop: tuple[StopOrder, ...] = ()
    release: tuple[str, ...] = ()
    suspend: tuple[str, ...] = ()
    go_on: tuple[str, ...] = ()
    withdraw: tuple[tuple[str, str], ...] = ()


@message
class Redial:
    """To the door: the fleet has forgotten this worker; register it again without ending the stream."""


UpItem: TypeAlias = StreamUp | Observed
DownItem: TypeAlias = Orders | Redial


@message
class AwaitLogs:
    """Wait until the log store has ``offset`` bytes of the attempt's log, at most ``bound_ns``.

    Gives the number of bytes stored: fewer than ``offset`` after the bound, or once it is known that no more can come.
    """

    uid: str
    offset: int
    bound_ns: int
