"""The fleet as values: scale groups and their settings, slices, workers, and what users see of them.

A *scale group* is a kind of slice with bounds on their number. A *slice* is one node pool with ``num_vms``
nodes; it is made and removed as a whole. On each node runs one *worker pod*, and in it one *worker*, which
dials the controller. A worker's id is derived from its place (``<slice id>-<index>``); its *incarnation*
names one pod that had this place. Whoever speaks with the same id but another incarnation is fenced off,
whatever its address (INV-R6, INV-J10).

All durations are integer ns.
"""

from __future__ import annotations

import enum

import attrs

from iriscw._errors import InvalidArgument, OperationError, UsageError
from iriscw.cloud.model import Attributes, Capacity, rfc1123
from iriscw.runtime.vocabulary import SECOND, ActorPath, message

MINUTE = 60 * SECOND

DEFAULT_SCHEDULER = ActorPath("/jobs/scheduler")
DEFAULT_LINKS = ActorPath("/jobs/links")

MAX_GROUP_IN_NAME = 24
"""Characters of a group's name in its slices' ids: with the prefix, the id, a worker's index and an
incarnation a pod's name stays within 63."""

MAX_VMS = 1024
"""Nodes of one slice: the index has at most four digits in names, and Kueue's pod groups end there, too."""

MAX_SLICES = 10_000
"""Slices of one group: ten times the largest fleet this was sized for."""


@attrs.frozen
class Timing:
    """Every delay of the fleet. The defaults are CoreWeave's: bare metal takes 14 to 30 minutes to boot, one in ten
    longer.
    """

    requesting_timeout: int = 1800 * SECOND
    """From asking for a pool until the API has acknowledged it."""
    boot_timeout: int = 3600 * SECOND
    """From the pool's acknowledgement until all its nodes are ready; waiting for free machines does not
    count."""
    init_timeout: int = 1800 * SECOND
    """From ready nodes until all workers are registered."""
    startup_grace: int = 5400 * SECOND
    """From asking until ready, whatever the stage; waiting for free machines does not count."""
    evaluation_interval: int = 10 * SECOND
    """An upper bound on the time until a change is acted on; events act at once."""
    scale_up_delay: int = 60 * SECOND
    """Between two rounds of requests of one group, and how long a fresh slice still counts as about to take
    demand."""
    scale_down_delay: int = 300 * SECOND
    """How long a slice must have been idle before it may be removed."""
    liveness_timeout: int = 60 * SECOND
    """Without contact for this long, on the attentive clock, a worker counts as lost."""
    start_patience: int = 300 * SECOND
    """How long a pod may say that its image cannot be had, that something it needs is missing, or that no node takes
    it, before it is replaced; three times as long that it is not set up. As long as the kubelet's longest pause between
    two attempts at an image, so that a registry that was away for a moment costs nothing."""
    cordon_timeout: int = 30 * SECOND
    """How long the scheduler may take to answer a cordon before it is withdrawn."""
    failure_backoff: int = 30 * SECOND
    """After the first failed slice; doubles."""
    failure_backoff_max: int = 900 * SECOND
    quota_backoff: int = 300 * SECOND
    """After the first refusal for quota; doubles. Iris uses a fixed 5 minutes."""
    quota_backoff_max: int = 3600 * SECOND
    retry_backoff: int = 2 * SECOND
    """Before a call that failed for the moment is repeated; doubles."""
    retry_backoff_max: int = 120 * SECOND
    pod_grace: int = 60 * SECOND
    """How long the pods of a slice may take to end before its pool is deleted all the same."""
    deletion_patience: int = 900 * SECOND
    """A deletion that takes longer is reported as stuck. Deleting a pool takes many minutes on a good day."""
    deletion_retry: int = 60 * SECOND
    """Between repeated deletions of the same pool or pod; doubles up to ``deletion_patience``."""
    boot_estimate: int = 1200 * SECOND
    """What a boot is thought to take before one was seen."""


TASK_RUNTIME = "task-runtime"
"""The attribute of workers whose tasks have images of their own: one of :data:`TASK_RUNTIMES`. Others have none."""

