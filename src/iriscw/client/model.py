"""What a client shows of a cluster: frozen values, read once and never changed.

They are made from the wire in :mod:`iriscw.client.wire` and nowhere else. Times are integer milliseconds since 1970,
0 for what has not happened; sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import attrs

from iriscw.cloud.model import (
    ExecOutput as ExecOutput,  # noqa: PLC0414 - what a command says
    ExecResult as ExecResult,  # noqa: PLC0414 - and leaves
)
from iriscw.jobs.model import (
    JOB_TERMINAL,
    TASK_LIVE,
    TASK_TERMINAL,
    Ending as Ending,  # noqa: PLC0414 - a part of the values below
    JobState as JobState,  # noqa: PLC0414 - a part of the values below
    Suspension as Suspension,  # noqa: PLC0414 - likewise
    TaskState as TaskState,  # noqa: PLC0414 - likewise
)


@attrs.frozen
class AmountStatus:
    """An amount of resources: asked for, offered or committed."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu_count: int = 0
    gpu_class: str = ""


@attrs.frozen
class ProgressStatus:
    """How far a task is, or a job, in the words of its code: see :func:`iriscw.progress`."""

    done: float = 0.0
    total: float = 0.0
    """0: not known."""
    text: str = ""


@attrs.frozen
class JobStatus:
    """Where a job was when the controller was asked."""

    job_id: str
    uid: str
    name: str
    state: JobState
    version: int
    """Grows with each change."""
    num_tasks: int
    tasks: Mapping[TaskState, int]
    """How many tasks are in each state that occurs; in a listing a second late at most."""
    reason: str = ""
    """Why it is not further: one sentence."""
    fault: str = ""
    """What went wrong, as text: what the failed task of lowest index said, such as the end of its traceback. A listing
    does not say."""
    entrypoint: str = ""
    """What it runs, for people. A listing does not say."""
    resources: AmountStatus = AmountStatus()
    """Of each task."""
    failures: int = 0
    preemptions: int = 0
    priority: str = ""
    parent_job_id: str = ""
    submitted_at_ms: int = 0
    started_at_ms: int = 0
    """When the code of a task was first known to run."""
    finished_at_ms: int = 0
    suspended: int = 0
    """Tasks that are on no worker, as their state lies in a checkpoint. ``tasks`` counts them as what they were."""
    progress: ProgressStatus | None = None
    """Of its tasks together, as far as they tell, with the text of the one that told last. None: none tells, or the job
    is over."""

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""
        return self.state in JOB_TERMINAL

    @property
    def shown_state(self) -> str:
        """The state for people: SUSPENDED where something is suspended and nothing runs, whatever the tasks were."""
        return Suspension.SUSPENDED.value if self.suspended and self.suspended == self.live else self.state.value

    @property
    def shown_tasks(self) -> Mapping[str, int]:
        """How many tasks are in each state for people: those that are suspended are not counted as RUNNING."""
        shown: dict[str, int] = {}
        for state, count in self.tasks.items():
            shown[state.value] = count
            if state is TaskState.RUNNING:
                shown[state.value], shown[Suspension.SUSPENDED.value] = max(0, count - self.suspended), self.suspended
        return {state: count for state, count in shown.items() if count}

    @property
    def live(self) -> int:
        """How many tasks have an attempt on a worker, or in a checkpoint."""
        return sum(self.tasks.get(state, 0) for state in TASK_LIVE)

    @property
    def ended(self) -> int:
        """How many tasks are over."""
        return sum(self.tasks.get(state, 0) for state in TASK_TERMINAL)


@attrs.frozen
class AttemptStatus:
    """One run of a task on one worker."""

    uid: str
    number: int
    """How many attempts of the task there were before."""
    state: TaskState
    worker_id: str
    exit_code: int | None = None
    """Of its process; negative for a signal, None where no process ended by itself."""
    ending: Ending | None = None
    """How it ended; None: it has not, or its last log line is still to come."""
    reason: str = ""
    """One sentence: why it ended so (what its exception says, that its worker was lost), or what it waits for while it
    lives; empty where there is nothing to say. Why a task has no attempt is its :attr:`TaskStatus.reason`."""
    fault: str = ""
    """What went wrong, as text: a sentence, or the last 40 lines of a traceback; the whole of it is in the log."""
    placed_at_ms: int = 0
    """When its worker was chosen."""
    started_at_ms: int = 0
    """When its code was first known to run."""
    finished_at_ms: int = 0
    log_end_offset: int = 0
    gpus: tuple[str, ...] = ()
    """The GPUs that are its own, or were, by UUID."""


@attrs.frozen
class Endpoint:
    """Where one replica of a job is reached: the attempt of it that ran when the controller was asked."""

    index: int
    """Of the replica."""
    attempt_uid: str
    host: str
    ports: Mapping[str, int] = attrs.field(factory=dict)
    """By the names that its job asked for."""