TASK_RUNTIME_POD = "pod"
TASK_RUNTIME_DOCKER = "docker"
TASK_RUNTIMES = (TASK_RUNTIME_POD, TASK_RUNTIME_DOCKER)

SLICE_ID = "slice-id"
WORKER_ID = "worker-id"
"""Attributes that tell a worker's slice, and the worker itself, from all others."""

FREEZABLE = "freezable"
"""The attribute of workers that can start attempts so that they get no io_uring. A worker says it of itself: an older
one, one whose attempts are its own threads, and one on a machine for which there is no filter do not."""

PACKAGES = "packages"
"""The attribute of workers that can install the packages that a job asks for: ``uv`` or ``pip``, which does it. A
worker says it of itself: those whose tasks have images, or that have neither of the two, do not."""

DECIDED_BY_WORKERS = ("python", FREEZABLE, PACKAGES)
"""Attributes that only a running worker has, and that any new one may meet."""


@attrs.frozen
class GroupConfig:
    """One scale group.

    Args:
        name: unique; goes into labels as it is and into names as an RFC 1123 label.
        per_worker: what each worker promises. A worker that has less is refused.
        attributes: what all its workers are like, for constraints.
        instance_type: what the driver is asked for.
        region: where.
        num_vms: nodes of a slice.
        min_slices: kept alive without any demand.
        max_slices: never exceeded.
        buffer_slices: kept idle or on their way beyond what demand needs.
        priority: groups with a lower one take demand first.
        quota_pool: groups that share a quota; empty for none. A quota refusal of one closes all of the pool.
        image: of the worker pods.
        compute_class: ``default`` or ``spot``.
        timing: every delay.

    Raises:
        InvalidArgument: the numbers contradict each other.
    """

    name: str
    per_worker: Capacity
    attributes: Attributes = attrs.field(factory=Attributes)
    instance_type: str = ""
    region: str = ""
    num_vms: int = 1
    min_slices: int = 0
    max_slices: int = 1
    buffer_slices: int = 0
    priority: int = 100
    quota_pool: str = ""
    image: str = ""
    compute_class: str = "default"
    timing: Timing = attrs.field(factory=Timing)

    @property
    def tasks_outlive_workers(self) -> bool:
        """Whether tasks run on without their worker, until their lease is over: in pods or containers of their own."""
        return self.attributes.get(TASK_RUNTIME) in TASK_RUNTIMES

    def __attrs_post_init__(self) -> None:
        rfc1123(self.name)
        if "/" in self.name:
            raise InvalidArgument(f"scale group {self.name!r}: a name holds no '/'")
        if not 1 <= self.num_vms <= MAX_VMS:
            raise InvalidArgument(f"scale group {self.name!r}: num_vms must be 1 to {MAX_VMS}, not {self.num_vms}")
        if not 0 <= self.min_slices <= self.max_slices <= MAX_SLICES:
            raise InvalidArgument(
                f"scale group {self.name!r}: needs 0 <= min_slices ({self.min_slices}) <= max_slices"
                f" ({self.max_slices}) <= {MAX_SLICES}"
            )
        if self.buffer_slices < 0:
            raise InvalidArgument(f"scale group {self.name!r}: buffer_slices must not be negative")


@attrs.frozen
class FleetConfig:
    """The whole fleet.

    Args:
        cluster: the installation; only pools and pods labelled ``iris-cluster: <cluster>`` are ever touched.
        groups: the scale groups, names unique.
        scheduler: the path of the scheduler, which is told of workers.
        links: the path under which each connected worker has an actor of its own.
        takeover_delay: ns after a start before the first pool is created or reclaimed: lease plus request
            deadline of an earlier controller (INV-F8). 0 where there can be only one.

    Raises:
        InvalidArgument: two groups have the same name.
    """

    cluster: str
    groups: tuple[GroupConfig, ...]
    scheduler: ActorPath = DEFAULT_SCHEDULER
    links: ActorPath = DEFAULT_LINKS
    takeover_delay: int = 0

    def __attrs_post_init__(self) -> None:
        names = [group.name for group in self.groups]
        doubled = sorted(name for index, name in enumerate(names) if name in names[:index])
        if doubled:
            raise InvalidArgument(f"scale groups with the same name: {', '.join(doubled)}")