class PeerAddress(NamedTuple):
    """Where one replica listens; as ``socket.create_connection`` takes it. As a text it is ``host:port``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class TaskSuspension:
    """How far the freezing, or bringing back, of a task is."""

    task: int
    attempt_uid: str
    phase: Suspension = Suspension.NONE
    """Where it stands: empty while it runs; SUSPENDED: nothing of it runs, and it holds no room."""
    checkpoint: str = ""
    """Where its state lies; empty while there is none."""
    node: str = ""
    reason: str = ""
    """What it waits for, or why it was not frozen, or not brought back."""
    since_ms: int = 0
    repository: str = ""
    """The URL of the repository that has the checkpoint: any node that has this repository can bring it back. Empty:
    only ``node`` can."""
    storing: bool = False
    """Whether its checkpoint is on its way to the repository."""


@attrs.frozen
class TaskCheckpoint:
    """A checkpoint that was made of a task while it ran, and is kept."""

    checkpoint: str
    node: str
    """The machine that has it."""
    taken_at_ms: int


@attrs.frozen
class TaskCheckpoints:
    """The checkpoints that ``checkpoint_every`` has made of the latest attempt of a task."""

    kept: tuple[TaskCheckpoint, ...] = ()
    """The newest first."""
    begun_at_ms: int = 0
    """When the latest was begun."""
    being_made: bool = False
    """Whether that is being made now."""
    failure: str = ""
    """Why it was not made; empty if it was, or is being made."""
    times_gone_back: int = 0
    """How often the attempt ended and went on from a checkpoint."""
    gone_back_to: str = ""
    """From which it did last."""
    gone_back_at_ms: int = 0
    """When the life before that ended."""


@attrs.frozen
class TaskStatus:
    """Where one task of a job was when the controller was asked."""

    task_id: str
    index: int
    state: TaskState
    reason: str = ""
    """For a pending task: what the workers lack, and what the fleet does about it."""
    attempts: tuple[AttemptStatus, ...] = ()
    """The last 16, newest first; fewer where a job has had more than 4096 besides the latest of each task."""
    failures: int = 0
    preemptions: int = 0
    worker_id: str = ""
    suspension: TaskSuspension | None = None
    """None while it is not suspended, and nobody is about to."""
    progress: ProgressStatus | None = None
    """What its latest attempt said last. None: nothing, or the job is over."""
    checkpoints: TaskCheckpoints | None = None
    """None if none was begun of its latest attempt, or that is over."""

    @property
    def shown_state(self) -> str:
        """The state for people: SUSPENDED where nothing of it runs, as its state lies in a checkpoint."""
        suspended = self.suspension is not None and self.suspension.phase is Suspension.SUSPENDED
        return Suspension.SUSPENDED.value if suspended else self.state.value


@attrs.frozen
class LogLine:
    """One line of a task's log, or a piece of one. ``str()`` gives its text."""

    task_index: int
    attempt_number: int
    text: str
    """Without its line feed and carriage returns before that; bytes that are no UTF-8 are replaced."""
    ended: bool = True
    """False: the line goes on in this attempt's next piece. So it is with one of more than 64 KiB and, for who follows,
    with one that has no line feed for a second: a progress bar, a prompt. The last piece may be empty."""

    def __str__(self) -> str:
        return self.text


@attrs.frozen
class WorkerStatus:
    """One worker of a slice."""

    worker_id: str
    incarnation: str
    connected: bool
    address: str = ""
    capacity: AmountStatus = AmountStatus()
    committed: AmountStatus = AmountStatus()
    live_attempts: int = 0
    """Attempts that hold room on it."""
    attributes: Mapping[str, str | int] = attrs.field(factory=dict)


@attrs.frozen
class SliceStatus:
    """One slice of a scale group."""

    slice_id: str
    scale_group: str
    state: str
    """REQUESTING, BOOTING, INITIALIZING, READY, DRAINING, DELETING or FAILED."""
    reason: str = ""
    created_at_ms: int = 0
    ready_at_ms: int = 0
    idle_since_ms: int = 0
    """Since when nothing runs on it; 0: something does."""
    workers: tuple[WorkerStatus, ...] = ()
    expected_at_ms: int = 0
    """When it should be ready, as far as boots of its group have shown; 0: it is, or nobody can say."""


@attrs.frozen
class PoolPassed:
    """A scale group that does not take all of some demand."""

    scale_group: str
    why: str = ""


@attrs.frozen
class PoolDemand:
    """Tasks of one shape that cannot be placed now, at a scale group that could run them."""

    demand_id: str
    """The same for tasks of the same shape, whatever their job."""
    each: AmountStatus = AmountStatus()
    """What one task needs."""
    tasks: int = 0
    """Those that wait."""
    takes: int = 0
    """Those of them that were routed to this group."""
    why: str = ""
    """Where to, and why not more."""
    before: tuple[PoolPassed, ...] = ()
    """The groups that were tried before this one, in order; the first five."""
    since_ms: int = 0
    """Since when demand of this shape is there."""
    job_ids: tuple[str, ...] = ()
    """Jobs whose tasks they are: the first three. None where they come back from being suspended."""