@message
class WorkerInfo:
    """A registered worker. ``address`` is where its tasks are reached, never who it is; ``node`` is its machine."""

    worker_id: str
    incarnation: str
    slice_id: str
    group: str
    capacity: Capacity
    attributes: Attributes
    address: str
    node: str = ""


class SliceState(enum.Enum):
    """Where a slice stands in its life: the table is in :mod:`iriscw.fleet.lifecycle`."""

    REQUESTED = "requested"
    """Promised in the journal; nothing outside was asked for yet."""
    CREATING = "creating"
    """The pool was asked for; the API has not acknowledged it."""
    BOOTING = "booting"
    """The pool exists; not all its nodes are ready."""
    INITIALIZING = "initializing"
    """All nodes are ready; not all workers are registered."""
    READY = "ready"
    """All workers are registered: work may be placed."""
    DRAINING = "draining"
    """It will be removed: its place is marked for removal in the journal; its pods are being ended."""
    DELETING = "deleting"
    """Its pool is being deleted."""
    GONE = "gone"
    """Neither pool nor pods are left."""
    FAILED = "failed"
    """It cannot become ready, and waits for its group to have it removed."""


class Trouble(enum.Enum):
    """What is wrong with a slice, beside its state. Each has a reaction of its own (INV-F5)."""

    NONE = "none"
    QUOTA = "quota exceeded"
    """Reaction: give the pool up, close the group for a while, let demand go elsewhere."""
    CAPACITY = "no capacity"
    """Reaction: keep the place in the queue with the boot clock stopped, ask for no more, let demand go
    elsewhere."""
    INVALID = "invalid specification"
    """Reaction: give up, close the group until its configuration changes or an operator reopens it."""
    SLOW_BOOT = "slow boot"
    """Reaction: report when it is slower than usual, replace when the boot timeout ends, with backoff."""
    API = "cloud not answering"
    """Reaction: repeat with backoff; nothing is concluded."""
    FORBIDDEN = "credentials refused"
    """Reaction: the same, until people renew the credentials, or give the right back."""
    NAME_TAKEN = "name taken"
    """Somebody else has a pool of this name. Reaction: leave it alone, give the slice up, and make another one under
    another name, with backoff."""
    WORKERS = "workers failing"
    """Reaction: replace pods with backoff, then the slice."""
    STUCK_DELETION = "stuck deletion"
    """Reaction: report, repeat the deletion; the slice no longer counts against the group's bound
    (INV-F7)."""


class Availability(enum.Enum):
    """Whether a group takes more demand."""

    AVAILABLE = "available"
    COOLDOWN = "cooldown"
    """It takes demand, and asks for slices when the delay since its last round is over."""
    AT_MAX = "at max_slices"
    BACKOFF = "backing off"
    """Slices failed."""
    CHURNING = "churning"
    """Too many slices lived only shortly."""
    QUOTA_EXCEEDED = "quota exceeded"
    NO_CAPACITY = "no capacity"
    INVALID = "invalid specification"

    @property
    def accepts(self) -> bool:
        """Whether new demand may be routed here."""
        return self in (Availability.AVAILABLE, Availability.COOLDOWN)


class PodState(enum.Enum):
    """Where a worker's place stands: the table is in :mod:`iriscw.fleet.lifecycle`."""

    VACANT = "vacant"
    """No pod; one will be asked for."""
    CREATING = "creating"
    """A pod was asked for."""
    STARTING = "starting"
    """The pod exists; its worker has not registered."""
    REGISTERED = "registered"
    """Its worker is registered and in contact."""
    ENDING = "ending"
    """The pod is given up and being deleted; its worker is fenced off."""
    REMOVING = "removing"
    """The same, and no other will follow."""
    REMOVED = "removed"
    """No pod is left, and none will come."""


@message
class SliceRow:
    """What users see of a slice. Times are wall-clock ns; None where there is none."""

    slice_id: str
    group: str
    state: SliceState
    trouble: Trouble
    reason: str
    requested_at: int
    since: int
    """When it entered its state."""
    ready_at: int | None = None
    """When it last became ready."""
    expected_at: int | None = None
    """When it should be ready, as far as boots of this group have shown."""
    idle_since: int | None = None
    live_attempts: int = 0
    workers: tuple[str, ...] = ()
    """The workers registered now."""
    num_vms: int = 1


@message
class GroupRow:
    """What users see of a group. Times are wall-clock ns."""

    group: str
    availability: Availability
    reason: str
    slices: int
    """Those that count against ``max_slices``."""
    ready: int
    wanted: int
    """Slices that demand was routed to."""
    min_slices: int
    max_slices: int
    boot_estimate: int
    """How long a boot is thought to take, in ns."""
    retry_at: int | None = None
    """When a closed group opens again by itself."""
    orphans: tuple[str, ...] = ()
    """Pools that belong to no slice and are being deleted."""
    policy_failures: int = 0
    """How often the group's policy failed since the group's actor began, and the default one decided."""
    quota_used_up_by: str = ""
    """The group whose slice was refused for the quota that this group shares, or itself; empty: none."""


@message
class RoutedDemand:
    """What users see of some demand at one of the groups that could run it. Times are wall-clock ns."""

    demand_id: str
    each: Capacity
    """What one task needs."""
    tasks: int
    """Those that wait."""
    takes: int
    """Those of them that were routed to this group."""
    why: str
    """Where to, and why not more."""
    before: tuple[tuple[str, str], ...]
    """The groups that were tried before this one, with why none of them takes all."""
    since: int
    """Since when demand of this shape is there."""


@message
class GroupDemand:
    """All demand that a group could run: that which was routed there comes first."""

    group: str
    tasks: int
    """Those that were routed there."""
    demands: int
    """How many there are; the first of them are told."""
    told: tuple[RoutedDemand, ...] = ()


@message
class FleetDescription:
    """The answer to :class:`iriscw.fleet.messages.DescribeFleet`: rows ordered by name."""

    groups: tuple[GroupRow, ...]
    slices: tuple[SliceRow, ...]
    synced: bool
    """Whether the cloud was listed since the start; until then rows show what the journal promised."""
    watch_error: str = ""
    """Why the cloud is not being watched right now; empty when it is."""
    routing_failures: int = 0
    """How often the routing policy failed since ``/fleet`` began, and the default one decided."""


class WorkerRefused(OperationError):
    """A worker may not register. The text says why; ``retryable`` that it may dial again later."""

    def __init__(self, text: str, *, fenced: bool = False) -> None:
        super().__init__(text)
        self.fenced = fenced
        """True: this incarnation is over for good, and its processes must end."""


class NoSuchGroup(UsageError, LookupError):
    """The fleet has no scale group of this name."""


def slice_name(group: str, unique: str) -> str:
    """Return a slice's id, which is its pool's name, too: ``iris-{group}-{unique}`` as an RFC 1123 label."""
    return f"iris-{rfc1123(group, MAX_GROUP_IN_NAME)}-{unique}"


def worker_name(slice_id: str, index: int) -> str:
    """Return the id of the worker at place ``index`` of a slice."""
    return f"{slice_id}-{index}"


def slice_of(worker_id: str) -> str:
    """Return the slice a worker belongs to."""
    return worker_id.rpartition("-")[0]


def pod_name(worker_id: str, incarnation: str) -> str:
    """Return the name of the pod of one incarnation: never used twice, so that no dead pod is mistaken for a
    new one.
    """
    return f"{worker_id}-{incarnation}"


def worker_path(fleet: ActorPath, group: str, worker_id: str) -> ActorPath:
    """Return the path of the actor that answers a worker's dial."""
    return fleet / group / slice_of(worker_id) / worker_id