@attrs.frozen
class PoolStatus:
    """One scale group: what it has, and whether it takes demand."""

    scale_group: str
    availability: str
    """AVAILABLE, COOLDOWN, REQUESTING, BACKOFF, QUOTA_EXCEEDED, NO_CAPACITY, AT_MAX_SLICES or INVALID_SPEC."""
    reason: str = ""
    min_slices: int = 0
    max_slices: int = 0
    target_slices: int = 0
    slices: Mapping[str, int] = attrs.field(factory=dict)
    """How many slices are in each state that occurs."""
    node: AmountStatus = AmountStatus()
    """What one node offers."""
    num_vms: int = 0
    priority: int = 0
    quota_pool: str = ""
    """The quota that it shares with other groups; empty: none."""
    quota_used_up_by: str = ""
    """The group whose slice was refused for that quota, or this one; empty while it is not used up."""
    routed_tasks: int = 0
    """Tasks that were routed to this group."""
    demand: tuple[PoolDemand, ...] = ()
    """All demand that it could run, that which was routed to it first; the first 20."""
    demand_count: int = 0
    """How many there are."""


@attrs.frozen
class ActorStatus:
    """One actor of a running process, as it is now."""

    path: str
    name: str
    """Of its behavior; may be empty."""
    state: str
    """ACTIVE; WAITING: it starts, or will be restarted; DRAINING; STOPPING; QUARANTINED: it failed too often."""
    restarts: int = 0
    """Since its supervisor started it."""
    up_ms: int = 0
    """Since it was last started, or restarted."""
    queued: int = 0
    """Messages that wait in its mailbox."""
    capacity: int = 0
    """How many may."""
    operations: int = 0
    """Effects and sessions of it that run."""
    children: int = 0
    failure: str = ""
    """Its last failure, in one line; empty if there was none."""
    failed_ms: int = 0
    """How long ago that was."""


@attrs.frozen
class GpuStatus:
    """One GPU of a worker, as it was when the worker last looked. What the machine does not say is None."""

    uuid: str
    name: str
    index: int
    """Its number in the order of the PCI bus."""
    utilization_percent: int | None = None
    """The share of the last moments in which something ran on it."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    problem: str = ""
    """Why nothing is known of now; empty: it is."""


@attrs.frozen
class ClusterStatus:
    """The controller, and counts of what it looks after."""

    name: str
    iriscw_version: str
    platform: str
    durability: str
    degraded: str = ""
    """Why it takes no new work for now; empty if it does."""
    started_at_ms: int = 0
    jobs: Mapping[JobState, int] = attrs.field(factory=dict)
    workers_connected: int = 0
    slices: int = 0


@attrs.frozen
class TierStatus:
    """How full a tier of a node is."""

    name: str
    budget_bytes: int
    used_bytes: int
    free_bytes: int
    """Of its file system."""


@attrs.frozen
class NodeStatus:
    """A node that an agent has dialled from, as the controller has heard of it."""

    node: str
    state: str
    """``CONNECTED``, ``SYNCING`` (its agent has not said everything yet) or ``UNKNOWN``: its agent is not heard of, and
    what follows is from before."""
    since_ms: int
    """Since when the state is what it is."""
    agent_id: str = ""
    software: str = ""
    """The agent's version of iriscw; empty if it was not heard of since the controller started."""
    criu: str = ""
    """Its version, or why it cannot be used."""
    cuda: str = ""
    """The driver's version, or why there is no checkpointing."""
    gpus: tuple[str, ...] = ()
    """The model of each."""
    tiers: tuple[TierStatus, ...] = ()
    checkpoints: int = 0
    operations: tuple[str, ...] = ()
    """Those that run."""
    repository: str = ""
    """The URL of the repository of its agent, without secrets; empty: it has none, or was not heard of."""


@attrs.frozen
class OrderStatus:
    """What became so far of what a node's agent was ordered to do."""

    operation: str
    node: str
    kind: str
    """``freeze``, ``thaw``, ``remove`` or ``move``."""
    checkpoint: str
    tier: str = ""
    steps: tuple[tuple[str, int], ...] = ()
    """Phases, and after how many milliseconds each was entered."""
    done_bytes: int = 0
    """Within the last step."""
    total_bytes: int = 0
    """0: not known."""
    cancelled: bool = False
    node_state: str = ""
    """As :attr:`NodeStatus.state`."""
    outcome: str = ""
    """How it ended; empty until then."""
    error: str = ""
    text: str = ""
    lasted_ms: int = 0
    size_bytes: int = 0
    pid: int = 0
    processes: int = 0
